"""Inputs, labels and ids from the batches of any loader, and checksums that recognise a batch."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core import arrays
from demur.scoring.batch_parts import Unpack, as_column, count_rows, is_table, split_batch

ARRAY_BATCH_SIZE = 256
"""Inputs per batch where the loader is one array or table."""


@dataclass(frozen=True)
class InputBatch:
    """One batch.

    Attributes
    ----------
    inputs
        As the model takes them: an array, a table, or a mapping of names to arrays; or whatever ``unpack``
        found.
    labels, ids
        (inputs,) each, labels also (inputs, labels); None where the loader has none.
    position
        The number of the first input in the whole data set.
    size
        How many inputs there are.
    has_rows
        Whether the first axis of the inputs is known to be the inputs, so that rows can be taken.
    label_maps
        (inputs, ...): a label for each pixel of an input; None where there are none.
    """

    inputs: Any
    labels: np.ndarray | None
    ids: np.ndarray | None
    position: int
    size: int
    has_rows: bool = True
    label_maps: np.ndarray | None = None

    @property
    def mark(self) -> int:
        """A checksum of the first and last input and of the labels; of all inputs where they have no rows."""
        held = _list_arrays(self.inputs)
        return self._checksum(*([held[0][:1], held[0][-1:]] if self.has_rows and held else held))

    @property
    def full_mark(self) -> int:
        """A checksum of all inputs and labels."""
        return self._checksum(*_list_arrays(self.inputs))

    def _checksum(self, *inputs: Any) -> int:
        found = zlib.crc32(repr((self.position, self.size)).encode())
        for values in (*inputs, self.labels):
            if values is not None:
                found = zlib.crc32(_to_bytes(values), found)
        return found


def _list_arrays(inputs: Any) -> list[Any]:
    """Return what the inputs of a batch hold; of unknown objects, the arrays among their attributes."""
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    if isinstance(inputs, list | tuple) or hasattr(inputs, "shape"):
        return [inputs]
    held = inputs.to_dict() if callable(getattr(inputs, "to_dict", None)) else getattr(inputs, "__dict__", {})
    return [each for each in held.values() if getattr(each, "shape", ())]


def _to_bytes(values: Any) -> bytes:
    """Return the bytes of the numbers, or the text, in an array, a table or a list."""
    if hasattr(values, "tocsr"):
        sparse = values.tocsr()
        return b"".join(each.tobytes() for each in (sparse.data, sparse.indices, sparse.indptr))
    try:
        values = arrays.to_numpy(values)
    except TypeError:
        values = np.asarray(values)
    return repr(values.tolist()).encode() if values.dtype == object else values.tobytes()


def iterate_batches(
    loader: Iterable[Any], *, unpack: Unpack | None = None, label_axes: int = 1
) -> Iterator[InputBatch]:
    """Yield the batches of a loader; those without inputs are left out.

    Parameters
    ----------
    loader
        A DataLoader, an iterable of arrays, (x, y) pairs, mappings or tables, or one array or table.
    unpack
        How to open batches that are something else; see ``demur.score``.
    label_axes
        2: an input may have several labels, (inputs, labels).
    """
    if isinstance(loader, tuple | Mapping):
        raise TypeError(
            f"loader must be an iterable of batches. Got a {type(loader).__name__}, which may be one batch. "
            "Write [batch] for a single batch."
        )
    if is_whole(loader):
        whole: Any = getattr(loader, "iloc", loader)
        starts = range(0, count_rows(loader), ARRAY_BATCH_SIZE)
        loader = (whole[start : start + ARRAY_BATCH_SIZE] for start in starts)
    position = 0
    for given in loader:
        batch = open_batch(given, position, unpack=unpack, label_axes=label_axes)
        if batch.size:
            yield batch
            position += batch.size
    if position == 0:
        raise ValueError("loader must have inputs. Got none.")


def open_batch(given: Any, position: int, *, unpack: Unpack | None = None, label_axes: int = 1) -> InputBatch:
    """Return what a loader gave as a batch that begins at this position; options as `iterate_batches`."""
    parts = split_batch(given, position, unpack)
    labels = as_column("labels", parts.labels, parts.size, axes=label_axes)
    ids = as_column("ids", parts.ids, parts.size)
    return InputBatch(parts.inputs, labels, ids, position, parts.size, not parts.opened)


def is_whole(loader: Any) -> bool:
    """Tell whether a loader is one array or table of inputs, to be cut into batches."""
    return is_table(loader) or (hasattr(loader, "shape") and hasattr(loader, "__getitem__"))


def find_generators(loader: Any) -> list[Any]:
    """Return the random generators of a DataLoader and of its sampler."""
    owners = (loader, getattr(loader, "sampler", None))
    found = {id(g): g for g in (getattr(owner, "generator", None) for owner in owners) if g is not None}
    return [generator for generator in found.values() if hasattr(generator, "get_state")]


@contextlib.contextmanager
def preserve_generators(loader: Any) -> Iterator[None]:
    """Restore the random generators of a DataLoader afterwards."""
    states = [(generator, generator.get_state()) for generator in find_generators(loader)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
