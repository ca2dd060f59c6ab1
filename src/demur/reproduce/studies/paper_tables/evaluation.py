"""Splits as in the paper, the tables with paired tests, every cell of measures, and labels from people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demur.report.run_sets import shown_name
from demur.report.table_forms import Row, Table
from demur.report.tables import PAPER, kinds_of, table_of_scores
from demur.reproduce.studies.paper_tables.config import TablesConfig
from demur.reproduce.studies.paper_tables.scoring_stages import CELLS, MEASURES
from demur.tasks import Contest, contest, detection, misclassification, rank_correlation, selective
from demur.tasks.contest import evaluate_score
from demur.tasks.estimate import Estimate, average_splits, proportion

_Columns = Mapping[str, np.ndarray]
_Scored = Mapping[str, Mapping[str, _Columns]]
"""Columns by method and set."""

_FIGURE_OF_TASK = {"detection": "auroc", "misclassification": "auroc", "selective": "auc"}
_FIGURE_TITLES = {"detection": "AUROC", "misclassification": "AUROC", "selective": "AUC"}


@dataclass(frozen=True)
class TableTask:
    """One section of a table.

    Attributes
    ----------
    name
        Title of the section.
    kind
        "detection", "misclassification" or "selective".
    known
        Rows of `id` that take part, an array for each split.
    positive
        Rows of the set to be detected; None for the other tasks.
    which
        The set to be detected; `id` if it is drawn from `id`.
    """

    name: str
    kind: str
    known: list[np.ndarray]
    which: str = "id"
    positive: np.ndarray | None = None


def list_tasks(
    config: TablesConfig, sizes: Mapping[str, int], masks: Mapping[str, np.ndarray]
) -> dict[str, list[TableTask]]:
    """Return the tasks of the two tables.

    Parameters
    ----------
    config
        The settings.
    sizes
        How many inputs each scored set has.
    masks
        For each set that is drawn from `id`, which inputs of `id` qualify.
    """
    number, rng = config.splits.get("number", 3), np.random.default_rng([config.seed, 0x5B117])
    order = rng.permutation(sizes["id"])

    def split(rows: np.ndarray, wanted: int | None) -> list[np.ndarray]:
        each = len(rows) // number if wanted is None else min(wanted, len(rows) // number)
        # Smaller tasks use a part of the images of larger ones, so that few images are used in all.
        whole = [rows[k * (len(rows) // number) :][:each] for k in range(number)]
        return [np.sort(part) for part in whole]

    first = []
    for name, given in config.sets.items():
        if name in ("id", "train"):
            continue
        called = given.get("called", shown_name(name))
        if "stand_in_for" in given:
            called += f" (a stand-in for {given['stand_in_for']})"
        wanted = config.splits.get("adversarial" if name.startswith("adversarial") else "detection")
        if "of" in given:
            # Half of the images are in-distribution, whether a network is right about them or not; those of
            # the other half that qualify are to be detected. No image is both.
            half = sizes["id"] // 2
            positive = np.sort(order[half:])
            positive = positive[masks[name][positive]]
            first.append(TableTask(called, "detection", split(order[:half], wanted), "id", positive))
        else:
            positive = np.arange(sizes[name])
            first.append(TableTask(called, "detection", split(order, wanted), name, positive))
    known = split(order, config.splits.get("errors"))
    second = [TableTask("errors", "misclassification", known), TableTask("kept", "selective", known)]
    return {"table1": first, "table2": second}


def _get_values(task: TableTask, scores: Mapping[str, _Columns], name: str, rows: np.ndarray) -> Any:
    """Return a score of the inputs of a task, as ``demur.tasks.compare`` takes it."""
    known = scores["id"][name][rows]
    return known if task.positive is None else (known, scores[task.which][name][task.positive])


def _get_correct(scores: Mapping[str, _Columns], rows: np.ndarray) -> np.ndarray:
    """Return which inputs the average of the members predicts correctly."""
    return scores["id"]["prediction"][rows] == scores["id"]["label"][rows]


@dataclass(frozen=True)
class TableSection:
    """A section of a table: all splits together in a contest, and the mean over splits.

    Attributes
    ----------
    task
        The task.
    contest
        Figures, paired tests and standings on all inputs of the task.
    splits
        Mean and spread over splits, by method and score.
    """

    task: TableTask
    contest: Contest
    splits: dict[str, dict[str, Estimate]]


def evaluate_task(task: TableTask, scored: _Scored) -> TableSection:
    """Return the section of a table for one task."""
    rows, figure = np.concatenate(task.known), _FIGURE_OF_TASK[task.kind]
    scores = {
        method: {name: _get_values(task, by_set, name, rows) for name in PAPER}
        for method, by_set in scored.items()
    }
    correct = None
    if task.positive is None:
        correct = {method: _get_correct(by_set, rows) for method, by_set in scored.items()}
    found = contest(
        scores, task.kind, correct=correct, groups=kinds_of(PAPER), interval="asymptotic", resamples=1000
    )

    def average_score(by_set: Mapping[str, _Columns], name: str) -> Estimate:
        results = [
            evaluate_score(
                _get_values(task, by_set, name, part),
                task.kind,
                _get_correct(by_set, part) if task.positive is None else None,
                interval="asymptotic",
            )
            for part in task.known
        ]
        return average_splits([getattr(result, figure).value for result in results], 0.95)

    splits = {
        method: {name: average_score(by_set, name) for name in PAPER} for method, by_set in scored.items()
    }
    return TableSection(task, found, splits)


def build_table(sections: list[TableSection]) -> Table:
    """Return the paper's table: mean and spread over splits; best and ties by paired tests on all inputs."""
    rows: list[Row] = []
    columns: Any = []
    for each in sections:
        table = table_of_scores(each.contest, paper=True)
        columns = table.columns
        for row in table.rows:
            cells = [
                replace(cell, estimate=each.splits[row.name][column.name])
                for cell, column in zip(row.cells, columns, strict=True)
            ]
            rows.append(Row(f"{each.task.name}, {_FIGURE_TITLES[each.task.kind]}", row.name, tuple(cells)))
    return Table(columns, rows)


def format_csv(header: list[str], rows: list[list[Any]]) -> str:
    """Return rows as CSV, with the fewest digits that read back as the same numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([repr(float(each)) if isinstance(each, float) else each for each in row] for row in rows)
    return text.getvalue()


def format_figures(sections: list[TableSection]) -> str:
    """Return every figure with its interval on all inputs, and mean and spread over splits, as CSV."""
    rows = []
    for each in sections:
        for method, named in each.contest.results.items():
            for name, result in named.items():
                for figure, found in result.to_dict().items():
                    splits = each.splits[method][name] if figure == _FIGURE_OF_TASK[each.task.kind] else None
                    mean = ["", ""] if splits is None else [splits.value, splits.spread or 0.0]
                    ends = [found["value"], found["low"], found["high"]]
                    rows.append([each.task.name, method, name, figure, *ends, *mean])
    header = ["task", "method", "score", "figure", "value", "low", "high", "splits_mean", "splits_spread"]
    return format_csv(header, rows)


def format_comparisons(sections: list[TableSection]) -> str:
    """Return every paired difference with its interval and p-value, as CSV."""
    rows = []
    for each in sections:
        for (figure, method, a, b), found in each.contest.comparisons.items():
            ends = [found.difference.value, found.difference.low, found.difference.high]
            rows.append([each.task.name, method, figure, a, b, *ends, found.p_value, found.adjusted])
    header = [
        "task",
        "method",
        "figure",
        "score",
        "minus",
        "difference",
        "low",
        "high",
        "p_value",
        "adjusted",
    ]
    return format_csv(header, rows)


def format_cells(tasks: list[TableTask], scored: _Scored) -> str:
    """Return the figure of every part of every cell of measures, unless it is constant, as CSV."""
    rows = []
    for task in tasks:
        inputs = np.concatenate(task.known)
        for method, by_set in scored.items():
            for measure in (*MEASURES, *CELLS):
                for part in ("total", "aleatoric", "epistemic"):
                    found = _evaluate_cell(task, by_set, f"{measure}_{part}", inputs)
                    if found is not None:
                        rows.append([task.name, method, measure, part, found.value, found.low, found.high])
    return format_csv(["task", "method", "measure", "part", "value", "low", "high"], rows)


def _evaluate_cell(
    task: TableTask, by_set: Mapping[str, _Columns], name: str, rows: np.ndarray
) -> Estimate | None:
    """Return the figure of one score; None if all inputs have the same score."""
    values = _get_values(task, by_set, name, rows)
    pooled = np.concatenate(values) if isinstance(values, tuple) else values
    if np.all(pooled == pooled[0]):
        return None
    if task.kind == "detection":
        return detection(*values, interval="asymptotic").auroc
    correct = _get_correct(by_set, rows)
    if task.kind == "misclassification":
        return misclassification(values, correct, interval="asymptotic").auroc
    return selective(values, correct, interval="asymptotic").auc


def format_accuracy(scored: _Scored) -> str:
    """Return the accuracy of the average of each method on all of `id`, as CSV."""
    rows = []
    for method, by_set in scored.items():
        correct = by_set["id"]["prediction"] == by_set["id"]["label"]
        found = proportion(int(correct.sum()), len(correct), 0.95)
        rows.append([method, len(correct), found.value, found.low, found.high])
    return format_csv(["method", "inputs", "accuracy", "low", "high"], rows)


def format_people(entropy: np.ndarray, by_rule: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Return the rank correlation of each aleatoric part with the entropy of labels from people, as CSV."""
    rows, there = [], ~np.isnan(entropy)
    for method, rules in by_rule.items():
        for rule, aleatoric in rules.items():
            found = rank_correlation(aleatoric[there], entropy[there])
            rows.append([method, rule, int(there.sum()), found.value, found.low, found.high])
    return format_csv(["method", "rule", "inputs", "correlation", "low", "high"], rows)
