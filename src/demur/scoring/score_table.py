"""The columns of scores: which there are, how moments become columns, and their summary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.measures import PARTS, Measure, needs_groups, resolve
from demur.moments import Moments
from demur.predictions import arrays
from demur.scoring.outcomes import choose_outcomes
from demur.stores import json_number

DEFAULT_MEASURES = ("pairwise", "average", "reverse")

_MOST_GROUPS = 64
"""Groups for standard errors, at most: a thousand members must not need a thousand states."""


@dataclass(frozen=True)
class ScoreTable:
    """Scores of each input, as columns.

    Attributes
    ----------
    columns
        ``input``, ``prediction`` (the likeliest class of the average prediction) and ``{measure}_{part}`` for
        each measure; with standard errors also ``{measure}_{part}_stderr``. (inputs,) each.
    measures
        Names of the measures, in the requested order.
    members, classes
        How many members and classes the predictions had.
    outcome
        What was predicted: "classes", "binary", "multilabel", "points" or "gaussian".
    batch
        How many inputs there are, then how many pixels or tasks each has; empty where a row is an input.
    """

    columns: dict[str, np.ndarray]
    measures: tuple[str, ...]
    members: int
    classes: int
    outcome: str = "classes"
    batch: tuple[int, ...] = ()

    @property
    def inputs(self) -> int:
        """How many inputs were scored; each pixel and each task counts."""
        return len(self.columns["input"])

    @property
    def failed(self) -> np.ndarray:
        """Which rows have no scores, since no member made a prediction."""
        status = self.columns.get("status")
        return np.zeros(self.inputs, bool) if status is None else status != "ok"

    @property
    def sizes(self) -> dict[str, int]:
        """How many there are of what."""
        batch = self.batch or (self.inputs,)
        return count_sizes(batch, self.outcome, self.members, self.classes, tasks="task" in self.columns)

    def count_failed(self) -> int:
        """Count the rows that have no scores."""
        return int(self.failed.sum())

    def pick_top(self, count: int) -> ScoreTable:
        """Return a table that has at least the most uncertain rows: this one."""
        return self

    @property
    def ranking(self) -> str:
        """The column that says which rows are the most uncertain: of the first measure.

        The epistemic part, or the total of a single member, whose epistemic part is 0.
        """
        return f"{self.measures[0]}_{'total' if self.members == 1 else 'epistemic'}"

    def top(self, count: int) -> np.ndarray:
        """Find the most uncertain rows, by the column `ranking`; ties keep their order."""
        order = np.argsort(-self.columns[self.ranking], kind="stable")
        return order[~self.failed[order]][:count]

    def count_infinite(self) -> int:
        """Count the inputs that have an infinite epistemic part under any measure."""
        parts = [self.columns[f"{measure}_epistemic"] for measure in self.measures]
        return int(np.any([np.isposinf(part) for part in parts], axis=0).sum())

    def summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Compute mean, median and maximum over inputs, and count infinite values, by measure and part.

        The mean is infinite where any input is. Inputs without a prediction do not count.
        """
        return summarise(self.columns.__getitem__, self.measures, ~self.failed)


def summarise(
    read_column: Callable[[str], np.ndarray], measures: Iterable[str], scored: np.ndarray
) -> dict[str, dict[str, dict[str, Any]]]:
    """Compute the summary of columns, which are read one by one, over the rows that have scores."""
    return {
        measure: {
            part: {
                "mean": json_number(values.mean(dtype=np.float64)),
                "median": json_number(np.median(values)),
                "max": json_number(values.max()),
                "infinite": int(np.isinf(values).sum()),
            }
            for part in PARTS
            for values in [read_column(f"{measure}_{part}")[scored]]
        }
        for measure in measures
    }


def count_sizes(
    batch: tuple[int, ...], outcome: str, members: int, classes: int, *, tasks: bool
) -> dict[str, int]:
    """Return how many there are of what, for people; `tasks`: whether the second axis is theirs."""
    inputs, *others = batch
    found = {"input": inputs}
    if tasks:
        found["task"] = others[0]
    elif others:
        found |= {"prediction": math.prod(batch)}
    found["member"] = members
    if outcome in ("classes", "multilabel"):
        found["class" if outcome == "classes" else "label"] = classes
    return found


def compute_columns(
    moments: Moments,
    measures: Mapping[str, str | Measure],
    *,
    unbiased: bool,
    stderr: bool,
    base: float | None,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and columns: the average's prediction, then the parts of each measure."""
    yield "prediction", choose_outcomes(moments.rule, moments.mean)
    for name, measure in measures.items():
        parts = moments.decompose(measure=measure, unbiased=unbiased, stderr=stderr, base=base)
        for part in PARTS:
            yield f"{name}_{part}", arrays.to_numpy(getattr(parts, part))
        if stderr:
            for part in PARTS:
                yield f"{name}_{part}_stderr", arrays.to_numpy(getattr(parts.stderr, part))


def count_groups(
    measures: Iterable[str | Measure], members: int, *, unbiased: bool, stderr: bool
) -> int | None:
    """Return how many groups of members the moments keep apart; None where nothing requested needs groups."""
    if stderr or (unbiased and any(needs_groups(resolve(measure)) for measure in measures)):
        return min(members, _MOST_GROUPS)
    return None
