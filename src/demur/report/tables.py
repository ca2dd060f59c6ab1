"""Tables of figures that tasks computed: scores or figures side by side, for each method or task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from demur.control_characters import escape_controls
from demur.report.percent import join_names
from demur.report.score_names import measures_distances
from demur.report.table_forms import (
    FIGURE_NAMES,
    PAPER_NAMES,
    Column,
    Row,
    Table,
    write_around,
    write_number,
)
from demur.tasks.contest import Contest, Standing
from demur.tasks.detection import Detection

PAPER = ("average_total", "pairwise_total", "pairwise_aleatoric", "average_epistemic", "pairwise_epistemic")
"""The columns of the paper's tables. Its current measure is "average", its new one "pairwise"."""

_PARTS = ("total", "aleatoric", "epistemic")
_EPISTEMIC_NAMES = {
    "average": "mutual information", "pairwise": "pairwise KL", "reverse": "reverse mutual information",
}  # fmt: skip


def table_of_scores(
    found: Contest, scores: Sequence[str] | None = None, *, paper: bool = False, unit: str = ""
) -> Table:
    """Return the paper's table: a row for each method, a column for each score, a section for each figure.

    `scores` are the columns; all of them by default. With `paper` they have the paper's names, current for
    average and new for pairwise. `unit` is that of the scores, as files have it: only logarithmic ones are
    information and KL divergences.
    """
    names = list(scores or dict.fromkeys(name for named in found.results.values() for name in named))
    rows = [
        Row(
            figure,
            escape_controls(method),
            tuple(named[name] for name in names),
            _count_fewest(found.results[method][names[0]]),
        )
        for figure, methods in found.standings.items()
        for method, named in methods.items()
    ]
    columns = [column_of(name, names, paper=paper, unit=unit) for name in names]
    remarks = [
        remark
        for method, results in found.results.items()
        for remark in _say_what_is_pooled({name: results[name] for name in names}, method)
    ]
    return Table(columns, rows, level=found.level, remarks=remarks)


def _say_what_is_pooled(results: Mapping[str, Any], method: str) -> list[str]:
    """Return that figures pool unlike parts, and what they are within one, where that is so."""
    pooled = {name: each for name, each in results.items() if isinstance(each, Detection) and each.pooled}
    told = [
        f"{write_number(each.within.value)} {write_around(each.within)}{f' by {name}' if name else ''}"
        for name, each in pooled.items()
        if each.within is not None
    ]
    if not told:
        return []
    said = next(iter(pooled.values())).describe_pooling(join_names(told))
    return [f"{method}: {said[0].lower()}{said[1:]}".replace(", auroc is", ", AUROC is")]


def _count_fewest(result: Any) -> int | None:
    """Return how many inputs are of the rarer kind, where two kinds are told apart."""
    return min(result.positives, result.negatives) if isinstance(result, Detection) else None


def table_of_figures(results: Mapping[str, Any], figures: Sequence[str], score: str = "") -> Table:
    """Return a row for each method, a column for each figure of its `Detection`, `Selective` or other."""
    columns = [Column(figure, "", FIGURE_NAMES[figure]) for figure in figures]
    rows = [
        Row(
            escape_controls(score),
            escape_controls(method),
            tuple(Standing(getattr(result, f), chance=getattr(result, "chance", "")) for f in figures),
        )
        for method, result in results.items()
    ]
    remarks = [
        each for method, result in results.items() for each in _say_what_is_pooled({"": result}, method)
    ]
    return Table(columns, rows, across="figure", remarks=remarks)


def column_of(name: str, all_names: Sequence[str], *, paper: bool = False, unit: str = "") -> Column:
    """Return the column of a score: {measure}_{part} under its part, other names by themselves.

    Examples
    --------
    >>> column_of("average_epistemic", PAPER).heading, column_of("average_total", PAPER).heading
    ('mutual information', 'average')
    >>> column_of("pairwise_epistemic", PAPER, unit="the unit of the numbers").heading
    'mean distance'
    """
    measure, _, part = name.rpartition("_")
    if part not in _PARTS or not measure:
        return Column(name, "", escape_controls(name))
    alone = sum(other.rpartition("_")[2] == part for other in all_names) == 1
    names = PAPER_NAMES if paper else _name_epistemic(unit) if part == "epistemic" else {}
    return Column(name, part.capitalize(), "" if alone else escape_controls(names.get(measure, measure)))


def _name_epistemic(unit: str) -> dict[str, str]:
    """Return what the epistemic parts of scores in some unit are called; else as their measures."""
    if measures_distances(unit):
        return {"pairwise": "mean distance"}
    return {} if unit.endswith(" loss") else _EPISTEMIC_NAMES


def kinds_of(names: Sequence[str]) -> list[list[str]]:
    """Return which scores are compared with each other: those of one part of uncertainty.

    Examples
    --------
    >>> kinds_of(PAPER)
    [['average_total', 'pairwise_total'], ['pairwise_aleatoric'], ['average_epistemic', 'pairwise_epistemic']]
    """
    kinds: dict[str, list[str]] = {}
    for name in names:
        part = name.rpartition("_")[2]
        kinds.setdefault(part if part in _PARTS else "", []).append(name)
    return list(kinds.values())
