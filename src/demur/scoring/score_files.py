"""Scores of predictions in files, with memory that depends neither on inputs nor on members.

Inputs come in tiles, members in chunks; each tile has a `demur.Moments` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from demur.families import Family
from demur.measures import Measure, needs_groups, resolve
from demur.moments import Moments
from demur.predictions import Categorical, arrays
from demur.predictions.members import check_weight_values, of_moderate_size
from demur.stores.arrays import StoreError
from demur.stores.output import json_number
from demur.stores.predictions import Chunk, Predictions

Kind = Literal["logits", "probs", "log_probs"]

PARTS = ("total", "aleatoric", "epistemic")
MEASURES = ("pairwise", "average", "reverse")
"""What is computed where nobody says otherwise."""

_MOST_GROUPS = 64
"""Members beyond it share groups: a thousand members must not need a thousand states."""

_BUDGET = 64 << 20
"""Bytes that a tile may take: half for the predictions of a chunk, half for the moments."""

_STATE, _WORK = 80, 160
"""Bytes that moments take for each input and class: in each group, and besides."""

_CHUNK = 16
"""Members that come together at least, if there are as many: each call has its price."""


@dataclass(frozen=True)
class ScoreTable:
    """Scores of each input.

    Attributes
    ----------
    columns
        `input`, `prediction` (the class that the average prediction favours) and, for each measure,
        `{measure}_{part}`; with standard errors also `{measure}_{part}_stderr`. (inputs,) each.
    measures
        Names of the measures, in the order asked for.
    members, classes
        How many there were.
    """

    columns: dict[str, np.ndarray]
    measures: tuple[str, ...]
    members: int
    classes: int

    @property
    def inputs(self) -> int:
        """How many inputs were scored."""
        return len(self.columns["input"])

    def top(self, count: int) -> np.ndarray:
        """Find the most uncertain inputs, by the first measure's epistemic part; ties by order."""
        epistemic = self.columns[f"{self.measures[0]}_epistemic"]
        return np.argsort(-epistemic, kind="stable")[:count]

    def summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Mean, median and maximum over inputs by measure and part, and how many are infinite.

        One infinite input makes the mean infinite: that is the mean.
        """
        return {
            measure: {
                part: {
                    "mean": json_number(values.mean(dtype=np.float64)),
                    "median": json_number(np.median(values)),
                    "max": json_number(values.max()),
                    "infinite": int(np.isinf(values).sum()),
                }
                for part in PARTS
                for values in [self.columns[f"{measure}_{part}"]]
            }
            for measure in self.measures
        }


def score_predictions(
    predictions: Predictions,
    kind: Kind,
    *,
    measures: Sequence[str] = MEASURES,
    rule: str = "log",
    base: float | None = None,
    weights: np.ndarray | None = None,
    weights_label: str = "weights",
    unbiased: bool = False,
    stderr: bool = False,
    budget: int = _BUDGET,
    progress: Callable[[int], object] | None = None,
) -> ScoreTable:
    """Score the inputs of files.

    Parameters
    ----------
    predictions
        What `open_predictions` returned.
    kind
        What the numbers are: "logits", "probs" or "log_probs".
    measures, rule, base, unbiased, stderr
        As in `demur.decompose`. Standard errors and the unbiased average go over members, and
        beyond 64 of them over 64 groups.
    weights
        (members,) or (members, inputs).
    weights_label
        What messages call the weights.
    budget
        Bytes that a tile may take.
    progress
        Called with the number of inputs done, after each tile.

    Raises
    ------
    ValueError
        The predictions, weights or options are not what the measures can be computed of.
    """
    measures = tuple(dict.fromkeys(measures))
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
        weights = of_moderate_size(weights)
    groups = count_groups(measures, predictions.members, unbiased=unbiased, stderr=stderr)
    columns: dict[str, np.ndarray] = {"input": np.arange(predictions.inputs)}
    options = {"rule": rule, "weights": weights, "groups": groups, "budget": budget, "progress": progress}
    named = {name: name for name in measures}
    for inputs, moments in tiles(predictions, kind, **options):
        for name, values in score_columns(moments, named, unbiased=unbiased, stderr=stderr, base=base):
            if name not in columns:
                columns[name] = np.empty(predictions.inputs, values.dtype)
            columns[name][inputs] = values
    return ScoreTable(columns, measures, predictions.members, predictions.classes)


def average_predictions(
    predictions: Predictions, kind: Kind, *, progress: Callable[[int], object] | None = None
) -> np.ndarray:
    """Return the probabilities of the average of the members, (inputs, classes)."""
    found = np.empty((predictions.inputs, predictions.classes))
    for inputs, moments in tiles(predictions, kind, progress=progress):
        found[inputs] = arrays.to_numpy(moments.mean)
    return found


def tiles(
    predictions: Predictions,
    kind: Kind,
    *,
    rule: str = "log",
    weights: np.ndarray | None = None,
    groups: int | None = None,
    budget: int = _BUDGET,
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[slice, Moments]]:
    """Yield inputs, a tile at a time, with the moments of all members."""
    tile, members = plan(predictions, groups=groups or 1, budget=budget)
    for start in range(0, predictions.inputs, tile):
        inputs = slice(start, min(start + tile, predictions.inputs))
        moments = Moments(rule=rule, groups=groups)
        for chunk in predictions.chunks(inputs, members):
            chosen = _choose_weights(weights, chunk.members, inputs)
            prediction = Categorical(**{kind: chunk.values})
            prediction.precision = chunk.precision
            try:
                moments.update(prediction, weights=chosen)
            except ValueError as error:
                located = _locate(predictions, chunk, inputs, kind, chosen)
                if located is None:
                    raise
                raise located from error
        yield inputs, moments
        if progress is not None:
            progress(inputs.stop)


def count_groups(
    measures: Iterable[str | Measure], members: int, *, unbiased: bool, stderr: bool
) -> int | None:
    """Return into how many groups the moments deal members; None where no figure needs them."""
    if stderr or (unbiased and any(needs_groups(resolve(measure)) for measure in measures)):
        return min(members, _MOST_GROUPS)
    return None


def name_unit(rule: str, base: float | None) -> str:
    """Return what scores are measured in.

    Examples
    --------
    >>> name_unit("log", None), name_unit("log", 2), name_unit("brier", None)
    ('nats', 'bits', 'brier loss')
    """
    if rule != "log":
        return f"{rule} loss"
    return {None: "nats", 2.0: "bits"}.get(base, f"units of log {base:g}" if base else "")


def plan(predictions: Predictions, *, groups: int, budget: int) -> tuple[int, int]:
    """Choose how many inputs make a tile, and how many members a chunk of it.

    Parameters
    ----------
    predictions
        What is read.
    groups
        How many groups of members the moments keep apart.
    budget
        Bytes that a tile may take.
    """
    together = predictions.members if predictions.members_together else _CHUNK
    together = min(together, predictions.members)
    # bfloat16 is read as float32, integers as float64.
    row = predictions.classes * max(4, predictions.itemsize)
    tile = min(
        budget // 2 // (row * together),
        budget // 2 // (predictions.classes * (_STATE * groups + _WORK)),
        predictions.inputs,
    )
    tile = max(1, tile)
    return tile, max(1, min(budget // 2 // (row * tile), predictions.members))


def _choose_weights(weights: np.ndarray | None, members: range, inputs: slice) -> np.ndarray | None:
    if weights is None:
        return None
    chosen = weights[members.start : members.stop]
    return chosen if weights.ndim == 1 else chosen[:, inputs]


def score_columns(
    moments: Moments,
    measures: Mapping[str, str | Measure],
    *,
    unbiased: bool,
    stderr: bool,
    base: float | None,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the columns of one tile: the average's prediction, then each measure's parts, by its name."""
    average = arrays.to_numpy(moments.mean)
    yield "prediction", average if isinstance(moments.rule, Family) else np.argmax(average, axis=-1)
    for name, measure in measures.items():
        parts = moments.decompose(measure=measure, unbiased=unbiased, stderr=stderr, base=base)
        for part in PARTS:
            yield f"{name}_{part}", arrays.to_numpy(getattr(parts, part))
        if stderr:
            for part in PARTS:
                yield f"{name}_{part}_stderr", arrays.to_numpy(getattr(parts.stderr, part))


def _locate(
    predictions: Predictions,
    chunk: Chunk,
    inputs: slice,
    kind: Kind,
    weights: np.ndarray | None,
) -> StoreError | None:
    """Say which file, member and input a failed update is about; None if it is not about values."""
    for index, member in enumerate(chunk.members):
        rows = Categorical(**{kind: chunk.values[index]})
        rows.precision = chunk.precision
        ignored = np.zeros(rows.shape[0], bool) if weights is None else weights[index] == 0
        ignored = np.broadcast_to(ignored, rows.shape[:1])
        if _complaint(rows, ignored) is None:
            continue
        low, high = 0, rows.shape[0]  # the first `high` rows fail, the first `low` do not
        while high - low > 1:
            middle = (low + high) // 2
            part = rows.with_values(rows.values[:middle])
            low, high = (low, middle) if _complaint(part, ignored[:middle]) else (middle, high)
        source = predictions.source_of(member)
        at = f"input {inputs.start + low}"
        if source.axis is not None:
            at = f"member {member - source.first}, {at}"
        return StoreError(f"{source.label}: {at}: {_complaint(rows.with_values(rows.values[low]))}")
    return None


def _complaint(rows: Categorical, ignored: np.ndarray | None = None) -> str | None:
    try:
        rows.check(np, np.asarray(rows.values, np.float64), ignored)
    except ValueError as error:
        return str(error)
    return None
