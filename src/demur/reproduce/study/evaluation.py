"""What the scores are good for: splits as in the paper, tables, paired tests, all cells, labels of people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demur.report.run_folder import shown_name
from demur.report.tables import PAPER, Row, Table, kinds_of, table_of_scores
from demur.reproduce.study.config import Config
from demur.reproduce.study.scoring import CELLS, MEASURES
from demur.tasks import Contest, contest, detection, misclassification, rank_correlation, selective
from demur.tasks.contest import evaluate_score
from demur.tasks.estimate import Estimate, average_splits, proportion

_Columns = Mapping[str, np.ndarray]
_Scored = Mapping[str, Mapping[str, _Columns]]
"""Columns by method and set."""

_FIGURE = {"detection": "auroc", "misclassification": "auroc", "selective": "auc"}
_NAMES = {"detection": "AUROC", "misclassification": "AUROC", "selective": "AUC"}


@dataclass(frozen=True)
class Task:
    """One section of a table.

    Attributes
    ----------
    name
        What the section is called.
    kind
        "detection", "misclassification" or "selective".
    known
        Rows of `id` that take part, one array for each split.
    positive
        Rows of the set that is to be told from them; None for the other tasks.
    which
        That set; one that is drawn from `id` has the rows of `id`.
    """

    name: str
    kind: str
    known: list[np.ndarray]
    which: str = "id"
    positive: np.ndarray | None = None


def tasks(config: Config, sizes: Mapping[str, int], masks: Mapping[str, np.ndarray]) -> dict[str, list[Task]]:
    """Return the sections of the two tables.

    Parameters
    ----------
    config
        The settings.
    sizes
        How many inputs each scored set has.
    masks
        For each set that is drawn from `id`, which of its inputs qualify.
    """
    number, rng = config.splits.get("number", 3), np.random.default_rng([config.seed, 0x5B117])
    order = rng.permutation(sizes["id"])

    def parts(rows: np.ndarray, wanted: int | None) -> list[np.ndarray]:
        each = len(rows) // number if wanted is None else min(wanted, len(rows) // number)
        # Tasks with fewer images have some of those of the others, as few as needed are drawn in all.
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
            # Half of the images are the known ones, whether a network is right about them or not; of the
            # other half those that qualify are to be found. No image is both.
            half = sizes["id"] // 2
            positive = np.sort(order[half:])
            positive = positive[masks[name][positive]]
            first.append(Task(called, "detection", parts(order[:half], wanted), "id", positive))
        else:
            positive = np.arange(sizes[name])
            first.append(Task(called, "detection", parts(order, wanted), name, positive))
    known = parts(order, config.splits.get("errors"))
    second = [Task("errors", "misclassification", known), Task("kept", "selective", known)]
    return {"table1": first, "table2": second}


def _values_of(task: Task, scores: Mapping[str, _Columns], name: str, rows: np.ndarray) -> Any:
    """Return a score of a task's inputs, as ``demur.tasks.compare`` takes it."""
    known = scores["id"][name][rows]
    return known if task.positive is None else (known, scores[task.which][name][task.positive])


def _correct_of(scores: Mapping[str, _Columns], rows: np.ndarray) -> np.ndarray:
    """Return where the average predicts the label."""
    return scores["id"]["prediction"][rows] == scores["id"]["label"][rows]


@dataclass(frozen=True)
class Section:
    """A section of a table: all splits together in a contest, and the mean over splits.

    Attributes
    ----------
    task
        What it is about.
    contest
        Figures, paired tests and standings on all its inputs.
    splits
        Mean and spread over splits, by method and score.
    """

    task: Task
    contest: Contest
    splits: dict[str, dict[str, Estimate]]


def section(task: Task, scored: _Scored) -> Section:
    """Return a section of a table."""
    rows, figure = np.concatenate(task.known), _FIGURE[task.kind]
    scores = {
        method: {name: _values_of(task, by_set, name, rows) for name in PAPER}
        for method, by_set in scored.items()
    }
    correct = None
    if task.positive is None:
        correct = {method: _correct_of(by_set, rows) for method, by_set in scored.items()}
    found = contest(
        scores, task.kind, correct=correct, groups=kinds_of(PAPER), interval="asymptotic", resamples=1000
    )

    def over(by_set: Mapping[str, _Columns], name: str) -> Estimate:
        results = [
            evaluate_score(
                _values_of(task, by_set, name, part),
                task.kind,
                _correct_of(by_set, part) if task.positive is None else None,
                interval="asymptotic",
            )
            for part in task.known
        ]
        return average_splits([getattr(result, figure).value for result in results], 0.95)

    splits = {method: {name: over(by_set, name) for name in PAPER} for method, by_set in scored.items()}
    return Section(task, found, splits)


def table_of(sections: list[Section]) -> Table:
    """Return the paper's table: mean and spread over splits; best and ties by paired tests on all inputs."""
    rows: list[Row] = []
    columns: Any = []
    for each in sections:
        table = table_of_scores(each.contest)
        columns = table.columns
        for row in table.rows:
            cells = [
                replace(cell, estimate=each.splits[row.name][column.name])
                for cell, column in zip(row.cells, columns, strict=True)
            ]
            rows.append(Row(f"{each.task.name}, {_NAMES[each.task.kind]}", row.name, tuple(cells)))
    return Table(columns, rows)


def _written(header: list[str], rows: list[list[Any]]) -> str:
    """Return lines of values with commas between them; numbers as short as they read back."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([repr(float(each)) if isinstance(each, float) else each for each in row] for row in rows)
    return text.getvalue()


def figures_csv(sections: list[Section]) -> str:
    """Return every figure with its interval on all inputs, and mean and spread over splits."""
    rows = []
    for each in sections:
        for method, named in each.contest.results.items():
            for name, result in named.items():
                for figure, found in result.to_dict().items():
                    splits = each.splits[method][name] if figure == _FIGURE[each.task.kind] else None
                    mean = ["", ""] if splits is None else [splits.value, splits.spread or 0.0]
                    ends = [found["value"], found["low"], found["high"]]
                    rows.append([each.task.name, method, name, figure, *ends, *mean])
    header = ["task", "method", "score", "figure", "value", "low", "high", "splits_mean", "splits_spread"]
    return _written(header, rows)


def comparisons_csv(sections: list[Section]) -> str:
    """Return every paired difference with its interval and p-value."""
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
    return _written(header, rows)


def cells_csv(tasks: list[Task], scored: _Scored) -> str:
    """Return the figure of every part of every cell of the table of measures, where it varies at all."""
    rows = []
    for task in tasks:
        inputs = np.concatenate(task.known)
        for method, by_set in scored.items():
            for measure in (*MEASURES, *CELLS):
                for part in ("total", "aleatoric", "epistemic"):
                    found = _cell_figure(task, by_set, f"{measure}_{part}", inputs)
                    if found is not None:
                        rows.append([task.name, method, measure, part, found.value, found.low, found.high])
    return _written(["task", "method", "measure", "part", "value", "low", "high"], rows)


def _cell_figure(task: Task, by_set: Mapping[str, _Columns], name: str, rows: np.ndarray) -> Estimate | None:
    """Return the figure of one score; None where all inputs have the same."""
    values = _values_of(task, by_set, name, rows)
    pooled = np.concatenate(values) if isinstance(values, tuple) else values
    if np.all(pooled == pooled[0]):
        return None
    if task.kind == "detection":
        return detection(*values, interval="asymptotic").auroc
    correct = _correct_of(by_set, rows)
    if task.kind == "misclassification":
        return misclassification(values, correct, interval="asymptotic").auroc
    return selective(values, correct, interval="asymptotic").auc


def accuracy_csv(scored: _Scored) -> str:
    """Return the accuracy of each method's average on all of `id`."""
    rows = []
    for method, by_set in scored.items():
        correct = by_set["id"]["prediction"] == by_set["id"]["label"]
        found = proportion(int(correct.sum()), len(correct), 0.95)
        rows.append([method, len(correct), found.value, found.low, found.high])
    return _written(["method", "inputs", "accuracy", "low", "high"], rows)


def people_csv(entropy: np.ndarray, by_rule: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Return the rank correlation of each aleatoric part with the entropy of people's labels."""
    rows, there = [], ~np.isnan(entropy)
    for method, rules in by_rule.items():
        for rule, aleatoric in rules.items():
            found = rank_correlation(aleatoric[there], entropy[there])
            rows.append([method, rule, int(there.sum()), found.value, found.low, found.high])
    return _written(["method", "rule", "inputs", "correlation", "low", "high"], rows)
