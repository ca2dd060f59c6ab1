"""The predictions of all members, in one file or in many, read a tile at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from demur.stores.array_files import open_array
from demur.stores.errors import StoreError
from demur.stores.mapped_arrays import StoredArray, decode
from demur.stores.paths import find_files
from demur.stores.spool import Spool


@dataclass(frozen=True)
class MemberFile:
    """The members that one file holds.

    Attributes
    ----------
    path
        The file.
    label
        The file, and the array in it where one is named: what messages say.
    stored
        The array.
    axis
        Where its members are; None if it is one member.
    first
        The place of its first member among all members.
    """

    path: Path
    label: str
    stored: StoredArray
    axis: int | None
    first: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of inputs and of classes."""
        shape = self.stored.shape
        return shape[0 if self.axis == 1 else -2], shape[-1]

    @property
    def members(self) -> range:
        """Which of all members these are."""
        count = 1 if self.axis is None else self.stored.shape[self.axis]
        return range(self.first, self.first + count)

    @property
    def members_together(self) -> bool:
        """Whether the members of one input are closer together in the file than its inputs are."""
        members, inputs, _ = self._map().strides
        return self.axis is not None and members < inputs

    def read(self, members: range, inputs: slice) -> np.ndarray:
        """Return the predictions of those of `members` that are here: (members, inputs, classes), a copy."""
        here = slice(
            max(members.start, self.first) - self.first,
            max(members.stop, self.first) - self.first,
        )
        return decode(self._map()[here, inputs], self.stored.precision)

    def _map(self) -> np.ndarray:
        """Map all raw values, (members, inputs, classes)."""
        array = self.stored.map()
        return array[None] if self.axis is None else np.moveaxis(array, self.axis, 0)


@dataclass(frozen=True)
class Chunk:
    """Predictions of some members for some inputs.

    Attributes
    ----------
    values
        (members, inputs, classes), all of one type.
    members
        Which members these are.
    precision
        The type that the numbers came in, which says how exact they are.
    """

    values: np.ndarray
    members: range
    precision: str


class Predictions:
    """The predictions of all members; a context manager.

    Attributes
    ----------
    sources
        The files, in order: members are counted through them.
    members, inputs, classes
        How many there are of each.
    """

    def __init__(self, sources: Sequence[MemberFile], spool: Spool) -> None:
        self.sources = tuple(sources)
        self.inputs, self.classes = sources[0].sizes
        self.members = sources[-1].members.stop
        self.itemsize = max(source.stored.dtype.itemsize for source in sources)
        # Files with the members of an input side by side are read fastest with all members at once.
        self.members_together = any(source.members_together for source in sources)
        self._spool = spool

    def chunks(self, inputs: slice, members: int) -> Iterator[Chunk]:
        """Yield predictions for some inputs, at most `members` members at a time, each of one type."""
        for start in range(0, self.members, members):
            wanted = range(start, min(start + members, self.members))
            pieces: list[np.ndarray] = []
            begin, kind = start, None
            for source in self.sources:
                if source.members.stop <= wanted.start or source.members.start >= wanted.stop:
                    continue
                piece = source.read(wanted, inputs)
                if kind not in (None, (piece.dtype, source.stored.precision)):
                    yield _join(pieces, begin, kind[1])
                    begin, pieces = begin + sum(len(each) for each in pieces), []
                kind = (piece.dtype, source.stored.precision)
                pieces.append(piece)
            if kind is not None:
                yield _join(pieces, begin, kind[1])

    def source_of(self, member: int) -> MemberFile:
        """Return the file that holds a member."""
        return next(source for source in self.sources if member in source.members)

    def close(self) -> None:
        """Free the space that unpacked formats take."""
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _join(pieces: list[np.ndarray], first: int, precision: str) -> Chunk:
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return Chunk(values, range(first, first + len(values)), precision)


def open_predictions(
    names: Sequence[str | os.PathLike[str]],
    *,
    axis: int = 0,
    directory: str | os.PathLike[str] | None = None,
) -> Predictions:
    """Open the predictions of all members.

    Parameters
    ----------
    names
        Files, `file.npz:name`, or globs. The files of a glob come in natural order: 9 before 10.
    axis
        Where a file with three axes has its members: 0 or 1. Classes are always last.
    directory
        Where formats that cannot be mapped are unpacked; None for the system's.

    Returns
    -------
    Predictions
        With the members of all files, in their order.

    Raises
    ------
    StoreError
        A file cannot be read, or does not fit the first one.
    """
    if axis not in (0, 1, -2, -3):
        raise StoreError(
            f"axis: expected 0 or 1, where the members of (members, inputs, classes) or (inputs, "
            f"members, classes) are, got {axis}: classes are last"
        )
    sources: list[MemberFile] = []
    with contextlib.ExitStack() as on_error:
        spool = on_error.enter_context(Spool(None if directory is None else Path(directory)))
        for path, name in find_files(names):
            label = str(path) if name is None else f"{path}:{name}"
            stored = open_array(path, name, spool)
            if len(stored.shape) not in (2, 3):
                raise StoreError(
                    f"{label}: expected (inputs, classes) or (members, inputs, classes), "
                    f"got shape {stored.shape}: reshape it"
                )
            first = sources[-1].members.stop if sources else 0
            source = MemberFile(path, label, stored, axis % 3 if len(stored.shape) == 3 else None, first)
            if sources and source.sizes != sources[0].sizes:
                raise StoreError(
                    f"{label}: expected {_describe_sizes(sources[0])}, as in {sources[0].label}, got "
                    f"{_describe_sizes(source)}"
                )
            sources.append(source)
        on_error.pop_all()
    return Predictions(sources, spool)


def _describe_sizes(source: MemberFile) -> str:
    return "{} inputs and {} classes".format(*source.sizes)
