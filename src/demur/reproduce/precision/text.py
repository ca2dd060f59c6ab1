"""The section of the page of results: sentences around the numbers of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from demur.reproduce.precision.tables import Rows

_POSTERIORS = {
    "perturbed": "perturbed weights",
    "last-layer-ensemble": "ten last layers, fine-tuned",
    "mc-dropout": "MC dropout",
    "csg-hmc": "cSG-HMC",
}
_SHOWN = ("exact", "float64", "float32", "float32 + 1e-10", "float16", "bfloat16", "bfloat16 + 1e-10")
_SAID = (("float32", 1e-3), ("float32", 1e-2), ("float32", 1.0), ("bfloat16", 1.0))
"""Gaps that are told in words, by arithmetic and distance; the others are in the table."""
_TYPES = ("float32", "float16", "bfloat16")
_PAPER = ((0.694, 0.813, "ImageNet-A"), (0.561, 0.605, "ImageNet-O"))
"""AUROCs of I and K for ten last layers, in Schweighofer et al. (2023), Table 1."""

_HEAD = """## Rounding: how much of the gap between K and I it makes

```sh
demur reproduce precision --data DIR --out DIR
```

Where members nearly agree, K tends to 2 I, and both rank inputs alike. Yet for ten last layers on ImageNet
the paper has them apart: {paper}. This study asks how much of such a gap can be rounding. It cannot say
which arithmetic the paper's figures come from.

**Setting.** Features of EfficientNet-Lite0, {images} ImageNet validation images against {textures} textures
(DTD), by AUROC. Members are ten last layers. *Perturbed weights* are the network's own plus Gaussian noise;
the distance is its standard deviation over the root mean square of the weights. The other three are fitted to
three other images a class, and then moved towards their mean (dropout: towards no dropout); a distance of 1
is as they were fitted. All arithmetics get the same float32 logits, rounded to their type. *Exact* is
`demur.decompose`. The others are the usual formulas in PyTorch: entropy of the mean minus mean entropy for I,
expected pairwise cross-entropy minus mean entropy for K. *+ 1e-10* adds that number inside each logarithm.
Intervals (95 %) hold for the inputs and for the draws of the members, five of perturbed weights, three of
each fitted posterior.

![AUROC of I and of K over how far members differ, by arithmetic](figures/results/precision-textures.png)

Bands are 95 % intervals; dashed: with 1e-10 inside the logarithm.
"""


def section(curves: Rows, gaps: Rows, checks: Rows, fits: Rows, sizes: tuple[int, int]) -> str:
    """Return the section; sizes are the numbers of images and of textures."""
    paper = " and ".join(f"{i:.3f} for I and {k:.3f} for K ({where})" for i, k, where in _PAPER)
    parts = [_HEAD.format(images=f"{sizes[0]:,}", textures=f"{sizes[1]:,}", paper=paper)]
    parts += ["### What of the gap is mathematics\n", _gap_text(gaps)]
    parts += ["### AUROC by arithmetic\n", _curve_text(curves)]
    parts.append(
        "![AUROC over agreement for three fitted posteriors](figures/results/precision-posteriors.png)\n"
    )
    parts += ["### What else came out\n", *_other_text(curves, checks, fits)]
    return "\n".join(parts)


def _gap_text(gaps: Rows) -> str:
    """Return the statement for float32, and the table of two types."""
    lines = [
        "The gap is AUROC of K minus AUROC of I. Mathematics is the gap of the exact values, "
        "rounding is the rest.\n"
    ]
    for posterior in _POSTERIORS:
        for row in some(gaps, posterior=posterior):
            if (row["arithmetic"], row["level"]) in _SAID:
                lines.append(
                    f"- {_POSTERIORS[posterior]}, {level(row)}, {row['arithmetic']}: the gap is "
                    f"{_ends(row, 'gap')}; {_ends(row, 'mathematics')} of it is mathematics, "
                    f"{_ends(row, 'rounding')} is rounding."
                )
    lines += [
        "",
        "| posterior | distance | arithmetic | gap K − I | mathematics | rounding |",
        "|---|---|---|---|---|---|",
    ]
    for posterior in _POSTERIORS:
        for row in some(gaps, posterior=posterior):
            if row["arithmetic"] in _TYPES and whole(row["level"]) and row["level"] > 1e-4:
                cells = [_POSTERIORS[posterior], f"{row['level']:g}", row["arithmetic"]]
                cells += [_ends(row, part) for part in ("gap", "mathematics", "rounding")]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _curve_text(curves: Rows) -> str:
    """Return the table of AUROCs, I / K, without intervals, which are in the figures and in curves.csv."""
    lines = [f"| posterior | distance | {' | '.join(_SHOWN)} |", "|---|---|" + "---|" * len(_SHOWN)]
    for posterior in _POSTERIORS:
        found = {
            (row["level"], row["arithmetic"], row["measure"]): row
            for row in some(curves, posterior=posterior)
        }
        for distance in sorted({key[0] for key in found}):
            if not whole(distance):
                continue
            cells = []
            for name in _SHOWN:
                i, k = (found[distance, name, measure] for measure in "IK")
                cells.append(f"{i['auroc']:.3f} / {k['auroc']:.3f}" if not math.isnan(i["auroc"]) else "none")
            lines.append(f"| {_POSTERIORS[posterior]} | {distance:g} | {' | '.join(cells)} |")
    note = "I / K. Their intervals are in `curves.csv` of the run, with all levels and arithmetics."
    return "\n".join([*lines, "", note]) + "\n"


def _other_text(curves: Rows, checks: Rows, fits: Rows) -> Iterator[str]:
    """Yield what a reader may ask next."""
    double = {key(row): row["auroc"] for row in some(curves, arithmetic="float64")}
    exact = {key(row): row["auroc"] for row in some(curves, arithmetic="exact")}
    worst = max(abs(double[each] - exact[each]) for each in exact)
    yield (
        f"- The closed forms in float64 give the exact AUROC to {worst:.1g} at all distances, at twice the "
        "memory: the formula is not wrong, float32 is too short for it."
    )
    check = max(abs(row["auroc_float32_logits"] - row["auroc_float64_logits"]) for row in checks)
    apart = max(row["median_relative_difference"] for row in checks)
    yield (
        f"- From logits computed in float64 the exact AUROC is the same to {check:.1g}. The values "
        f"themselves differ by {apart:.1g} of their size at most (median over inputs): float32 logits hold "
        "what is needed."
    )
    missing = [row["not_a_number"] for row in some(curves, arithmetic="float16 + 1e-10", measure="I")]
    yield (
        "- In float16 the number 1e-10 is 0, and 0 log 0 is not a number: with it "
        f"{min(missing):.1%} to {max(missing):.1%} of the inputs get no score, so that there is no AUROC."
    )
    below = {name: [r["below_zero"] for r in some(curves, arithmetic=name, level=1e-3)] for name in _SHOWN}
    yield (
        f"- At a distance of 1e-3 up to {max(below['float32']):.0%} of the values of float32 are below zero, "
        f"which neither I nor K can be; of the exact ones {max(below['exact']):.0%}."
    )
    for name in ("float16", "bfloat16"):
        rows = some(curves, arithmetic=f"exact, {name} logits", posterior="perturbed", measure="K")
        found = {row["level"]: row for row in rows if whole(row["level"])}
        values = ", ".join(f"{_ends(row, 'auroc', short=True)} at {d:g}" for d, row in found.items())
        yield (
            f"- Logits that are rounded to {name} have lost part of it already, and the rounding itself sets "
            f"members apart. Exact values of those, for K and perturbed weights: {values}."
        )
    for row in some(fits, level=1.0):
        if row["posterior"] != "perturbed":
            yield (
                f"- {_POSTERIORS[row['posterior']]}, as fitted, {row['draws']} draws: the average of the "
                f"members has an accuracy of {row['accuracy']:.3f} and a loss of {row['nll']:.3f} nats on "
                f"the images of the test; half of the inputs have a K above {row['median_k']:.2g} nats."
            )


def some(rows: Rows, **facts: Any) -> Rows:
    """Return the rows with these facts."""
    return [row for row in rows if all(row[name] == value for name, value in facts.items())]


def key(row: Mapping[str, Any]) -> tuple[str, float, str]:
    """Return what a curve's point is told by."""
    return row["posterior"], row["level"], row["measure"]


def whole(distance: float) -> bool:
    """Return whether a level is a power of ten."""
    return math.isclose(math.log10(distance), round(math.log10(distance)), abs_tol=1e-9)


def level(row: Mapping[str, Any]) -> str:
    """Name a level."""
    if row["posterior"] != "perturbed":
        return "as fitted" if row["level"] == 1 else f"{row['level']:g} of the fitted distance"
    return f"{row['level']:g} of the weights"


def _ends(row: Mapping[str, Any], name: str, *, short: bool = False) -> str:
    """Write a figure with its interval; a difference with its sign, which 0 has none of."""
    if short:
        return f"{row[name]:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    value, low, high = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    text = f"{value:+.4f} [{low:.4f}, {high:.4f}]"
    return text.replace("-0.0000", "0.0000").replace("+0.0000", "0.0000")
