"""Scores predictions in files, in memory that depends neither on the inputs nor on the members.

Inputs come in tiles, members in chunks; each tile has its own `demur.Moments`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from demur.core.rounding import check_rounding, hold_warnings
from demur.core.rules import resolve_rule
from demur.decompose import decompose
from demur.measures import Decomposition, Measure, canonical_name
from demur.moments import Moments
from demur.predictions import Categorical, arrays
from demur.predictions.members import check_weight_values, scale_moderately
from demur.scoring.score_table import DEFAULT_MEASURES, ScoreTable, compute_columns, count_groups
from demur.stores import Chunk, Predictions, StoreError

Kind = Literal["logits", "probs", "log_probs"]

_TILE_BYTES = 64 << 20
"""Memory for one tile: half of it for the predictions of a chunk, half for the moments."""

_STATE_BYTES, _WORK_BYTES = 80, 160
"""Memory of the moments for each input and class: per group, and for intermediate results."""

_MEMBERS_TOGETHER = 16
"""Members that a chunk holds at least, where there are as many: each update has a fixed cost."""


def score_predictions(
    predictions: Predictions,
    kind: Kind,
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
        What the numbers are: "logits", "probs" or "log_probs".
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

    Raises
    ------
    ValueError
        The measures cannot be computed from these predictions, weights or options.
    """
    measures = tuple(dict.fromkeys(map(canonical_name, measures)))
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
    groups = count_groups(measures, predictions.members, unbiased=unbiased, stderr=stderr)
    columns: dict[str, np.ndarray] = {"input": np.arange(predictions.inputs)}
    options = {"rule": rule, "weights": weights, "groups": groups, "budget": budget, "progress": progress}
    named = {name: name for name in measures}
    asked: dict[str, Any] = {"unbiased": unbiased, "stderr": stderr, "base": base}
    with hold_warnings():
        for inputs, moments in _iterate_tiles(predictions, kind, **options, rounding=rounding):
            for name, values in compute_columns(moments, named, **asked):
                if name not in columns:
                    columns[name] = np.empty(predictions.inputs, values.dtype)
                columns[name][inputs] = values
    return ScoreTable(columns, measures, predictions.members, predictions.classes)


def average_predictions(
    predictions: Predictions, kind: Kind, *, progress: Callable[[int], object] | None = None
) -> np.ndarray:
    """Return the average of the members' probabilities, (inputs, classes)."""
    found = np.empty((predictions.inputs, predictions.classes))
    for inputs, moments in _iterate_tiles(predictions, kind, progress=progress):
        found[inputs] = arrays.to_numpy(moments.mean)
    return found


def _iterate_tiles(
    predictions: Predictions,
    kind: Kind,
    *,
    rule: str = "log",
    weights: np.ndarray | None = None,
    groups: int | None = None,
    rounding: float | str | None = None,
    budget: int = _TILE_BYTES,
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[slice, Any]]:
    """Yield the inputs of each tile, with the moments of all members."""
    whole = rounding is not None
    tile, members = plan_tiles(predictions, groups=groups or 1, budget=budget, members_together=whole)
    for start in range(0, predictions.inputs, tile):
        inputs = slice(start, min(start + tile, predictions.inputs))
        moments = _HeldMembers(rule, groups, rounding) if whole else Moments(rule=rule, groups=groups)
        for chunk in predictions.chunks(inputs, members):
            chosen = _choose_weights(weights, chunk.members, inputs)
            prediction = Categorical(**{kind: chunk.values})
            prediction.precision = chunk.precision
            if whole:
                prediction._rounding = check_rounding(rounding, chunk.precision)
            try:
                moments.update(prediction, weights=chosen)
            except ValueError as error:
                located = _locate(predictions, chunk, inputs, prediction, chosen)
                if located is None:
                    raise
                raise located from error
        yield inputs, moments
        if progress is not None:
            progress(inputs.stop)


class _HeldMembers:
    """Members of a tile, which the least value that fits rounded numbers takes all at once."""

    def __init__(self, rule: str, groups: int | None, rounding: float | str | None) -> None:
        self.rule, self.groups, self.rounding = resolve_rule(rule), groups, rounding
        self._chunks: list[tuple[Categorical, np.ndarray | None]] = []

    def update(self, prediction: Categorical, *, weights: np.ndarray | None) -> None:
        """Add members; checks their numbers."""
        p = np.asarray(prediction.values, np.float64)
        ignored = (
            None if weights is None else np.broadcast_to((weights == 0).reshape(len(p), -1), p.shape[:2])
        )
        prediction._check(np, p, ignored)
        self._chunks.append((prediction, weights))

    @functools.cached_property
    def _whole(self) -> tuple[Categorical, np.ndarray | None]:
        """All members with their weights."""
        predictions = [prediction for prediction, _ in self._chunks]
        whole = predictions[0].with_values(np.concatenate([each.values for each in predictions]))
        # Of files in several types, the one that rounds most.
        whole.precision = max((p.precision for p in predictions), key=lambda p: check_rounding("dtype", p))
        given = [weights for _, weights in self._chunks if weights is not None]
        return whole, np.concatenate(given) if given else None

    @property
    def mean(self) -> np.ndarray:
        """The average prediction, (inputs, classes)."""
        prediction, weights = self._whole
        p = np.asarray(prediction.values, np.float64)
        share = np.ones(p.shape[:1]) if weights is None else weights
        share = np.broadcast_to(share.reshape((len(p), -1, 1)), p.shape)
        p = np.where(share > 0, p, 0.0)
        return (share * p / np.where(share > 0, p.sum(-1, keepdims=True), 1.0)).sum(0) / share.sum(0)

    def decompose(self, measure: str | Measure = "pairwise", **asked: Any) -> Decomposition:
        """Return the decomposition of each input's uncertainty, as `Moments.decompose` does."""
        prediction, weights = self._whole
        own = {"rule": self.rule.name, "groups": self.groups, "rounding": self.rounding}
        return decompose(prediction, measure=measure, weights=weights, **own, **asked)


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
        Whether all members of a tile are in memory at once.
    """
    all_at_once = members_together or predictions.members_together
    together = predictions.members if all_at_once else _MEMBERS_TOGETHER
    together = min(together, predictions.members)
    # bfloat16 is read as float32, integers as float64.
    row = predictions.classes * max(4, predictions.itemsize)
    tile = min(
        budget // 2 // (row * together),
        budget // 2 // (predictions.classes * (_STATE_BYTES * groups + _WORK_BYTES)),
        predictions.inputs,
    )
    tile = max(1, tile)
    return tile, max(1, min(budget // 2 // (row * tile), predictions.members))


def _choose_weights(weights: np.ndarray | None, members: range, inputs: slice) -> np.ndarray | None:
    """Return the weights of some members and inputs."""
    if weights is None:
        return None
    chosen = weights[members.start : members.stop]
    return chosen if weights.ndim == 1 else chosen[:, inputs]


def _locate(
    predictions: Predictions,
    chunk: Chunk,
    inputs: slice,
    prediction: Categorical,
    weights: np.ndarray | None,
) -> StoreError | None:
    """Return an error that names the file, member and input; None where no value is at fault."""
    for index, member in enumerate(chunk.members):
        rows = prediction.with_values(chunk.values[index])
        ignored = np.zeros(rows.shape[0], bool) if weights is None else weights[index] == 0
        ignored = np.broadcast_to(ignored, rows.shape[:1])
        if _find_complaint(rows, ignored) is None:
            continue
        low, high = 0, rows.shape[0]  # the first `high` rows fail, the first `low` do not
        while high - low > 1:
            middle = (low + high) // 2
            part = rows.with_values(rows.values[:middle])
            low, high = (low, middle) if _find_complaint(part, ignored[:middle]) else (middle, high)
        source = predictions.source_of(member)
        at = f"input {inputs.start + low}"
        if source.axis is not None:
            at = f"member {member - source.first}, {at}"
        return StoreError(f"{source.label}: {at}: {_find_complaint(rows.with_values(rows.values[low]))}")
    return None


def _find_complaint(rows: Categorical, ignored: np.ndarray | None = None) -> str | None:
    """Return what is wrong with the values of some rows; None where nothing is."""
    try:
        rows._check(np, np.asarray(rows.values, np.float64), ignored)
    except ValueError as error:
        return str(error)
    return None
