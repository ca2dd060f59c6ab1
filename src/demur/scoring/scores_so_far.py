"""The scores of the batches done so far, as a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from demur.scoring.batches import InputBatch
from demur.scoring.score_table import ScoreTable
from demur.scoring.scores import Scores

_SIDE_COLUMNS = ("ids", "labels", "deployed")


class ScoresSoFar:
    """The scores of the batches done so far.

    Parameters
    ----------
    arrays
        What ``to_arrays()`` returned in the interrupted run; empty: nothing is done yet.
    """

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.members = int(arrays.get("members", 0))
        self.classes = int(arrays.get("classes", 0))
        self.marks: list[int] = arrays["marks"].tolist() if arrays else []
        self.inputs = int(arrays.get("inputs", 0))
        self.outcome = str(arrays.get("outcome", "classes"))
        self.columns = {n[7:]: [values] for n, values in arrays.items() if n.startswith("column ")}
        self.sides = {name: [arrays[name]] for name in _SIDE_COLUMNS if name in arrays}

    def add(
        self,
        batch: InputBatch,
        *,
        columns: dict[str, np.ndarray],
        deployed: np.ndarray | None,
        members: int = 0,
        classes: int = 0,
    ) -> None:
        """Add the columns of one batch."""
        given = {"ids": batch.ids, "labels": batch.labels, "deployed": deployed}
        given = {name: values for name, values in given.items() if values is not None}
        self._check_alike(members, classes, given)
        for name, values in given.items():
            self.sides.setdefault(name, []).append(values)
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)
        self.members, self.classes = members, classes
        self.marks.append(batch.mark)
        self.inputs += batch.size

    def extend(self, other: ScoresSoFar) -> None:
        """Add the batches that come next, scored elsewhere."""
        self._check_alike(other.members, other.classes, other.sides)
        self.outcome = other.outcome
        for name, parts in other.columns.items():
            self.columns.setdefault(name, []).extend(parts)
        for name, parts in other.sides.items():
            self.sides.setdefault(name, []).extend(parts)
        self.members, self.classes = other.members, other.classes
        self.marks += other.marks
        self.inputs += other.inputs

    def _check_alike(self, members: int, classes: int, sides: Collection[str]) -> None:
        """Raise unless what comes next has the members, classes, labels and ids of what came before."""
        if self.marks and (members, classes) != (self.members, self.classes):
            raise ValueError(
                f"Expected {self.members} members and {self.classes} classes, as in the batches before. "
                f"Got {members} and {classes} at input {self.inputs}."
            )
        for name in _SIDE_COLUMNS:
            if self.marks and (name in self.sides) != (name in sides):
                raise ValueError(f"{name} must be in every batch or in none. Got both.")

    def check(self, index: int, batch: InputBatch) -> None:
        """Raise unless a batch is the one that was scored before the interruption."""
        if self.marks[index] != batch.mark:
            raise ValueError(
                "checkpoint: expected a loader that brings the same batches as before. Got others at input "
                f"{batch.position}. Switch off shuffling and random augmentation, or remove the checkpoint."
            )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays, for a checkpoint."""
        names = ("members", "classes", "inputs", "marks", "outcome")
        numbers = {name: np.array(getattr(self, name)) for name in names}
        columns = {f"column {name}": np.concatenate(parts) for name, parts in self.columns.items()}
        return numbers | columns | {name: np.concatenate(parts) for name, parts in self.sides.items()}

    def finish(self, measures: Sequence[str], *, rule: str, base: float | None, unbiased: bool) -> Scores:
        """Return the scores of all batches, with what was asked for."""
        columns = {"input": np.arange(self.inputs)}
        columns |= {name: np.concatenate(parts) for name, parts in self.columns.items()}
        sides = {n: np.concatenate(self.sides[n]) if n in self.sides else None for n in _SIDE_COLUMNS}
        table = ScoreTable(columns, tuple(measures), self.members, self.classes)
        rule = "energy" if self.outcome == "points" else rule
        return Scores(table, **sides, rule=rule, base=base, unbiased=unbiased, outcome=self.outcome)
