"""Means over seeds with intervals, and tables of them as text and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from demur.reproduce.records import Records, convert_to_records, select_records
from demur.reproduce.studies.inference.methods import METHODS, REFERENCE
from demur.reproduce.studies.inference.problems import SETS

FLOOR = "hmc-halves"
"""The reference's chains in two halves, one judged by the other: what noise alone makes of every figure."""
CONFIDENCE = 0.95
_TITLES = {FLOOR: "HMC, half against half"} | {name: each.title for name, each in METHODS.items()}
_SHOWN_FIGURES = {
    "tv": "total variation", "agreement": "agreement", "shift": "shift", "k|ratio": "K, ratio",
    "k|within": "K, within 2", "k|spearman": "K, rank", "i|ratio": "I, ratio", "i|spearman": "I, rank",
    "m|ratio": "M, ratio", "m|spearman": "M, rank", "total|ratio": "total, ratio",
    "total|spearman": "total, rank",
}  # fmt: skip
"""The figures of the tables, with their headings."""


_SHARES = ("tv", "agreement", "accuracy")
"""Figures from 0 to 1, as `PART|within` is; so are the ends of their intervals."""


def name_method(name: str) -> str:
    """Return what a method is called, or the floor."""
    return _TITLES[name]


def average_seeds(columns: Mapping[str, np.ndarray]) -> Records:
    """Return the mean over seeds of each figure, with its interval; a row for each of them.

    Parameters
    ----------
    columns
        problem, seed, method, set, figure and value.
    """
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in convert_to_records(columns):
        key = tuple(str(row[name]) for name in ("problem", "method", "set", "figure"))
        groups.setdefault(key, []).append(float(row["value"]))
    found = []
    for (problem, method, each, figure), values in groups.items():
        mean, low, high = average_values(np.array(values), figure)
        row = {"problem": problem, "method": method, "set": each, "figure": figure, "mean": mean, "low": low}
        found.append(row | {"high": high, "seeds": len(values)})
    return found


def average_values(values: np.ndarray, figure: str) -> tuple[float, float, float]:
    """Return the mean over seeds and the ends of Student's interval.

    Of ratios it is the geometric mean, and the interval that of the logarithm; of rank correlations, both on
    Fisher's scale. Where a value has no such scale, as a ratio of 0 or a correlation of 1, the plain mean and
    interval are returned, and NaN where a value is NaN.
    """
    from scipy.special import stdtrit

    forward, back = {"ratio": (np.log, np.exp), "spearman": (np.arctanh, np.tanh)}.get(
        figure.partition("|")[2], (np.asarray, np.asarray)
    )
    with np.errstate(divide="ignore"):
        scaled = forward(values)
    if not np.isfinite(scaled).all():
        scaled, back = values, np.asarray
    mean, number = float(scaled.mean()), len(values)
    half = float(stdtrit(number - 1, (1 + CONFIDENCE) / 2)) * float(scaled.std(ddof=1)) / math.sqrt(number)
    low, high = float(back(mean - half)), float(back(mean + half))
    if figure in _SHARES or figure.endswith("|within"):
        low, high = max(low, 0.0), min(high, 1.0)
    return float(back(mean)), low, high


def index_figures(found: Records) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    """Return the rows of a table by problem, method, set and figure."""
    return {(row["problem"], row["method"], row["set"], row["figure"]): row for row in found}


def list_methods(found: Records, problem: str | None = None) -> list[str]:
    """Return the methods of a problem, or of all, in the order of `METHODS`, the floor first."""
    own = {row["method"] for row in found if problem in (None, row["problem"])}
    return [name for name in _TITLES if name in own and name != REFERENCE]


def list_figures(found: Records, problem: str) -> dict[str, str]:
    """Return the figures that a problem's table shows, with their headings."""
    own = {row["figure"] for row in found if row["problem"] == problem}
    return {figure: title for figure, title in _SHOWN_FIGURES.items() if figure in own}


def format_latex(found: Records, problem: str) -> str:
    """Return a problem's table: a row for each method and set, figures with half the width of intervals."""
    shown, by_key = list_figures(found, problem), index_figures(found)
    lines = [
        "% Means over seeds; half the width of the 95 % interval in brackets.",
        f"\\begin{{tabular}}{{ll{'r' * len(shown)}}}",
        "\\toprule",
        " & ".join(["method", "inputs", *shown.values()]) + r" \\",
        "\\midrule",
    ]
    for method in list_methods(found, problem):
        for each in SETS:
            cells = [_format_latex_cell(by_key.get((problem, method, each, figure))) for figure in shown]
            lines.append(" & ".join([name_method(method), each, *cells]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _format_latex_cell(row: dict[str, Any] | None) -> str:
    if row is None or math.isnan(row["mean"]):
        return "--"
    return f"{row['mean']:.2f} ({(row['high'] - row['low']) / 2:.2f})"


def format_text(found: Records) -> str:
    """Return the ratio and the rank correlation of K of all methods, for a terminal."""
    by_key = index_figures(found)
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in found):
        heads = [f"{name} {each}" for name in ("ratio", "rank") for each in SETS]
        lines += [f"K against HMC's: {problem}", f"{'':32}" + "".join(f"{head:>11}" for head in heads)]
        for method in list_methods(found, problem):
            cells = ""
            for figure in ("k|ratio", "k|spearman"):
                for each in SETS:
                    row = by_key.get((problem, method, each, figure))
                    cells += f"{'':>11}" if row is None or math.isnan(row["mean"]) else f"{row['mean']:11.2f}"
            lines.append(f"{name_method(method):32}{cells}")
        lines.append("")
    return "\n".join(lines)


def select_reference(found: Records, problem: str) -> dict[str, dict[str, Any]]:
    """Return the reference's own figures on a problem, by name."""
    rows = select_records(found, problem=problem, method=REFERENCE, set="in")
    return {row["figure"]: row for row in rows}
