"""Inputs, labels and ids from the batches of any loader, and checksums that recognise a batch."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core import arrays

LABEL_NAMES = ("labels", "label", "targets", "target", "y")
ID_NAMES = ("ids", "id", "idx", "index")
ARRAY_BATCH_SIZE = 256
"""Inputs per batch where the loader is one array."""


@dataclass(frozen=True)
class InputBatch:
    """One batch.

    Attributes
    ----------
    inputs
        As the model takes them: an array, or a mapping of names to arrays.
    labels, ids
        (inputs,) each; None where the loader has none.
    position
        The number of the first input in the whole data set.
    size
        How many inputs there are.
    """

    inputs: Any
    labels: np.ndarray | None
    ids: np.ndarray | None
    position: int
    size: int

    @property
    def mark(self) -> int:
        """A checksum of the first and last input and of the labels."""
        first = next(iter(self.inputs.values())) if isinstance(self.inputs, Mapping) else self.inputs
        return self._checksum(first[:1], first[-1:])

    @property
    def full_mark(self) -> int:
        """A checksum of all inputs and labels."""
        return self._checksum(*(self.inputs.values() if isinstance(self.inputs, Mapping) else [self.inputs]))

    def _checksum(self, *inputs: Any) -> int:
        found = zlib.crc32(repr((self.position, self.size)).encode())
        for values in (*inputs, self.labels):
            if values is not None:
                found = zlib.crc32(_to_bytes(values), found)
        return found


def _to_bytes(values: Any) -> bytes:
    """Return the bytes of the numbers, or the text, in an array or a list."""
    try:
        values = arrays.to_numpy(values)
    except TypeError:
        values = np.asarray(values)
    return repr(values.tolist()).encode() if values.dtype == object else values.tobytes()


def iterate_batches(loader: Iterable[Any]) -> Iterator[InputBatch]:
    """Yield the batches of a DataLoader, of an iterable of arrays, (x, y) pairs or mappings, or an array."""
    if isinstance(loader, tuple | Mapping):
        raise TypeError(
            f"loader must be an iterable of batches. Got a {type(loader).__name__}, which may be one batch. "
            "Write [batch] for a single batch."
        )
    if hasattr(loader, "shape") and hasattr(loader, "__getitem__"):
        whole: Any = loader
        loader = (whole[start : start + ARRAY_BATCH_SIZE] for start in range(0, len(whole), ARRAY_BATCH_SIZE))
    position = 0
    for given in loader:
        batch = _split_batch(given, position)
        position += batch.size
        yield batch
    if position == 0:
        raise ValueError("loader must have inputs. Got none.")


def _split_batch(given: Any, position: int) -> InputBatch:
    """Return the inputs, labels and ids of a batch as the loader gave it."""
    labels = ids = None
    if isinstance(given, Mapping):
        rest = dict(given)
        labels, ids = pop_first(rest, LABEL_NAMES), pop_first(rest, ID_NAMES)
        if not rest:
            raise ValueError(f"A batch must have inputs. Got only {', '.join(map(repr, given))}.")
        inputs: Any = rest
        size = len(next(iter(rest.values())))
    else:
        parts = list(given) if isinstance(given, tuple | list) else [given]
        if not 1 <= len(parts) <= 3:
            raise ValueError(
                "A batch must be inputs, (inputs, labels) or (inputs, labels, ids). "
                f"Got {len(parts)} parts. Give models with several inputs a mapping."
            )
        inputs, labels, ids = (*parts, None, None)[:3]
        if not hasattr(inputs, "__len__"):
            raise TypeError(f"A batch must have an array of inputs. Got {type(inputs).__name__}.")
        size = len(inputs)
    return InputBatch(
        inputs, _as_column("labels", labels, size), _as_column("ids", ids, size), position, size
    )


def pop_first(rest: dict[Any, Any], names: tuple[str, ...]) -> Any:
    """Remove and return the first entry with one of these names; None if there is none."""
    return next((rest.pop(name) for name in names if name in rest), None)


def _as_column(name: str, values: Any, size: int) -> np.ndarray | None:
    """Return labels or ids as an array, one per input."""
    if values is None:
        return None
    try:
        found = arrays.to_numpy(arrays.as_array(values))
    except TypeError:
        found = np.asarray(values)
    if found.dtype == object:
        found = found.astype(str)
    if found.shape != (size,):
        raise ValueError(f"{name} must be one for each input, shape ({size},). Got {found.shape}.")
    return found


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
