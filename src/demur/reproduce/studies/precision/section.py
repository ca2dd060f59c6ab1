"""The section of the results page: sentences around the numbers of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from demur.reproduce.markdown import format_difference, format_interval, format_table
from demur.reproduce.records import Records, select_records

VERSION = 1
"""Changes with any change of the code that changes tables, figures or text."""

_POSTERIORS = {
    "perturbed": "perturbed weights",
    "last-layer-ensemble": "ten last layers, fine-tuned",
    "mc-dropout": "MC dropout",
    "csg-hmc": "cSG-HMC",
}
_SHOWN_FORMULAS = (
    "exact",
    "float64",
    "float32",
    "float32 + 1e-10",
    "float16",
    "bfloat16",
    "bfloat16 + 1e-10",
)
_GAPS_IN_WORDS = (("float32", 1e-3), ("float32", 1e-2), ("float32", 1.0), ("bfloat16", 1.0))
"""Gaps that are described in words, by arithmetic and distance; the others are in the table."""
_GAP_FORMULAS = ("float32", "float16", "bfloat16")
_PAPER_AUROCS = ((0.694, 0.813, "ImageNet-A"), (0.561, 0.605, "ImageNet-O"))
"""AUROCs of I and K for ten last layers, in Schweighofer et al. (2023), Table 1."""

_HEAD = """## Rounding: how much of the gap between K and I it makes

```sh
demur reproduce precision --data DIR --out DIR
```

Where members nearly agree, K tends to 2 I, and both rank inputs alike. Yet for ten last layers on ImageNet
the paper reports different AUROCs: {paper}.
This study asks how much of such a gap can be due to rounding. It cannot say which arithmetic the paper used.

**Setting.** Features of EfficientNet-Lite0, {images} ImageNet validation images against {textures} textures
(DTD), by AUROC. Members are ten last layers. *Perturbed weights* are the network's own plus Gaussian noise;
the distance is its standard deviation over the root mean square of the weights. The other three are fitted to
three other images per class, and then moved towards their mean (dropout: towards no dropout); at a distance
of 1 they are as fitted. All arithmetics start from the same float32 logits, rounded to their dtype. *Exact*
is `demur.decompose`. The others are the usual formulas in PyTorch: entropy of the mean minus mean entropy for
I, expected pairwise cross-entropy minus mean entropy for K. *+ 1e-10* adds that number inside each logarithm.
The 95 % intervals cover both inputs and draws of the members: five draws of perturbed weights, three of each
fitted posterior.

![AUROC of I and of K over how far members differ, by arithmetic](figures/results/precision-textures.png)

Bands are 95 % intervals; dashed: with 1e-10 inside the logarithm.
"""


def compose_section(
    curves: Records, gaps: Records, checks: Records, fits: Records, sizes: tuple[int, int]
) -> str:
    """Return the section; sizes are the numbers of images and of textures."""
    paper = " and ".join(f"{i:.3f} for I and {k:.3f} for K ({where})" for i, k, where in _PAPER_AUROCS)
    parts = [_HEAD.format(images=f"{sizes[0]:,}", textures=f"{sizes[1]:,}", paper=paper)]
    parts += ["### How much of the gap is mathematics\n", _describe_gaps(gaps)]
    parts += ["### AUROC by arithmetic\n", _format_aurocs(curves)]
    parts.append(
        "![AUROC over agreement for three fitted posteriors](figures/results/precision-posteriors.png)\n"
    )
    parts += ["### Other findings\n", *_list_findings(curves, checks, fits)]
    return "\n".join(parts)


def _describe_gaps(gaps: Records) -> str:
    """Return the statement for float32, and the table of two types."""
    lines = [
        "The gap is AUROC of K minus AUROC of I. Mathematics is the gap of the exact values, "
        "rounding is the rest.\n"
    ]
    for posterior in _POSTERIORS:
        for row in select_records(gaps, posterior=posterior):
            if (row["arithmetic"], row["level"]) in _GAPS_IN_WORDS:
                lines.append(
                    f"- {_POSTERIORS[posterior]}, {_name_level(row)}, {row['arithmetic']}: the gap is "
                    f"{_format_part(row, 'gap')}; {_format_part(row, 'mathematics')} of it is mathematics, "
                    f"{_format_part(row, 'rounding')} is rounding."
                )
    table = []
    for posterior in _POSTERIORS:
        for row in select_records(gaps, posterior=posterior):
            if row["arithmetic"] in _GAP_FORMULAS and _is_power_of_ten(row["level"]) and row["level"] > 1e-4:
                cells = [_POSTERIORS[posterior], f"{row['level']:g}", row["arithmetic"]]
                cells += [_format_part(row, part) for part in ("gap", "mathematics", "rounding")]
                table.append(cells)
    head = ["posterior", "distance", "arithmetic", "gap K − I", "mathematics", "rounding"]
    return "\n".join([*lines, "", format_table(head, table)]) + "\n"


def _format_aurocs(curves: Records) -> str:
    """Return the table of AUROCs, I / K, without intervals, which are in the figures and in curves.csv."""
    table = []
    for posterior in _POSTERIORS:
        found = {
            (row["level"], row["arithmetic"], row["measure"]): row
            for row in select_records(curves, posterior=posterior)
        }
        for distance in sorted({key[0] for key in found}):
            if not _is_power_of_ten(distance):
                continue
            cells = [_POSTERIORS[posterior], f"{distance:g}"]
            for name in _SHOWN_FORMULAS:
                i, k = (found[distance, name, measure] for measure in "IK")
                cells.append(f"{i['auroc']:.3f} / {k['auroc']:.3f}" if not math.isnan(i["auroc"]) else "none")
            table.append(cells)
    note = "I / K. Intervals, and all other distances and arithmetics, are in `curves.csv` of the run."
    return "\n".join([format_table(["posterior", "distance", *_SHOWN_FORMULAS], table), "", note]) + "\n"


def _list_findings(curves: Records, checks: Records, fits: Records) -> Iterator[str]:
    """Yield what a reader may ask next."""
    double = {_get_key(row): row["auroc"] for row in select_records(curves, arithmetic="float64")}
    exact = {_get_key(row): row["auroc"] for row in select_records(curves, arithmetic="exact")}
    worst = max(abs(double[each] - exact[each]) for each in exact)
    yield (
        f"- The closed forms in float64 give the exact AUROC to {worst:.1g} at all distances, at twice the "
        "memory: the formula is right, but float32 has too few digits for it."
    )
    check = max(abs(row["auroc_float32_logits"] - row["auroc_float64_logits"]) for row in checks)
    apart = max(row["median_relative_difference"] for row in checks)
    yield (
        f"- From logits computed in float64 the exact AUROC is the same to {check:.1g}. The values "
        f"themselves differ by at most {apart:.1g} relative (median over inputs): float32 logits are precise "
        "enough."
    )
    missing = [
        row["not_a_number"] for row in select_records(curves, arithmetic="float16 + 1e-10", measure="I")
    ]
    yield (
        "- In float16, 1e-10 is rounded to 0, and 0 log 0 is NaN: with it, "
        f"{min(missing):.1%} to {max(missing):.1%} of the inputs get no score, so there is no AUROC."
    )
    below = {
        name: [r["below_zero"] for r in select_records(curves, arithmetic=name, level=1e-3)]
        for name in _SHOWN_FORMULAS
    }
    yield (
        f"- At a distance of 1e-3, up to {max(below['float32']):.0%} of the float32 values are negative, "
        f"which neither I nor K can be; of the exact ones, {max(below['exact']):.0%}."
    )
    for name in ("float16", "bfloat16"):
        rows = select_records(curves, arithmetic=f"exact, {name} logits", posterior="perturbed", measure="K")
        found = {row["level"]: row for row in rows if _is_power_of_ten(row["level"])}
        values = ", ".join(
            f"{format_interval(row['auroc'], row['low'], row['high'])} at {d:g}" for d, row in found.items()
        )
        yield (
            f"- Rounding the logits to {name} already loses part of the signal, and itself makes members "
            f"differ. The exact AUROC of K from such logits, for perturbed weights: {values}."
        )
    for row in select_records(fits, level=1.0):
        if row["posterior"] != "perturbed":
            yield (
                f"- {_POSTERIORS[row['posterior']]}, as fitted, {row['draws']} draws: the average of the "
                f"members has an accuracy of {row['accuracy']:.3f} and a loss of {row['nll']:.3f} nats on "
                f"the test images; the median K is {row['median_k']:.2g} nats."
            )


def _get_key(row: Mapping[str, Any]) -> tuple[str, float, str]:
    """Return what identifies a point of a curve."""
    return row["posterior"], row["level"], row["measure"]


def _is_power_of_ten(distance: float) -> bool:
    """Return whether a level is a power of ten."""
    return math.isclose(math.log10(distance), round(math.log10(distance)), abs_tol=1e-9)


def _name_level(row: Mapping[str, Any]) -> str:
    """Return a level in words."""
    if row["posterior"] != "perturbed":
        return "as fitted" if row["level"] == 1 else f"{row['level']:g} of the fitted distance"
    return f"{row['level']:g} of the weights"


def _format_part(row: Mapping[str, Any], part: str) -> str:
    """Return the gap, or a part of it, with its interval; zero has no sign."""
    text = format_difference(row[part], row[f"{part}_low"], row[f"{part}_high"], digits=4)
    return text.replace("-0.0000", "0.0000").replace("+0.0000", "0.0000")
