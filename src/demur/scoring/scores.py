"""`Scores`, the result of `demur.score`: read by measure, saved as `demur score` saves; and scores so far."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.core.parts_as_text import Reading
from demur.measures import Decomposition, canonical_name, name_unit
from demur.scoring.batches import InputBatch
from demur.scoring.score_table import PARTS, ScoreTable
from demur.stores import write_columns

_SIDE_COLUMNS = ("ids", "labels", "deployed")


@dataclass(frozen=True)
class Scores:
    """Scores of each input of a data set; ``scores["pairwise"].epistemic`` and so on.

    Attributes
    ----------
    table
        The columns, as files have them, with ``table.top(10)`` and ``table.summary()``.
    labels, ids
        (inputs,) each, from the loader; None where it had none.
    deployed
        (inputs,): the class that the deployed model predicts, for instance the network without dropout; None
        where the posterior has no such model.
    rule, base, unbiased
        As they were requested.
    """

    table: ScoreTable
    labels: np.ndarray | None
    ids: np.ndarray | None
    deployed: np.ndarray | None
    rule: str
    base: float | None
    unbiased: bool

    def __repr__(self) -> str:
        drawn = "" if "members" not in self.table.columns else f"{self.used.mean():.1f} of "
        return f"Scores({len(self)} inputs, {drawn}{self.members} members, {', '.join(self.table.measures)})"

    def __len__(self) -> int:
        return self.table.inputs

    def __getitem__(self, measure: str) -> Decomposition:
        measure = measure if measure in self.table.measures else canonical_name(measure)
        if measure not in self.table.measures:
            raise KeyError(f"Expected one of {', '.join(self.table.measures)}. Got {measure!r}.")

        def of(ending: str, **more: Any) -> Decomposition:
            columns = self.table.columns
            return Decomposition(**{part: columns[f"{measure}_{part}{ending}"] for part in PARTS}, **more)

        measured = f"{measure}_total_stderr" in self.table.columns
        unit = Reading(name_unit(self.rule, self.base))
        return of("", stderr=of("_stderr") if measured else None, _reading=unit)

    @property
    def members(self) -> int:
        """How many members there were; with a tolerance, the most that an input could have."""
        return self.table.members

    @property
    def used(self) -> np.ndarray:
        """How many members each input had, (inputs,): all of them, unless a tolerance stopped it."""
        every = np.full(len(self), self.members)
        return self.table.columns.get("members", every)

    @property
    def predictions(self) -> np.ndarray:
        """What the average of the members predicts, (inputs,): a class, or the mean of a predicted number."""
        return self.table.columns["prediction"]

    @property
    def correct(self) -> np.ndarray:
        """Whether the average of the members predicts the label, (inputs,)."""
        if self.labels is None:
            raise ValueError("correct takes labels. The loader had none: give batches of (inputs, labels).")
        return self.predictions == self.labels

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name: input, id, label, prediction, deployed and ``{measure}_{part}``."""
        rest = dict(self.table.columns)
        found = {"input": rest.pop("input"), "id": self.ids, "label": self.labels}
        prediction = rest.pop("prediction")
        if prediction.ndim == 1:
            found["prediction"] = prediction
        else:
            found |= {f"prediction_{d}": prediction[:, d] for d in range(prediction.shape[1])}
        found["deployed"] = self.deployed
        return {name: values for name, values in (found | rest).items() if values is not None}

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a file as ``demur score --out`` does: .csv, .parquet, .npz or .json, by the name's ending.

        An existing file is replaced only with ``force``, and an error otherwise.
        """
        facts = {
            "inputs": len(self),
            "members": self.members,
            "classes": self.table.classes,
            "rule": self.rule,
            "unit": name_unit(self.rule, self.base),
            "unbiased": self.unbiased,
            "summary": self.table.summary(),
        }
        write_columns(Path(path), self.columns, facts=facts, force=force)


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
        if self.marks and (members, classes) != (self.members, self.classes):
            raise ValueError(
                f"Expected {self.members} members and {self.classes} classes, as in the batches before. "
                f"Got {members} and {classes} at input {batch.position}."
            )
        given = {"ids": batch.ids, "labels": batch.labels, "deployed": deployed}
        for name, values in given.items():
            if self.marks and (values is None) != (name not in self.sides):
                raise ValueError(f"{name} must be in every batch or in none. Got both.")
            if values is not None:
                self.sides.setdefault(name, []).append(values)
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)
        self.members, self.classes = members, classes
        self.marks.append(batch.mark)
        self.inputs += batch.size

    def check(self, index: int, batch: InputBatch) -> None:
        """Raise unless a batch is the one that was scored before the interruption."""
        if self.marks[index] != batch.mark:
            raise ValueError(
                "checkpoint: expected a loader that brings the same batches as before. Got others at input "
                f"{batch.position}. Switch off shuffling and random augmentation, or remove the checkpoint."
            )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return everything as arrays, for a checkpoint."""
        numbers = {name: np.array(getattr(self, name)) for name in ("members", "classes", "inputs", "marks")}
        columns = {f"column {name}": np.concatenate(parts) for name, parts in self.columns.items()}
        return numbers | columns | {name: np.concatenate(parts) for name, parts in self.sides.items()}

    def finish(self, measures: Sequence[str], **asked: Any) -> Scores:
        """Return the scores of all batches."""
        columns = {"input": np.arange(self.inputs)}
        columns |= {name: np.concatenate(parts) for name, parts in self.columns.items()}
        sides = {n: np.concatenate(self.sides[n]) if n in self.sides else None for n in _SIDE_COLUMNS}
        return Scores(ScoreTable(columns, tuple(measures), self.members, self.classes), **sides, **asked)
