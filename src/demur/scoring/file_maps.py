"""Predictions of pixels in files: their maps of scores in a store, and one row of scores for each image.

What is in memory is the predictions of a part of one image, and the scores of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demur.measures import PARTS, canonical_name
from demur.scoring.block_scores import describe_run
from demur.scoring.dense import Reduce, check_reduce, measure_accuracy, reduce_maps
from demur.scoring.file_predictions import Kind
from demur.scoring.score_files import FAILED, OK, nothing_predicted, score_predictions
from demur.scoring.score_table import DEFAULT_MEASURES, ScoreTable
from demur.stores import Predictions, StoreError, name_rows
from demur.stores.block_store import BlockStore
from demur.stores.label_maps import LabelMaps
from demur.stores.urls import show_place

MISSING = "missing"
"""The column that says how many pixels of an image have no prediction."""

_ROWS = "rows"
"""What the store has besides maps, and no reader sees: the scores of each image, for a run that resumes."""


def score_images(
    predictions: Predictions,
    kind: Kind | None,
    maps: Path,
    *,
    reduce: Reduce = "mean",
    measures: Sequence[str] = DEFAULT_MEASURES,
    weights: np.ndarray | None = None,
    labels: LabelMaps | None = None,
    force: bool = False,
    progress: Callable[[int], object] | None = None,
    write: Callable[[ScoreTable], object] | None = None,
    **options: Any,
) -> ScoreTable:
    """Score each pixel, write the maps as they come, and reduce those of an image to one number each.

    Parameters
    ----------
    predictions, kind, measures, weights, options
        As in `score_predictions`; without standard errors.
    maps
        The store, a .zarr path or a `Path` of a URL. An unfinished one of the same run is resumed.
    reduce
        As in `demur.scoring.dense.DenseScoring`. Pixels without a prediction do not count.
    labels
        True classes of the pixels; scores then have the column ``accuracy``.
    force
        Replace what is there.
    progress
        Called with the number of images done.
    write
        Called with the scores before the store is complete: where it fails, the same call resumes.

    Returns
    -------
    ScoreTable
        One row per image. Where pixels have no prediction, the column ``missing`` counts them.
    """
    _check(predictions, maps, options)
    named = tuple(dict.fromkeys(canonical_name(each) for each in measures))
    names = [f"{name}_{part}" for name in named for part in PARTS]
    truth = None if labels is None else labels.describe()
    settings = describe_run(predictions, kind, named, weights, truth, options)
    settings |= {"reduce": check_reduce(reduce)}
    count = predictions.batch[0]
    store = BlockStore(maps, holds="maps", block=1, inputs=count, settings=settings, force=force)
    rows = []
    for image in range(count):
        if image not in store.done:
            part = predictions.window(image, image + 1)
            own = weights[:, image : image + 1] if weights is not None and weights.ndim == 2 else weights
            table = score_predictions(part, kind, measures=measures, weights=own, **options)
            known, label = ~table.failed, None if labels is None else labels.read(image)
            row = [_reduce(table.columns[name][known], reduce) for name in names]
            row += [] if label is None else [_compare(table, known, label)]
            row += [np.count_nonzero(~known)]
            found = _keep_maps(table, names, label, predictions.batch[1:])
            store.write(image, {**found, _ROWS: np.array([row], np.float64)})
        rows.append(store.read(image, _ROWS)[0])
        if progress is not None:
            progress(image + 1)
    names += [] if labels is None else ["accuracy"]
    columns = dict(zip([*names, MISSING], np.stack(rows, axis=1), strict=True))
    scores = _make_table(predictions, columns, named)
    if write is not None:
        write(scores)
    store.finish(count, leave_out=(_ROWS,))
    return scores


def _check(predictions: Predictions, maps: Path, options: Mapping[str, Any]) -> None:
    """Raise where there are no maps to make, or nowhere to put them."""
    source = predictions.sources[0]
    if maps.suffix.lower() != ".zarr":
        raise StoreError(f"{show_place(maps)}: expected a store of maps whose name ends in .zarr")
    if options.get("stderr"):
        raise ValueError("expected maps or standard errors, got both: the error of a map's mean is another")
    if predictions.outcome not in ("classes", "binary"):
        raise ValueError(f"expected classes or --binary for maps of pixels, got --{predictions.outcome}")
    if len(predictions.batch) == 1 or predictions.tasks is not None:
        raise StoreError(
            f"{source.label}: expected predictions of pixels for maps, as (members, inputs, classes, height, "
            f"width) with --class-axis 2, got shape {source.stored.shape} without pixels"
        )
    if source.class_axis is not None and source.class_axis < source.input_axis:
        raise StoreError(
            f"{source.label}: expected the inputs before the classes, got shape {source.stored.shape} with "
            f"the inputs on axis {source.input_axis} and the classes on axis {source.class_axis}: if each "
            "file is one member, (inputs, classes, height, width), say --axis none --class-axis 1"
        )


def _reduce(scores: np.ndarray, reduce: Reduce) -> float:
    """Return one number for the pixels that have a prediction; NaN where none has."""
    return float(reduce_maps(scores[None], reduce)[0]) if len(scores) else np.nan


def _compare(table: ScoreTable, known: np.ndarray, label: np.ndarray) -> float:
    """Return the share of pixels that are right, of those that have a prediction and a label."""
    guess, truth = table.columns["prediction"][known], label.reshape(-1)[known]
    return float(measure_accuracy(guess[None], truth[None], _count_classes(table))[0])


def _keep_maps(
    table: ScoreTable, names: Sequence[str], label: np.ndarray | None, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the maps of one image as the store has them; -1 is no prediction."""
    smallest = np.min_scalar_type(-_count_classes(table))
    found = {"prediction": table.columns["prediction"].astype(smallest)}
    found |= {name: table.columns[name].astype(np.float32) for name in names}
    found |= {} if label is None else {"label": label}
    return {name: values.reshape(1, *shape) for name, values in found.items()}


def _count_classes(table: ScoreTable) -> int:
    return max(table.classes, 2)  # a yes or no has one number


def _make_table(
    predictions: Predictions, columns: dict[str, np.ndarray], measures: tuple[str, ...]
) -> ScoreTable:
    """Return one row per image, with what names it; `missing` only where some pixels are."""
    count, *shape = predictions.batch
    found = name_rows((count,), None, predictions.columns)
    if not columns[MISSING].any():
        del columns[MISSING]
    else:
        columns[MISSING] = columns[MISSING].astype(np.int64)
        failed = columns[MISSING] == math.prod(shape)
        if failed.all():
            raise nothing_predicted(predictions)
        found |= {"status": np.where(failed, FAILED, OK)} if failed.any() else {}
    clash = [name for name in columns if name in found]
    if clash:
        raise StoreError(
            f"{predictions.sources[0].label}: expected another name for the column {clash[0]}, which scores "
            "have: rename it"
        )
    return ScoreTable(
        found | columns, measures, predictions.members, predictions.classes, predictions.outcome, (count,)
    )
