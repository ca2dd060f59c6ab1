"""Scores predictions in files, in memory that depends neither on the inputs nor on the members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from demur.core.rounding import hold_warnings
from demur.measures import canonical_name
from demur.predictions import arrays
from demur.predictions.members import check_weight_values, scale_moderately
from demur.scoring.file_predictions import Kind
from demur.scoring.file_tiles import TILE_BYTES, Tiles
from demur.scoring.score_table import DEFAULT_MEASURES, ScoreTable, count_groups
from demur.stores import Predictions, StoreError, name_rows

OK, FAILED = "ok", "no prediction: NaN in all members"
"""What the column status says of an input; where only some labels are NaN, it names them."""


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
    budget: int = TILE_BYTES,
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
    tiles = Tiles(
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
    tiles = Tiles(predictions, kind)
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
    predictions: Predictions, tiles: Tiles, columns: dict[str, np.ndarray], measures: tuple[str, ...]
) -> ScoreTable:
    """Return scores beside what names their rows."""
    failed, names = tiles.failed, predictions.names
    if failed.all() and not predictions.is_window:
        raise nothing_predicted(predictions)
    if predictions.tasks is not None and "label" in predictions.columns:
        raise StoreError(
            f"{predictions.sources[0].label}: expected a label for each task, got one column label: give a "
            "table with a column for each task as --labels"
        )
    found = name_rows(predictions.batch, predictions.tasks, predictions.columns, first=predictions.first)
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
        why = [tiles.reasons.get(row, FAILED) for row in np.flatnonzero(failed).tolist()]
        found["status"] = np.full(len(failed), OK, f"U{max(map(len, why))}")
        found["status"][failed] = why
    table = ScoreTable(found | columns, measures, predictions.members, predictions.classes)
    return replace(table, outcome=predictions.outcome, batch=predictions.batch)


def nothing_predicted(predictions: Predictions) -> StoreError:
    """Return the error of predictions that are all missing."""
    return StoreError(
        f"{predictions.sources[0].label}: expected predictions, got NaN in all members for every input: find "
        "out where it arose"
    )


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
