"""Every method against one of them: the same task on the inputs that both scored, by a paired test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from demur.reproduce.studies.paper_tables.evaluation import TableTask
from demur.tasks import compare, detection, misclassification
from demur.tasks.compare import adjust_by_holm

_Columns = Mapping[str, np.ndarray]
_Scored = Mapping[str, Mapping[str, _Columns]]
"""Columns by method and set; ``input`` has the number of each input in its set."""

_K, _A3 = "pairwise_epistemic", "A3_epistemic"
_PAIRS = {"quam": ((_A3, _A3), (_A3, _K), (_K, _K)), "members": ((_K, _K),)}
"""What a method is judged by, and against what: K, and for QUAM the measure of its paper too."""
_NO_SCORES = ("input", "label", "prediction", "deployed")
"""Columns that are no scores."""
_FEWEST = 20
"""With fewer inputs of one kind, positive or negative, two scores are not compared."""
FILE = "methods.csv"
"""The file of the comparison in the folder of a run."""
NETWORKS_FILE = "networks.csv"
"""The accuracy of methods that train a network of their own, beside it."""

HEADER = (
    "task", "method", "score", "against", "known", "positive", "value", "low", "high", "reference",
    "difference", "difference_low", "difference_high", "p_value", "adjusted",
)  # fmt: skip
"""The columns of the table."""


class _Row(NamedTuple):
    """A score of a method and one of the reference on the same inputs of a task."""

    names: tuple[str, str, str]
    ours: Any
    theirs: Any
    correct: np.ndarray | None


def compare_methods(
    tasks: list[TableTask], scored: _Scored, kinds: Mapping[str, str], reference: str
) -> list[list[Any]]:
    """Return a row for each task and score of each method but the reference; `HEADER` names the columns.

    AUROCs are compared by DeLong's paired test, with Holm's correction for all rows of a task. K is compared
    with the reference's K, as are scores of one pass; QUAM's A3 with the reference's A3 and K.

    Parameters
    ----------
    tasks
        Those of both tables; selective prediction is left out, since its inputs are those of the errors.
    scored
        The columns of all methods.
    kinds
        The kind of each method, as in the settings.
    reference
        The method that others are compared with.
    """
    rows: list[list[Any]] = []
    for task in tasks:
        if task.kind == "selective":
            continue
        found = list(_list_rows(task, scored, kinds, reference))
        compared = adjust_by_holm([compare(r.ours, r.theirs, task.kind, correct=r.correct) for r in found])
        for row, comparison in zip(found, compared, strict=True):
            values = [_evaluate(task, each, row.correct) for each in (row.ours, row.theirs)]
            positive = np.count_nonzero(~row.correct) if row.correct is not None else len(row.ours[1])
            known = np.count_nonzero(row.correct) if row.correct is not None else len(row.ours[0])
            own, difference = values[0], comparison.difference
            rows.append([
                task.name, *row.names, known, positive, own.value, own.low, own.high, values[1].value,
                difference.value, difference.low, difference.high, comparison.p_value, comparison.adjusted,
            ])  # fmt: skip
    return rows


def _list_rows(task: TableTask, scored: _Scored, kinds: Mapping[str, str], reference: str) -> Iterator[_Row]:
    """Yield what is compared in a task."""
    theirs, wanted = scored[reference], np.concatenate(task.known)
    for method, by_set in scored.items():
        if method == reference or not {"id", task.which} <= set(by_set):
            continue
        rows = [wanted[np.isin(wanted, by_set["id"]["input"])]]
        if task.positive is not None:
            rows.append(task.positive[np.isin(task.positive, by_set[task.which]["input"])])
        correct = None
        if task.kind == "misclassification":
            ours, base = (_select(each["id"], "deployed", rows[0]) for each in (by_set, theirs))
            correct = base == _select(theirs["id"], "label", rows[0])
            if (ours != base).any():
                continue  # errors of another network are not the reference's
        counts = map(len, rows) if correct is None else np.bincount(correct, minlength=2)
        if min(counts) < _FEWEST:
            continue
        sets = ["id", task.which][: len(rows)]
        for score, other in _list_pairs(by_set["id"], kinds[method]):
            pair = [
                [_select(each[name], column, part) for name, part in zip(sets, rows, strict=True)]
                for each, column in ((by_set, score), (theirs, other))
            ]
            ours, base = (tuple(each) if task.positive is not None else each[0] for each in pair)
            yield _Row((method, score, other), ours, base, correct)


def _list_pairs(columns: _Columns, kind: str) -> tuple[tuple[str, str], ...]:
    """Return the columns that a method is judged by, each with the reference's that it is compared with."""
    if kind in ("one-pass", "one-pass-network"):
        return tuple((name, _K) for name in columns if name not in _NO_SCORES)
    return _PAIRS["quam" if kind == "quam" else "members"]


def _select(columns: _Columns, name: str, rows: np.ndarray) -> np.ndarray:
    """Return a column of some inputs, by their numbers in the set."""
    return columns[name][np.searchsorted(columns["input"], rows)]


def _evaluate(task: TableTask, values: Any, correct: np.ndarray | None) -> Any:
    """Return the AUROC of a score with its interval."""
    if correct is None:
        return detection(*values, interval="asymptotic").auroc
    return misclassification(values, correct, interval="asymptotic").auroc
