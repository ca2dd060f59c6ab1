"""The section of the results page: sentences around the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from demur.reproduce.markdown import format_interval, format_table
from demur.reproduce.records import Records
from demur.reproduce.studies.cifar10.judging import ONE_NETWORK, REFERENCE
from demur.reproduce.studies.cifar10.methods import Schedules

VERSION = 4
"""Changes with any change of the code that changes tables or text."""
TITLES = {
    REFERENCE: "full-batch HMC (theirs)", ONE_NETWORK: "one network", "ensemble": "deep ensemble",
    "swag": "SWAG", "csg-hmc": "cSG-HMC",
}  # fmt: skip
_STARTER = {"agreement": 0.5575, "tv": 0.507, "passes": 10}
"""The published starting point of the competition: one network, by SGD with 10 passes."""
_FIGURES = {
    "agreement": "agreement", "tv": "total variation", "total|spearman": "rank of the total",
    "accuracy": "accuracy", "nll": "loss",
}  # fmt: skip
_PARTS = {"k": "K", "i": "I", "m": "M"}

_HEAD = """## CIFAR-10: others' full-batch HMC as the judge

```sh
{command}
```

Izmailov et al. (2021), "What are Bayesian neural network posteriors really like?", ran full-batch Hamiltonian
Monte Carlo for a ResNet-20 with filter response normalisation on CIFAR-10, on 512 TPUs: 3 chains, 720
samples. Their predictions for the 10,000 test images are published (Wilson et al., 2022). The methods here
have the same network, images without augmentation, the same prior, N(0, 1/5) for all parameters, and a
temperature of 1. **What they do not have is the compute.** The schedules, of {total:g} passes over the
training images in all:

{schedules}

So the table says how far each method comes for its passes, not where it would converge to, and methods with
different numbers of passes are not ranked by it. One run with one seed: intervals (95 %) are over test images
and know nothing of other trainings.

*Agreement* is the share of images with the same likeliest class as HMC's average, *total variation* the
distance of the average predictions, *rank of the total* Spearman's correlation of the entropies of both
averages. Only the average of the reference is published: its K, I and M are not, and cannot be compared.
"""


def compose_section(rows: Records, schedules: Schedules, command: str) -> str:
    """Return the section."""
    found = index_rows(rows)
    names = [name for name in TITLES if name in found]
    head = _HEAD.format(
        command=command, total=schedules.passes, schedules="\n".join(_list_schedules(schedules))
    )
    table = []
    for name in names:
        cells = [_write(found[name].get(figure)) for figure in _FIGURES]
        passes = "" if name == REFERENCE else f"{schedules.count_passes(name):g}"
        table.append([TITLES[name], passes, *cells])
    starter = [f"{_STARTER['agreement']:g}", f"{_STARTER['tv']:g}", "", "", ""]
    table.insert(1, ["their starting point, one network", f"{_STARTER['passes']}", *starter])
    return "\n".join(
        [
            head,
            format_table(["method", "passes", *_FIGURES.values()], table),
            "",
            "Passes over the training images"
            + (", with those of the network that SWAG starts from" if "swag" in found else "")
            + "; the loss in nats.\n",
            "### Which part says where a method is off?\n",
            "Mean K, I and M of each method, in nats and corrected for few members, and their rank "
            "correlation with the total variation of each image: 1 where the part is larger the farther the "
            "method's prediction is from HMC's.\n",
            _format_parts(found, names),
            "",
            *_list_findings(found),
        ]
    )


def _list_schedules(schedules: Schedules) -> Iterator[str]:
    """Yield a line on how each method is fitted."""
    e, s, c = schedules.ensemble, schedules.swag, schedules.chain
    yield (
        f"- deep ensemble: {e.members} networks, {e.epochs} {_passes(e.epochs)} each, SGD with Nesterov "
        f"momentum, batches of {e.batch}, a learning rate that rises to {e.rate:g} and falls to 0; "
        "*one network* is the first of them;"
    )
    if s is not None:
        yield (
            f"- SWAG: from that network on, {s.epochs} {_passes(s.epochs)} at a rate of {s.rate:g}, "
            f"{s.epochs * s.collections} iterates, rank {s.rank}, {s.samples} samples;"
        )
    yield (
        f"- cSG-HMC: from an untrained network, {c.cycles} cycles of {c.epochs} {_passes(c.epochs)} from a "
        f"step size of {c.step_size:g}, the last {100 * (1 - c.exploration):.0f} % of each with noise, "
        f"{c.samples} samples."
    )


def _passes(number: int) -> str:
    return "pass" if number == 1 else "passes"


def _format_parts(found: dict[str, dict[str, dict[str, Any]]], names: list[str]) -> str:
    """Return the table of K, I and M, and of what they order."""
    table = []
    for name in names:
        own = found[name]
        if "total|gap" in own:
            means = [_write(own.get(part), interval=False) for part in (*_PARTS, "total")]
            ranks = [_write(own.get(f"{part}|gap"), interval=False) for part in (*_PARTS, "total")]
            table.append([TITLES[name], *means, *ranks])
    titles = [*_PARTS.values(), "entropy of the average"]
    return format_table(["method", *titles, *(f"{title}, rank" for title in titles)], table)


def _list_findings(found: dict[str, dict[str, dict[str, Any]]]) -> Iterator[str]:
    """Yield what stands out: who comes closest, and how far that is from the reference."""
    judged = [name for name in found if "tv" in found[name]]
    closest = min(judged, key=lambda name: found[name]["tv"]["value"])
    best = found[closest]
    agreement, distance = best["agreement"]["value"], best["tv"]["value"]
    right = [100 * found[name]["accuracy"]["value"] for name in (REFERENCE, closest)]
    ahead = agreement > _STARTER["agreement"] and distance < _STARTER["tv"]
    yield (
        f"Closest to HMC: {TITLES[closest]}, at a total variation of {distance:.3f} and an agreement of "
        f"{agreement:.3f}. That is {'ahead of' if ahead else 'not ahead of'} the published starting point. "
        f"HMC's own average is right for {right[0]:.1f} % of the images, this one for {right[1]:.1f} %: what "
        "a network has not learned yet after so few passes cannot be told from what its posterior "
        "approximation leaves out."
    )


def index_rows(rows: Records) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows by method, then by figure."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["method"], {})[row["figure"]] = row
    return found


def format_text(rows: Records) -> str:
    """Return agreement and total variation of all methods, for a terminal."""
    lines = [f"{'':24}{'agreement':>11}{'total variation':>17}{'accuracy':>10}"]
    for name, own in index_rows(rows).items():
        cells = [
            f"{own[figure]['value']:.4f}" if figure in own else ""
            for figure in ("agreement", "tv", "accuracy")
        ]
        lines.append(f"{TITLES[name]:24}{cells[0]:>11}{cells[1]:>17}{cells[2]:>10}")
    return "\n".join(lines) + "\n"


def _write(row: dict[str, Any] | None, *, interval: bool = True) -> str:
    """Return a figure, with its interval if wanted; empty if there is none."""
    if row is None:
        return ""
    if not interval:
        return f"{row['value']:.3f}"
    return format_interval(row["value"], row["low"], row["high"])
