"""The section of the results page: sentences around the numbers of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from demur.reproduce.markdown import format_table, join_words
from demur.reproduce.records import Records
from demur.reproduce.studies.inference.config import InferenceConfig
from demur.reproduce.studies.inference.methods import METHODS, REFERENCE
from demur.reproduce.studies.inference.problems import SETS, Source
from demur.reproduce.studies.inference.tables import (
    FLOOR,
    index_figures,
    list_methods,
    name_method,
    select_reference,
)

VERSION = 1
"""Changes with any change of the code that changes tables, figures or text."""
_CLOSE_RATIO, _CLOSE_RANK = 1.5, 0.9
"""K is right in value if its mean is within this factor of the reference's, and in order if its rank
correlation with it is at least this."""
_GOOD_RHAT = 1.05
_COSTS = ("passes", "fit_seconds", "score_seconds_per_1000")

_HEAD = """## Inference: which method's K can be believed?

```sh
{command}
```

How far are K, I and M of a method from those of the posterior itself? Long Hamiltonian Monte Carlo (HMC) is
the reference: exact, and affordable for networks this small. All methods share one network, with a hidden
layer of {hidden} tanh units and a Gaussian prior of standard deviation {prior:g} on all parameters, at a
temperature of 1; where a method targets something else, the table says what. The problems:

{problems}

Numbers have a Gaussian likelihood, whose noise is trained with one network and then given to all methods.
Each of {seeds} seeds draws its own training inputs and fits everything anew, HMC too. Intervals are 95 %,
Student's over seeds, of ratios on a log scale and of rank correlations on Fisher's. They are about other
draws from the same data; those of a table share rows. K, I and M are corrected for the number of members
where there are at most 50.

*HMC, half against half* compares one half of HMC's chains with the other: what noise alone does to every
figure. All chains together have less of it.

{diagnosis}

![Ratio and rank correlation of K with HMC's, by method](figures/results/inference-k.png)

Triangles: beyond the edge of the panel.
"""


def compose_section(
    found: Records, config: InferenceConfig, sources: Mapping[str, Source], command: str
) -> str:
    """Return the section."""
    listed = "\n".join(
        f"- {each.description}; {each.sizes[0]:,} training inputs, {each.sizes[1]} and {each.sizes[2]} "
        "test inputs."
        for each in sources.values()
    )
    head = _HEAD.format(
        command=command, hidden=config.design.hidden, prior=config.design.prior_scale, problems=listed,
        seeds=config.seeds, diagnosis="\n".join(_diagnose(found, sources)),
    )  # fmt: skip
    parts = [head, "### Findings\n", *_list_findings(found), "", _format_verdicts(found, sources)]
    for name, source in sources.items():
        parts += [f"### {source.title}\n", _format_problem(found, name, bool(source.classes))]
    parts += ["### Cost\n", _format_costs(found, sources)]
    return "\n".join(parts)


def _diagnose(found: Records, sources: Mapping[str, Source]) -> Iterator[str]:
    """Yield a sentence on the reference's chains for each problem."""
    for name in sources:
        own = select_reference(found, name)
        worst = own["rhat_95"]["mean"]
        note = "" if worst <= _GOOD_RHAT else " (not good, so that figures are rough)"
        yield (
            f"- HMC on {sources[name].title}: R-hat of the predictions {own['rhat_median']['mean']:.3f} in "
            f"the median, {worst:.3f} at the 95th percentile and {own['rhat_worst']['mean']:.2f} at "
            f"worst{note}; effective size {own['size_median']['mean']:.0f} in the median and "
            f"{own['size_least']['mean']:.0f} at least, acceptance {own['acceptance']['mean']:.2f}."
        )


def judge_method(rows: list[tuple[dict[str, Any] | None, dict[str, Any]]]) -> str:
    """Return what K of a method is good for: "value and order", "order only", "value only" or "neither".

    Parameters
    ----------
    rows
        Ratio and rank correlation of each problem and set; the ratio None for a method that only ranks.
    """
    ranks = all(rank["mean"] >= _CLOSE_RANK for _, rank in rows)
    if any(ratio is None for ratio, _ in rows):
        return "order only" if ranks else "neither"
    near = all(1 / _CLOSE_RATIO <= ratio["mean"] <= _CLOSE_RATIO for ratio, _ in rows if ratio is not None)
    return {
        (True, True): "value and order", (False, True): "order only", (True, False): "value only",
    }.get((near, ranks), "neither")  # fmt: skip


def _collect_rows(found: Records, method: str) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """Return ratio and rank correlation of K of a method, for all problems and sets it has."""
    by_key, rows = index_figures(found), []
    for problem in dict.fromkeys(row["problem"] for row in found):
        for each in SETS:
            rank = by_key.get((problem, method, each, "k|spearman"))
            if rank is not None and not math.isnan(rank["mean"]):
                rows.append((by_key.get((problem, method, each, "k|ratio")), rank))
    return rows


def _list_findings(found: Records) -> Iterator[str]:
    """Yield which methods can be believed, and how far the others are off."""
    verdicts: dict[str, list[str]] = {}
    for method in list_methods(found):
        rows = _collect_rows(found, method)
        if method != FLOOR and rows:
            verdicts.setdefault(judge_method(rows), []).append(method)
    said = {
        "value and order": "K is right in value and in order",
        "order only": "K, or the score, is right in order only",
        "value only": "K is right in value only",
    }
    yield (
        f"K is *right in value* if its mean is within a factor of {_CLOSE_RATIO:g} of HMC's, and *in order* "
        f"if its rank correlation with HMC's is at least {_CLOSE_RANK:g}, on all problems, in- and "
        "out-of-distribution.\n"
    )
    for verdict, text in said.items():
        if verdict in verdicts:
            yield f"- {text}: {join_words([name_method(each) for each in verdicts[verdict]])}."
    if "neither" in verdicts:
        yield (
            f"- The other {len(verdicts['neither'])} are off in value on some of them and in order on some; "
            "the table says by how much."
        )


def _format_verdicts(found: Records, sources: Mapping[str, Source]) -> str:
    """Return the table of K of all methods on all problems: ratio / rank correlation, in and out."""
    by_key = index_figures(found)
    table = []
    for method in list_methods(found):
        target = "the posterior" if method == FLOOR else METHODS[method].target
        cells = [name_method(method), target]
        for problem in sources:
            for each in SETS:
                ratio, rank = (
                    by_key.get((problem, method, each, figure)) for figure in ("k|ratio", "k|spearman")
                )
                cells.append(f"{_write(ratio)} / {_write(rank)}" if ratio or rank else "")
        table.append(cells)
    head = ["method", "targets", *(f"{source.title}, {each}" for source in sources.values() for each in SETS)]
    note = "Ratio of the mean K to HMC's / rank correlation with HMC's K. Intervals are in the tables below."
    return "\n".join([format_table(head, table), "", note]) + "\n"


def _format_problem(found: Records, problem: str, classes: bool) -> str:
    """Return the tables of a problem: the average prediction and K, then I, M and the total."""
    by_key = index_figures(found)
    second = ("agreement", "agreement") if classes else ("shift", "shift of the mean")
    first = {
        "tv": "total variation", second[0]: second[1], "k|ratio": "K, ratio", "k|within": "K, share within 2",
        "k|spearman": "K, rank",
    }  # fmt: skip
    rest = {
        f"{part}|{figure}": f"{title}, {name}"
        for part, title in (("i", "I"), ("m", "M"), ("total", "total"))
        for figure, name in (("ratio", "ratio"), ("spearman", "rank"))
        if classes or part != "total"
    }
    blocks = []
    for shown in (first, rest):
        table = []
        for method in list_methods(found, problem):
            for each in SETS:
                cells = [
                    _write(by_key.get((problem, method, each, figure)), interval=True) for figure in shown
                ]
                if any(cells):
                    table.append([name_method(method), each, *cells])
        blocks.append(format_table(["method", "inputs", *shown.values()], table))
    note = _describe_reference(by_key, problem, classes)
    return "\n\n".join([blocks[0], blocks[1], note]) + "\n"


def _describe_reference(by_key: Mapping[tuple[str, ...], Any], problem: str, classes: bool) -> str:
    """Return the mean K, I and M of the reference, and how well its average predicts."""
    parts = ", ".join(
        f"{part.upper()} {_write(by_key.get((problem, REFERENCE, 'in', f'{part}|mean')))} and "
        f"{_write(by_key.get((problem, REFERENCE, 'out', f'{part}|mean')))}"
        for part in ("k", "i", "m")
    )
    error = "accuracy" if classes else "rmse"
    fit = _write(by_key.get((problem, REFERENCE, "in", error)))
    loss = _write(by_key.get((problem, REFERENCE, "in", "nll")))
    name = "an accuracy" if classes else "an RMSE (in standard deviations of the outcome)"
    return (
        f"HMC's own means, in nats, in- and out-of-distribution: {parts}. Its average has {name} of {fit} "
        f"and a loss of {loss} nats."
    )


def _format_costs(found: Records, sources: Mapping[str, Source]) -> str:
    """Return the table of costs: passes over the data and seconds to fit, seconds to score."""
    by_key = index_figures(found)
    table = []
    for method in [REFERENCE, *list_methods(found)]:
        if method == FLOOR:
            continue
        cells = [name_method(method)]
        for problem in sources:
            row = [by_key.get((problem, method, "in", key)) for key in _COSTS]
            if row[0] is None or row[1] is None or row[2] is None:
                cells.append("")
                continue
            cells.append(f"{row[0]['mean']:,.0f} / {row[1]['mean']:.1f} / {row[2]['mean']:.2f}")
        table.append(cells)
    note = (
        "Passes over the training data / processor seconds to fit / to score 1,000 inputs (predictions, K, I "
        "and M), on one core; means over seeds. Methods that start from a trained network include its "
        "training."
    )
    return (
        "\n".join([format_table(["method", *(each.title for each in sources.values())], table), "", note])
        + "\n"
    )


def _write(row: dict[str, Any] | None, *, interval: bool = False) -> str:
    """Return a figure with two digits after the point, or three significant ones; empty if there is none."""
    if row is None or math.isnan(row["mean"]):
        return ""
    digits = 2 if abs(row["mean"]) >= 0.1 else 3
    text = f"{row['mean']:.{digits}f}"
    if interval:
        text += f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    return text
