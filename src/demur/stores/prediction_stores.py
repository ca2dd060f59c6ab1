"""Writing predictions to a zarr store, from batches as they come or from files.

STORE/predictions         (members, inputs, ..., classes), chunked over inputs
STORE/id, STORE/label     (inputs,), where they were given
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demur.core import arrays
from demur.stores.block_store import CHUNK_BYTES, BlockStore
from demur.stores.errors import StoreError
from demur.stores.file_stamps import stamp_files
from demur.stores.prediction_files import Predictions, open_predictions
from demur.stores.urls import is_same_place, show_place
from demur.stores.zarr_arrays import ZARR_SUFFIX

_NAME = "predictions"
_PRECISIONS = ("bfloat16", "float16", "float32", "float64")
_AXES = {_NAME: 1}
"""Where inputs are; on the first axis of all other arrays."""


def write_predictions(
    place: str | os.PathLike[str],
    batches: Iterable[Any],
    *,
    block: int | None = None,
    force: bool = False,
) -> None:
    """Write the predictions of all members to a zarr store, batch after batch; memory is that of one block.

    Parameters
    ----------
    place
        A folder or URL that ends in .zarr, as ``"s3://bucket/run.zarr"``.
    batches
        Arrays (members, inputs, ..., classes), of NumPy, PyTorch or JAX, each for some of the inputs. Or
        pairs of such an array and a mapping of columns, (inputs,) each: ``{"id": ..., "label": ...}``.
    block
        Inputs in a chunk; None: as many as make about 16 MB.
    force
        Replace a store that is complete. One whose writing was interrupted is always replaced.

    Examples
    --------
    >>> import tempfile
    >>> from demur.stores import write_predictions
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_predictions(f"{folder}/run.zarr", (rng.normal(size=(5, 32, 10)) for batch in range(4)))
    ...     sorted(os.listdir(f"{folder}/run.zarr"))
    ['manifest', 'predictions', 'zarr.json']
    """
    path = _check_place(place)
    waiting: list[dict[str, np.ndarray]] = []
    store: BlockStore | None = None
    first: dict[str, np.ndarray] = {}
    number = rows = inputs = size = 0
    for batch in batches:
        part = _split_batch(batch, inputs)
        if store is None:
            size = block or _choose_block(part[_NAME])
            store = BlockStore(path, holds=_NAME, block=size, force=force, resume=False)
            first = part
        _check_alike(first, part, inputs)
        waiting.append(part)
        count = part[_NAME].shape[1]
        rows, inputs = rows + count, inputs + count
        while rows >= size:
            joined = _join(waiting)
            store.write(number, _cut(joined, 0, size), axes=_AXES)
            waiting, rows, number = [_cut(joined, size, rows)], rows - size, number + 1
    if store is None:
        raise ValueError("batches must have inputs. Got none.")
    if rows:
        store.write(number, _join(waiting), axes=_AXES)
    store.finish(inputs)


def convert_predictions(
    files: Sequence[str],
    place: str | os.PathLike[str],
    *,
    block: int | None = None,
    force: bool = False,
    progress: Callable[[Predictions], Callable[[int], object]] | None = None,
    **layout: Any,
) -> Predictions:
    """Write the members of files to one store; an interrupted call resumes.

    Parameters
    ----------
    files, layout
        As `open_predictions` takes them.
    place, block, force
        As in `write_predictions`.
    progress
        From the open predictions to what is called with the number of inputs done.

    Returns
    -------
    Predictions
        What was written; closed.
    """
    path = _check_place(place)
    with open_predictions(files, **layout) as predictions:
        if any(is_same_place(source.place, path) for source in predictions.sources):
            raise StoreError(f"{show_place(path)}: expected a store that is not read from, got an input")
        row = predictions.members * predictions.classes * predictions.itemsize
        inner = predictions.inputs // predictions.batch[0]
        size = block or max(1, CHUNK_BYTES // (row * inner))
        options = {name: str(value) for name, value in sorted(layout.items())}
        settings = {"files": stamp_files(predictions.sources), **options}
        count = predictions.batch[0]
        store = BlockStore(path, holds=_NAME, block=size, inputs=count, settings=settings, force=force)
        show = None if progress is None else progress(predictions)
        for number, start in enumerate(range(0, count, size)):
            stop = min(start + size, count)
            if number not in store.done:
                part = predictions.window(start, stop)
                chunks = part.chunks(slice(0, part.inputs), part.members)
                values = np.concatenate([chunk.values for chunk in chunks])
                values = values.reshape(part.members, *part.batch, part.classes)
                store.write(number, {_NAME: values, **part.columns}, axes=_AXES)
            if show is not None:
                show(stop)
        # The least exact of all: how far probabilities may be from 1 in sum.
        found = {part.precision for source in predictions.sources for part in source.parts}
        facts: dict[str, Any] = {}
        if found <= set(_PRECISIONS):
            facts["precision"] = min(found, key=_PRECISIONS.index)
        if predictions.names is not None:
            facts["names"] = list(predictions.names)
        store.finish(count, facts)
    return predictions


def _check_place(place: str | os.PathLike[str]) -> Path:
    path = Path(place)
    if path.suffix.lower() != ZARR_SUFFIX:
        raise StoreError(f"{show_place(path)}: expected a store whose name ends in {ZARR_SUFFIX}")
    return path


def _split_batch(batch: Any, position: int) -> dict[str, np.ndarray]:
    """Return the predictions of a batch, and its columns."""
    values, columns = batch if isinstance(batch, tuple) else (batch, {})
    found = arrays.to_numpy(arrays.as_array(values))
    if found.ndim < 3 or 0 in found.shape or found.dtype.kind not in "fiu":
        raise ValueError(
            "batches must be numbers of shape (members, inputs, ..., classes). "
            f"Got {found.dtype} of {found.shape} at input {position}."
        )
    if not isinstance(columns, Mapping) or _NAME in columns:
        raise TypeError(
            "columns must be a mapping from names, such as 'id' and 'label', to one value per input. "
            f"Got {columns!r:.60}."
        )
    sides = {str(name): np.asarray(each) for name, each in columns.items()}
    texts = {name: each.astype(str) for name, each in sides.items() if each.dtype.kind not in "fiubU"}
    for name, each in sides.items():
        if each.shape != found.shape[1:2]:
            raise ValueError(
                f"{name} must be one value per input, shape {found.shape[1:2]}. Got {each.shape} at input "
                f"{position}."
            )
    return {_NAME: found, **sides, **texts}


def _check_alike(first: Mapping[str, np.ndarray], part: Mapping[str, np.ndarray], position: int) -> None:
    """Raise unless a batch has the members, classes and columns of the first one."""

    def describe(each: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
        members, _, *others = each[_NAME].shape
        return members, *others, each[_NAME].dtype.name, sorted(each)

    if describe(first) != describe(part):
        raise ValueError(
            "batches must all have the same members, classes, dtype and columns. Got "
            f"{describe(part)} at input {position}, and {describe(first)} before."
        )


def _choose_block(values: np.ndarray) -> int:
    return max(1, CHUNK_BYTES // (values.nbytes // values.shape[1]))


def _join(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {
        name: np.concatenate([part[name] for part in parts], axis=_AXES.get(name, 0)) for name in parts[0]
    }


def _cut(part: Mapping[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    return {name: each[:, start:stop] if name == _NAME else each[start:stop] for name, each in part.items()}
