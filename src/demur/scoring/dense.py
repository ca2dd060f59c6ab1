"""Predictions for every pixel: maps of scores, written to a store, and one number for each image.

What is in memory is what all members predict for one image, or for as many small ones as fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.core import arrays
from demur.measures import GIVEN
from demur.posteriors.posterior import parse_chunk, select_rows
from demur.predictions import Categorical
from demur.scoring.batches import InputBatch
from demur.stores.block_store import BlockStore

if TYPE_CHECKING:
    from demur.scoring.job import ScoringJob

Reduce = str | float | Callable[[np.ndarray], Any]
"""How a map becomes one number: "mean", "max", a quantile between 0 and 1, or a function of the map."""

ScoreRows = Callable[[Any, Iterator[Any], int, Any], tuple[dict[str, np.ndarray], int, int]]
"""From a job, chunks of members, the number of rows and None to columns, and how many members and classes."""

_HELD_BYTES = 256 << 20
"""Predictions of several images are held together up to so many bytes."""
_LOGITS_AT_ONCE = 1 << 20
"""Logits of one member that are summed at a time."""


class DenseScoring:
    """Scores images pixel by pixel, and reduces the maps to one number per image.

    Parameters
    ----------
    class_axis
        Where predictions have their classes: 2 for (members, inputs, classes, height, width).
    reduce
        How a map becomes one number.
    maps
        The store of the maps, a path or URL that ends in .zarr; None: they are not kept.
    """

    def __init__(self, class_axis: int, reduce: Reduce, maps: str | os.PathLike[str] | None) -> None:
        if not isinstance(class_axis, Integral):
            raise ValueError(f"class_axis must be an integer, as 2. Got {class_axis!r}.")
        self.class_axis, self.reduce = int(class_axis), check_reduce(reduce)
        self.maps = None if maps is None else Path(maps)
        self._store: BlockStore | None = None
        self._stored_shape: tuple[int, ...] | None = None  # of one map
        self._images = 1  # that are predicted together

    def check(self, job: ScoringJob, order: str) -> None:
        """Raise where other arguments do not go with scores of pixels, and open the store."""
        asked = {
            "order='member'": order == "member",
            "tolerance": job.tolerance is not None,
            "stderr": job.stderr,
            "classes": job.classes is not None,
        }
        for name in (name for name, value in asked.items() if value):
            raise ValueError(
                f"class_axis reduces scores of pixels to one per image. Got {name} too. Leave it out."
            )
        given = [name for name in job.measures if name in GIVEN or name in job.own]
        if given:
            raise ValueError(
                f"class_axis takes measures of the members alone. Got {given[0]!r}, with a given model."
            )
        if self.maps is None:
            return
        if self.maps.suffix.lower() != ".zarr":
            raise ValueError(f"maps must be a name that ends in .zarr. Got {str(self.maps)!r}.")
        names = ("measures", "rule", "base", "unbiased", "rounding")
        settings = {name: getattr(job, name) for name in names} | {"members": job.posterior.members}
        self._store = BlockStore(self.maps, holds="maps", block=1, settings=settings)

    def settings(self) -> dict[str, Any]:
        """Return what must be unchanged for a run to resume from a checkpoint."""
        name = getattr(self.reduce, "__qualname__", "function") if callable(self.reduce) else self.reduce
        place = None if self.maps is None else str(self.maps)
        return {"class_axis": self.class_axis, "reduce": name, "maps": place}

    def score_batch(self, job: ScoringJob, batch: InputBatch, score_rows: ScoreRows) -> dict[str, Any]:
        """Return the columns of one batch, as scores of whole inputs have them, and write its maps."""
        columns: dict[str, list[np.ndarray]] = {}
        members = classes = start = 0
        while start < batch.size:
            stop = min(start + self._images, batch.size) if batch.has_rows else batch.size
            chunks = list(self._predict(job, batch, start, stop))
            if not chunks:
                raise ValueError(f"posterior must have members. Got none from {job.posterior!r}.")
            shape = self._shape
            try:
                maps, members, classes = _score_pixels(job, chunks, score_rows)
            except ValueError as error:
                raise _place_in_image(error, chunks, shape, batch.position + start) from error
            held = sum(prediction.values.nbytes for prediction, _ in chunks) // (stop - start)
            self._images = max(1, _HELD_BYTES // held)
            maps = {name: values.reshape(stop - start, *shape) for name, values in maps.items()}
            if batch.label_maps is not None:
                maps["label"] = _check_label_maps(batch.label_maps[start:stop], shape, batch.position + start)
            self._write(batch.position + start, maps, classes)
            for name, values in self._reduce_maps(maps, classes):
                columns.setdefault(name, []).append(values)
            start = stop
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        return {"columns": joined, "members": members, "classes": classes, "deployed": None}

    def finish(self, inputs: int) -> None:
        """Say that the store of maps is complete."""
        if self._store is not None:
            self._store.finish(inputs)

    def _predict(
        self, job: ScoringJob, batch: InputBatch, start: int, stop: int
    ) -> Iterator[tuple[Any, Any]]:
        """Yield predictions (members, pixels, classes) for some images, and their weights."""
        whole = stop - start == batch.size
        inputs = batch.inputs if whole else select_rows(batch.inputs, np.arange(start, stop))
        for chunk in job.posterior.predict(inputs, position=batch.position + start):
            prediction, weights = parse_chunk(chunk)
            shape = tuple(prediction.shape)
            axis = self.class_axis + (len(shape) if self.class_axis < 0 else 0)
            fits = len(shape) > 3 and 2 <= axis < len(shape) and shape[1] == stop - start
            if not isinstance(prediction, Categorical) or not fits:
                raise ValueError(
                    f"class_axis={self.class_axis} takes predictions of classes for each pixel, as 2 takes "
                    f"(members, inputs, classes, height, width), of {stop - start} inputs. Got {shape}."
                )
            values = np.moveaxis(prediction.values, axis, -1)
            self._shape = values.shape[2:-1]
            pixels = int(np.prod(self._shape))
            flat = prediction.with_values(values.reshape(len(values), -1, values.shape[-1]))
            flat.precision = prediction.precision
            if weights is not None and np.ndim(weights) == 2:
                weights = np.repeat(np.asarray(weights), pixels, axis=1)
            yield flat, weights

    def _write(self, position: int, maps: dict[str, np.ndarray], classes: int) -> None:
        if self._store is None:
            return
        shape = maps["prediction"].shape[1:]
        if shape != (self._stored_shape or shape):
            raise ValueError(
                f"maps takes images of one size. Got {self._stored_shape} before and {shape} at input "
                f"{position}. Leave out maps, or bring the images to one size."
            )
        self._stored_shape = shape
        smallest = np.min_scalar_type(classes - 1)
        kept = {
            name: values.astype(smallest if name == "prediction" else np.float32)
            for name, values in maps.items()
            if name != "label"
        }
        if "label" in maps:
            kept["label"] = maps["label"]
        for index in range(len(kept["prediction"])):
            one = {name: values[index : index + 1] for name, values in kept.items()}
            self._store.write(position + index, one)

    def _reduce_maps(self, maps: dict[str, np.ndarray], classes: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yield names and columns, one number per image."""
        for name, values in maps.items():
            if name not in ("prediction", "label"):
                yield name, reduce_maps(values, self.reduce)
        if "label" in maps:
            yield "accuracy", measure_accuracy(maps["prediction"], maps["label"], classes)


def make_dense(
    class_axis: int | None, reduce: Reduce, maps: str | os.PathLike[str] | None
) -> DenseScoring | None:
    """Return what scores pixels; None where inputs are scored as they are."""
    if class_axis is not None:
        return DenseScoring(class_axis, reduce, maps)
    for name, given in {"maps": maps is not None, "reduce": reduce != "mean"}.items():
        if given:
            raise ValueError(
                f"{name} is for predictions of pixels. Say where these have their classes: class_axis=2 for "
                "(members, inputs, classes, height, width)."
            )
    return None


def take_label_maps(batch: InputBatch) -> InputBatch:
    """Return a batch whose labels, where they are of pixels, are no column of the scores."""
    if batch.labels is None or batch.labels.ndim == 1:
        return batch
    return replace(batch, labels=None, label_maps=batch.labels)


def check_reduce(reduce: Any) -> Reduce:
    """Return how maps are reduced; raise unless it is one of the known ways."""
    number = isinstance(reduce, int | float) and not isinstance(reduce, bool)
    if callable(reduce) or reduce in ("mean", "max") or (number and 0 <= reduce <= 1):
        return reduce
    raise ValueError(f"reduce must be 'mean', 'max', a quantile from 0 to 1, or a function. Got {reduce!r}.")


def reduce_maps(maps: np.ndarray, reduce: Reduce) -> np.ndarray:
    """Return one number for each map.

    Parameters
    ----------
    maps
        (images, height, width), or with other axes of pixels.
    reduce
        As in `DenseScoring`. A quantile is the least value that so many of the pixels do not exceed, so that
        it is finite where few pixels are infinite.

    Examples
    --------
    >>> maps = np.array([[[0.0, 1.0], [2.0, 5.0]]])
    >>> [float(reduce_maps(maps, how)[0]) for how in ("mean", "max", 0.5, np.median)]
    [2.0, 5.0, 1.0, 1.5]
    """
    if callable(reduce):
        found = np.array([np.asarray(reduce(each)) for each in maps])
        if found.shape != maps.shape[:1] or found.dtype.kind not in "fiub":
            raise ValueError(f"reduce must return one number for each map. Got shape {found.shape[1:]}.")
        return found.astype(np.float64)
    flat = maps.reshape(len(maps), -1)
    if reduce == "mean":
        return flat.mean(axis=1, dtype=np.float64)
    if reduce == "max":
        return flat.max(axis=1).astype(np.float64)
    return np.quantile(flat, float(reduce), axis=1, method="inverted_cdf").astype(np.float64)


def measure_accuracy(predictions: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the share of pixels of each image that are right, of those whose label is a class."""
    known = (labels >= 0) & (labels < classes)
    right = known & (predictions == labels)
    counts, found = (each.reshape(len(each), -1).sum(axis=1) for each in (known, right))
    return np.where(counts > 0, found / np.maximum(counts, 1), np.nan)


def _score_pixels(
    job: ScoringJob, chunks: list[tuple[Any, Any]], score_rows: ScoreRows
) -> tuple[dict[str, np.ndarray], int, int]:
    """Return the columns of all pixels, and how many members and classes there were."""
    first = chunks[0][0].values
    step = max(1, _LOGITS_AT_ONCE // first.shape[-1])
    found = []
    for start in range(0, first.shape[1], step):
        tile = slice(start, start + step)
        parts = []
        for prediction, weights in chunks:
            some = prediction.with_values(prediction.values[:, tile])
            some.precision = prediction.precision
            parts.append((some, weights[:, tile] if np.ndim(weights) == 2 else weights))
        found.append(score_rows(job, iter(parts), parts[0][0].shape[1], None))
    columns = {name: np.concatenate([each[0][name] for each in found]) for name in found[0][0]}
    return columns, found[0][1], found[0][2]


def _place_in_image(
    error: ValueError, chunks: list[tuple[Any, Any]], shape: tuple[int, ...], position: int
) -> ValueError:
    """Return an error about pixels in a row; of the first NaN, with its place as the user counts it."""
    first = 0
    for prediction, _ in chunks:
        values = arrays.to_numpy(prediction.values)
        places = np.argwhere(np.isnan(values).any(axis=-1))
        if len(places):
            member, row = (int(each) for each in places[0])
            image, *pixel = (int(each) for each in np.unravel_index(row, (values.shape[1], *shape)))
            return ValueError(
                f"{prediction.kind} must be numbers. Got nan for member {first + member} at input "
                f"{position + image}, pixel {tuple(pixel)}. Drop that input, or see where it arose."
            )
        first += len(values)
    return error


def _check_label_maps(labels: np.ndarray, shape: tuple[int, ...], position: int) -> np.ndarray:
    if labels.shape[1:] != shape or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels of pixels must be integers of shape (inputs, {', '.join(map(str, shape))}). Got "
            f"{labels.dtype} of {labels.shape} at input {position}."
        )
    return labels
