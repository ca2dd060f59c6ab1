"""Scores predictions in files, in memory that depends neither on the inputs nor on the members.

Inputs come in tiles, members in chunks; each tile has its own `demur.Moments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from demur.core.rounding import hold_warnings
from demur.decompose import decompose
from demur.measures import canonical_name
from demur.moments import Moments
from demur.predictions import arrays
from demur.predictions.members import check_weight_values, scale_moderately
from demur.scoring.file_predictions import Kind, fill_missing, find_complaint, make_prediction
from demur.scoring.score_table import DEFAULT_MEASURES, PARTS, ScoreTable, compute_columns, count_groups
from demur.stores import Chunk, Outcome, Predictions, StoreError, describe_row, name_rows

_TILE_BYTES = 64 << 20
"""Memory for one tile: half of it for the predictions of a chunk, half for the moments."""

_STATE_BYTES, _WORK_BYTES = 80, 160
"""Memory of the moments for each input and class: per group, and for intermediate results."""

_MEMBERS_TOGETHER = 16
"""Members that a chunk holds at least, where there are as many: each update has a fixed cost."""

OK, FAILED = "ok", "no prediction: NaN in all members"
"""What the column status says of an input."""


def score_predictions(
    predictions: Predictions,
    kind: Kind | None,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    rule: str = "log",
    base: float | None = None,
    weights: np.ndarray | None = None,
    weights_label: str = "weights",
    unbiased: bool = False,
    stderr: bool = False,
    rounding: float | str | None = None,
    budget: int = _TILE_BYTES,
    progress: Callable[[int], object] | None = None,
) -> ScoreTable:
    """Score each input of predictions in files; no warning of what rounding may have done.

    Parameters
    ----------
    predictions
        The open files, as `open_predictions` returns them.
    kind
        What the numbers are: "logits", "probs" or "log_probs"; None for numbers that are predicted.
    measures, rule, base, unbiased, stderr, rounding
        As in `demur.decompose`. Standard errors and the unbiased average leave out one member at a time;
        with more than 64 members, one of 64 groups. With a rounding, all members of a tile are in memory.
    weights
        (members,) or (members, inputs).
    weights_label
        The name of the weights in error messages.
    budget
        Memory for one tile, in bytes.
    progress
        Called with the number of inputs done, after each tile.

    Returns
    -------
    ScoreTable
        Inputs for which all members have NaN stay in it, without scores: the column `status` says so.

    Raises
    ------
    ValueError
        The measures cannot be computed from these predictions, weights or options.
    """
    named = {canonical_name(each): each for each in measures}
    if (stderr or unbiased) and predictions.members < 2:
        raise StoreError(
            f"{predictions.sources[0].label}: expected at least 2 members for a standard error or "
            "an unbiased value, got 1"
        )
    if weights is not None:
        try:
            check_weight_values(weights, may_be_zero=False)
        except ValueError as error:
            raise StoreError(f"{weights_label}: {error}") from error
        weights = scale_moderately(weights)
        if weights.ndim == 2:  # each pixel or task has the weights of its input
            weights = np.repeat(weights, predictions.inputs // predictions.batch[0], axis=1)
    groups = count_groups(measures, predictions.members, unbiased=unbiased, stderr=stderr)
    if rounding is not None and kind is None:
        raise ValueError("rounding goes with probabilities. Got predicted numbers. Leave rounding out.")
    tiles = _Tiles(
        predictions, kind, rule=rule, weights=weights, groups=groups, rounding=rounding, budget=budget
    )
    figures: dict[str, Any] = {"unbiased": unbiased, "stderr": stderr, "base": base}
    columns: dict[str, np.ndarray] = {}
    with hold_warnings():
        for inputs, found in tiles.iterate(named, figures, progress):
            for name, values in found:
                if name not in columns:
                    columns[name] = np.empty((predictions.inputs, *values.shape[1:]), values.dtype)
                columns[name][inputs] = values
    return _make_table(predictions, tiles, columns, tuple(named))


def average_predictions(
    predictions: Predictions, kind: Kind, *, progress: Callable[[int], object] | None = None
) -> np.ndarray:
    """Return the average of the members' probabilities, (inputs, classes)."""
    found = np.empty((predictions.inputs, predictions.classes))
    tiles = _Tiles(predictions, kind)
    for inputs in tiles.split(progress):
        found[inputs] = arrays.to_numpy(tiles.sum_up(inputs).mean)
    if tiles.failed.any():
        raise StoreError(
            f"{predictions.sources[0].label}: expected a prediction for each input, got NaN in all members "
            f"for {tiles.failed.sum()} of {len(tiles.failed)}, first at input {tiles.failed.argmax()}: "
            "leave these inputs out, of the labels too"
        )
    return found


def _make_table(
    predictions: Predictions, tiles: _Tiles, columns: dict[str, np.ndarray], measures: tuple[str, ...]
) -> ScoreTable:
    """Return scores beside what names their rows."""
    failed, names = tiles.failed, predictions.names
    if failed.all():
        raise StoreError(
            f"{predictions.sources[0].label}: expected predictions, got NaN in all members for every input: "
            "find out where it arose"
        )
    if predictions.tasks is not None and "label" in predictions.columns:
        raise StoreError(
            f"{predictions.sources[0].label}: expected a label for each task, got one column label: give a "
            "table with a column for each task as --labels"
        )
    found = name_rows(predictions.batch, predictions.tasks, predictions.columns)
    clash = [name for name in columns if name in found]
    if clash:
        raise StoreError(
            f"{predictions.sources[0].label}: expected another name for the column {clash[0]}, which scores "
            "have: rename it"
        )
    prediction = columns.pop("prediction")
    if predictions.outcome == "multilabel":
        prediction = join_labels(prediction > 0.5, predictions.label_names)
    found["prediction"] = prediction
    if predictions.outcome == "classes" and names is not None and not _are_numbers(names):
        found["prediction_name"] = np.array(names)[prediction]
    for values in (found["prediction"], *columns.values()):
        values[failed] = _nothing(values)
    if "prediction_name" in found:
        found["prediction_name"][failed] = ""
    if failed.any():
        found["status"] = np.where(failed, FAILED, OK)
    table = ScoreTable(found | columns, measures, predictions.members, predictions.classes)
    return replace(table, outcome=predictions.outcome, batch=predictions.batch)


def _nothing(values: np.ndarray) -> Any:
    """Return what stands for no value in a column: NaN, the class -1, or no text."""
    return {"f": np.nan, "U": ""}.get(values.dtype.kind, -1)


def join_labels(present: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return sets of labels as text.

    Examples
    --------
    >>> join_labels(np.array([[True, True], [False, False]]), ["red", "round"]).tolist()
    ['red|round', 'none']
    """
    return np.array([
        "|".join(name for name, here in zip(names, row, strict=True) if here) or "none" for row in present
    ])  # fmt: skip


def _are_numbers(names: Sequence[str]) -> bool:
    """Tell whether names only count the classes, as 0, 1, ... or class_0, class_1, ..."""
    return any(
        all(name == f"{names[0][:-1]}{index + start}" for index, name in enumerate(names)) for start in (0, 1)
    )


class _Tiles:
    """Reads predictions tile by tile, and notes the inputs that have none."""

    def __init__(
        self,
        predictions: Predictions,
        kind: Kind | None,
        *,
        rule: str = "log",
        weights: np.ndarray | None = None,
        groups: int | None = None,
        rounding: float | str | None = None,
        budget: int = _TILE_BYTES,
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
            if self.whole:
                yield inputs, self._decompose_whole(inputs, measures, figures)
            else:
                yield inputs, compute_columns(self.sum_up(inputs), measures, **figures)

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
        """Return which inputs have no prediction by any member; raise where only some members have none."""
        missing = np.zeros((self.predictions.members, inputs.stop - inputs.start), bool)
        used = np.ones_like(missing)
        for chunk in self.predictions.chunks(inputs, self.members):
            here = slice(chunk.members.start, chunk.members.stop)
            missing[here] = np.isnan(chunk.values).all(axis=-1)
            weights = self._choose_weights(chunk.members, inputs)
            if weights is not None:
                used[here] = (weights if weights.ndim == 2 else weights[:, None]) > 0
        failed = np.all(missing | ~used, axis=0)
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
                    return StoreError(f"{self._describe_place(member, inputs.start + row)}: {what}")
        return None

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
        at = describe_row(name_rows(self.predictions.batch, self.predictions.tasks, {}), row)
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
