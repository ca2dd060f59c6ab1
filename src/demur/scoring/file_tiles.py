"""Predictions in files, tile by tile: inputs come in tiles, members in chunks.

Each tile has its own `demur.Moments`, so that memory depends neither on the inputs nor on the members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from demur.decompose import decompose
from demur.measures import PARTS
from demur.moments import Moments
from demur.predictions import arrays
from demur.scoring.file_predictions import Kind, fill_missing, find_complaint, make_prediction
from demur.scoring.score_table import compute_columns
from demur.stores import Chunk, Outcome, Predictions, StoreError, describe_row, name_rows
from demur.stores.column_names import list_names

TILE_BYTES = 64 << 20
"""Memory for one tile: half of it for the predictions of a chunk, half for the moments."""

_STATE_BYTES, _WORK_BYTES = 80, 160
"""Memory of the moments for each input and class: per group, and for intermediate results."""

_MEMBERS_TOGETHER = 16
"""Members that a chunk holds at least, where there are as many: each update has a fixed cost."""


class Tiles:
    """Reads predictions tile by tile, and notes the inputs that have none.

    `failed` says which, and `reasons` why, where it is not NaN throughout.
    """

    def __init__(
        self,
        predictions: Predictions,
        kind: Kind | None,
        *,
        rule: str = "log",
        weights: np.ndarray | None = None,
        groups: int | None = None,
        rounding: float | str | None = None,
        budget: int = TILE_BYTES,
    ) -> None:
        self.predictions = predictions
        self.kind: Kind | None = kind
        self.outcome: Outcome = predictions.outcome
        self.moments: dict[str, Any] = {"rule": rule, "groups": groups}
        self.weights, self.rounding = weights, rounding
        # The average of numbers or of sets of labels does not follow from sums over members, and neither
        # does the least value that fits rounded numbers; a yes of probability 1 may always be rounded.
        self.whole = (
            self.outcome in ("multilabel", "points", "gaussian")
            or rounding is not None
            or (self.outcome == "binary" and kind == "probs")
        )
        self.tile, self.members = plan_tiles(
            predictions, groups=groups or 1, budget=budget, members_together=self.whole
        )
        self.failed = np.zeros(predictions.inputs, bool)
        self.reasons: dict[int, str] = {}

    def split(self, progress: Callable[[int], object] | None = None) -> Iterator[slice]:
        """Yield the inputs of each tile."""
        for start in range(0, self.predictions.inputs, self.tile):
            inputs = slice(start, min(start + self.tile, self.predictions.inputs))
            yield inputs
            if progress is not None:
                progress(inputs.stop)

    def iterate(
        self, measures: dict[str, str], figures: dict[str, Any], progress: Callable[[int], object] | None
    ) -> Iterator[tuple[slice, Iterator[tuple[str, np.ndarray]]]]:
        """Yield the inputs of each tile, with their columns."""
        for inputs in self.split(progress):
            yield inputs, self.score(inputs, measures, figures)

    def score(
        self, inputs: slice, measures: dict[str, str], figures: dict[str, Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield names and columns of the scores of one tile."""
        if self.whole:
            return self._decompose_whole(inputs, measures, figures)
        return compute_columns(self.sum_up(inputs), measures, **figures)

    def sum_up(self, inputs: slice) -> Moments:
        """Return the moments of all members for some inputs."""
        return self._retry(inputs, self._add_members)

    def _add_members(self, inputs: slice) -> Moments:
        moments = Moments(**self.moments)
        for chunk in self._read(inputs, self.members):
            prediction = make_prediction(self.outcome, self.kind, chunk.values, chunk.precision)
            moments.update(prediction, weights=self._choose_weights(chunk.members, inputs))
        return moments

    def _decompose_whole(
        self, inputs: slice, measures: dict[str, str], figures: dict[str, Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield names and columns as `compute_columns` does, from all members at once."""

        def one(inputs: slice) -> dict[str, np.ndarray]:
            chunks = list(self._read(inputs, self.predictions.members))
            values = np.concatenate([chunk.values for chunk in chunks])
            exact = min((chunk.precision for chunk in chunks), key=lambda name: name[-2:] != "16")
            prediction = make_prediction(self.outcome, self.kind, values, exact, self.rounding)
            weights = self._choose_weights(range(self.predictions.members), inputs)
            found = {"prediction": np.empty(0)}
            options = figures | self.moments
            if self.rounding is not None:
                options["rounding"] = self.rounding
            for name, measure in measures.items():
                parts = decompose(prediction, measure=measure, weights=weights, **options)
                every = {"": parts, "_stderr": parts.stderr} if figures["stderr"] else {"": parts}
                for ending, each in every.items():
                    found |= {f"{name}_{part}{ending}": np.asarray(getattr(each, part)) for part in PARTS}
            found["prediction"] = _average(self.outcome, self.kind, values, weights)
            return found

        yield from self._retry(inputs, one).items()

    def _retry(self, inputs: slice, work: Callable[[slice], Any]) -> Any:
        """Do some work on a tile; where it fails, find out why, and do it without the inputs that fail."""
        try:
            return work(inputs)
        except ValueError:
            self.failed[inputs] = self._find_failed(inputs)
        try:
            return work(inputs)
        except ValueError as error:
            located = self._locate(inputs)
            if located is None:
                raise
            raise located from error

    def _read(self, inputs: slice, members: int) -> Iterator[Chunk]:
        """Yield predictions, with some valid ones for inputs that are known to fail."""
        failed = self.failed[inputs]
        for chunk in self.predictions.chunks(inputs, members):
            if failed.any():
                values = fill_missing(self.outcome, self.kind, chunk.values, failed)
                chunk = replace(chunk, values=values)
            yield chunk

    def _find_failed(self, inputs: slice) -> np.ndarray:
        """Return which inputs have no prediction by any member; raise where only some members have none.

        Labels are predicted together, so a member that has NaN for one of them has no prediction.
        """
        missing = np.zeros((self.predictions.members, inputs.stop - inputs.start), bool)
        used = np.ones_like(missing)
        lacking = np.zeros((inputs.stop - inputs.start, self.predictions.classes), bool)
        for chunk in self.predictions.chunks(inputs, self.members):
            here = slice(chunk.members.start, chunk.members.stop)
            absent = np.isnan(chunk.values)
            missing[here] = absent.any(axis=-1) if self.outcome == "multilabel" else absent.all(axis=-1)
            weights = self._choose_weights(chunk.members, inputs)
            if weights is not None:
                used[here] = (weights if weights.ndim == 2 else weights[:, None]) > 0
            lacking |= (absent & used[here][..., None]).any(axis=0)
        failed = np.all(missing | ~used, axis=0)
        for row in np.flatnonzero(failed & ~lacking.all(axis=1)):
            names = ", ".join(self.predictions.label_names[label] for label in np.flatnonzero(lacking[row]))
            self.reasons[inputs.start + int(row)] = f"no prediction: NaN in all members for {names}"
        partly = (missing & used).any(axis=0) & ~failed
        if partly.any():
            row = int(partly.argmax())
            member = int((missing & used)[:, row].argmax())
            counts = (missing & used)[:, row].sum(), used[:, row].sum()
            raise StoreError(
                f"{self._describe_place(member, inputs.start + row)}: expected a prediction by every member, "
                f"got nan by {counts[0]} of {counts[1]}: leave the input out of all files, or give these "
                "members weight 0 there, by a .npy of shape (members, inputs) for --weights"
            )
        return np.asarray(failed)

    def _locate(self, inputs: slice) -> StoreError | None:
        """Return an error that names the file, member and input; None where no value is at fault."""
        for chunk in self._read(inputs, self.members):
            weights = self._choose_weights(chunk.members, inputs)
            for index, member in enumerate(chunk.members):
                rows = chunk.values[index]
                ignored = np.zeros(len(rows), bool) if weights is None else weights[index] == 0
                ignored = np.broadcast_to(ignored, len(rows))

                row = self._find_bad_row(rows, chunk.precision, ignored)
                if row is not None:
                    what = find_complaint(
                        self.outcome, self.kind, rows[row], chunk.precision, rounding=self.rounding
                    )
                    what = f"{what}{self._name_columns(rows[row])}"
                    return StoreError(f"{self._describe_place(member, inputs.start + row)}: {what}")
        return None

    def _name_columns(self, row: np.ndarray) -> str:
        """Return which columns of a table were taken for predictions, where one may be something else."""
        names = self.predictions.names
        if names is None or len(names) < 2 or self.kind in (None, "logits") or np.isnan(row).any():
            return ""
        things = {"binary": "tasks", "multilabel": "labels"}.get(self.outcome, "classes")
        return (
            f" The columns {list_names(names)} were taken for {things}. If one is something else, pass "
            "--keep NAME for it."
        )

    def _find_bad_row(self, rows: np.ndarray, precision: str, ignored: np.ndarray) -> int | None:
        """Return the first input of a member, (inputs, classes), that is not a prediction; None: all are."""

        def fails(count: int) -> bool:
            some = rows[:count], precision, ignored[:count]
            return find_complaint(self.outcome, self.kind, *some, rounding=self.rounding) is not None

        low, high = 0, len(rows)  # the first `high` rows fail, the first `low` do not
        if not fails(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(middle) else (middle, high)
        return low

    def _describe_place(self, member: int, row: int) -> str:
        """Return the file, member and input that a message is about."""
        source = self.predictions.source_of(member)
        rows = name_rows(self.predictions.batch, self.predictions.tasks, {}, first=self.predictions.first)
        at = describe_row(rows, row)
        return f"{source.label}: {'' if source.axis is None else f'member {member - source.first}, '}{at}"

    def _choose_weights(self, members: range, inputs: slice) -> np.ndarray | None:
        """Return the weights of some members and inputs."""
        if self.weights is None:
            return None
        chosen = self.weights[members.start : members.stop]
        return chosen if self.weights.ndim == 1 else chosen[:, inputs]


def _average(
    outcome: Outcome, kind: Kind | None, values: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    """Return the class that the average predicts, the probability of each label, or the mean number."""
    shares = np.ones(values.shape[:2]) if weights is None else np.asarray(weights, np.float64)
    shares = np.broadcast_to(shares if shares.ndim == 2 else shares[:, None], values.shape[:2])[..., None]
    known = np.where(shares > 0, values, 0.5 if kind == "probs" else 0.0).astype(np.float64)
    if outcome in ("points", "gaussian"):
        return np.average(known[..., 0], axis=0, weights=shares[..., 0])
    if kind != "probs":
        prediction = make_prediction(outcome, kind, known, "float64")
        found = arrays.to_numpy(Moments().update(prediction, weights=weights).mean)
    else:  # also of rounded numbers, which do not quite sum to 1
        whole = known.sum(axis=-1, keepdims=True) if outcome == "classes" else 1.0
        found = np.sum(shares * known / whole, axis=0) / shares.sum(axis=0)
    if outcome == "multilabel":
        return found
    return (found[..., 0] > 0.5).astype(np.int64) if found.shape[-1] == 1 else np.argmax(found, axis=-1)


def plan_tiles(
    predictions: Predictions, *, groups: int, budget: int, members_together: bool = False
) -> tuple[int, int]:
    """Choose how many inputs a tile has, and how many members are read at a time.

    Parameters
    ----------
    predictions
        The open files.
    groups
        Groups of members that the moments keep apart.
    budget
        Memory for one tile, in bytes.
    members_together
        Whether all members are needed at once.
    """
    every = predictions.members_together or members_together
    together = min(predictions.members if every else _MEMBERS_TOGETHER, predictions.members)
    # bfloat16 is read as float32, integers as float64.
    row = predictions.classes * max(4, predictions.itemsize)
    tile = min(
        budget // 2 // (row * together),
        budget // 2 // (predictions.classes * (_STATE_BYTES * groups + _WORK_BYTES)),
        predictions.inputs,
    )
    tile = max(1, tile)
    return tile, max(1, min(budget // 2 // (row * tile), predictions.members))
