"""The members that one file or store holds, and reading some inputs of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from demur.stores.mapped_arrays import StoredArray, decode
from demur.stores.zarr_arrays import ZarrArray, ZarrColumn


@dataclass(frozen=True)
class MemberFile:
    """The members that one file holds.

    Attributes
    ----------
    path
        The file, or a local copy of it.
    place
        The file, or its URL.
    label
        The file, and the array in it where one is named: what messages say.
    parts
        The array; or two, of means and of variances.
    axis
        Where its members are; None if it is one member.
    class_axis
        Where the numbers of one prediction are; None if each number is a prediction of its own.
    first
        The place of its first member among all members.
    names
        Names of the columns of a table; None where it has none.
    columns
        What a table or a store has beside the predictions, (inputs,) each.
    """

    path: Path
    place: Path
    label: str
    parts: tuple[StoredArray, ...]
    axis: int | None
    class_axis: int | None
    first: int
    names: tuple[str, ...] | None = None
    columns: Mapping[str, np.ndarray | ZarrColumn] = field(default_factory=dict)

    @property
    def stored(self) -> StoredArray:
        """The array, or the first of two."""
        return self.parts[0]

    @property
    def batch(self) -> tuple[int, ...]:
        """Number of inputs, then of pixels or tasks of each; a single task is none."""
        shape = self.stored.shape
        found = tuple(shape[axis] for axis in self._batch_axes())
        return found[:1] if self.class_axis is None and found[1:] == (1,) else found

    @property
    def input_axis(self) -> int:
        """Where the array has its inputs."""
        return self._batch_axes()[0]

    @property
    def classes(self) -> int:
        """How many numbers a prediction has."""
        return len(self.parts) if self.class_axis is None else self.stored.shape[self.class_axis]

    @property
    def members(self) -> range:
        """Which of all members these are."""
        count = 1 if self.axis is None else self.stored.shape[self.axis]
        return range(self.first, self.first + count)

    @property
    def members_together(self) -> bool:
        """Whether the members of one input are closer together in the file than its inputs are."""
        if isinstance(self.stored, ZarrArray):
            return self.axis is not None
        members, inputs, *_ = self._arrange(self.stored.map()).strides
        return self.axis is not None and members < inputs

    def read(self, members: range, inputs: slice) -> np.ndarray:
        """Return the predictions of those of `members` that are here: (members, inputs, classes), a copy."""
        here = slice(
            max(members.start, self.first) - self.first,
            max(members.stop, self.first) - self.first,
        )
        start, stop, _ = inputs.indices(math.prod(self.batch))
        inner = math.prod(self.batch[1:])
        found = []
        for part in self.parts:
            if isinstance(part, ZarrArray):
                raw, first = part.read_along(self._batch_axes()[0], start // inner, -(-stop // inner))
                coding = part.dtype.name
            else:
                raw, first, coding = part.map(), 0, part.precision
            views = _cut(self._arrange(raw)[here], start - first * inner, stop - first * inner)
            copies = [decode(view, coding) for view in views]
            del raw
            rows = [copy.reshape(len(copy), -1, copy.shape[-1]) for copy in copies]
            found.append(rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1))
        return found[0] if len(found) == 1 else np.concatenate(found, axis=-1)

    def _batch_axes(self) -> list[int]:
        return [axis for axis in range(len(self.stored.shape)) if axis not in (self.axis, self.class_axis)]

    def _arrange(self, array: np.ndarray) -> np.ndarray:
        """Return raw values as (members, ..., classes)."""
        order = self._batch_axes()
        order = order if self.axis is None else [self.axis, *order]
        order = order if self.class_axis is None else [*order, self.class_axis]
        array = array.transpose(order)
        array = array[None] if self.axis is None else array
        return array[..., None] if self.class_axis is None else array


def _cut(array: np.ndarray, start: int, stop: int) -> Iterator[np.ndarray]:
    """Yield views (members, ..., classes) of some inputs, counted in C order over all axes between.

    To reshape first would read the whole of a mapped file whose axes are not in that order.
    """
    if array.ndim == 3:
        yield array[:, start:stop]
        return
    inner = math.prod(array.shape[2:-1])
    first, last = -(-start // inner), stop // inner  # those that are wanted as a whole
    if first > last:
        yield from _cut(array[:, last], start - last * inner, stop - last * inner)
        return
    if start < first * inner:
        yield from _cut(array[:, first - 1], start - (first - 1) * inner, inner)
    if first < last:
        yield array[:, first:last]
    if stop > last * inner:
        yield from _cut(array[:, last], 0, stop - last * inner)
