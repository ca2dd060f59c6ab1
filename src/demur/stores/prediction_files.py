"""The predictions of all members, in one file or in many, read a tile at a time."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np

from demur.stores.array_files import open_array
from demur.stores.errors import StoreError
from demur.stores.mapped_arrays import StoredArray
from demur.stores.member_files import MemberFile
from demur.stores.paths import NAMED_SUFFIXES, find_files
from demur.stores.row_columns import merge_columns
from demur.stores.spool import Spool
from demur.stores.table_columns import TableColumns
from demur.stores.urls import blame_url, find_url, show_place
from demur.stores.zarr_arrays import is_zarr, open_columns, read_names

Outcome = Literal["classes", "binary", "multilabel", "points", "gaussian"]
"""What is predicted for each input: one of several classes, yes or no for each task, a set of labels, a
number for each task, or one number by its mean and variance."""

_LAST_AXIS = {"classes": "classes", "multilabel": "labels", "gaussian": "(mean, variance)"}
"""What the numbers of one prediction are; of a yes or no, and of a number, there is just one."""


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
        How many there are of each; each pixel and each task counts as an input.
    outcome
        What is predicted.
    batch
        How many inputs there are, then how many pixels or tasks each has.
    names
        Names of the classes, labels or tasks; None where no file has any.
    first
        The number of the first input; 0, unless these are a `window` of others.
    """

    def __init__(
        self,
        sources: Sequence[MemberFile],
        spool: Spool,
        outcome: Outcome = "classes",
        id_column: str | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        self.sources = tuple(sources)
        self.outcome: Outcome = outcome
        self.first = 0
        self.batch, self.classes = sources[0].batch, sources[0].classes
        self.names = next((source.names for source in sources if source.names is not None), None)
        self.inputs = math.prod(self.batch)
        self.members = sources[-1].members.stop
        self.itemsize = max(part.dtype.itemsize for source in sources for part in source.parts)
        # Files with the members of an input side by side are read fastest with all members at once.
        self.members_together = any(source.members_together for source in sources)
        self._spool = spool
        self._beside = id_column, keep

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """What tables and stores have beside the predictions, one value for each input."""
        inputs = slice(self.first, self.first + self.batch[0])
        tables = [
            (each.label, {name: values[inputs] for name, values in each.columns.items()})
            for each in self.sources
        ]
        return merge_columns(tables, *self._beside)

    def check_columns(self) -> None:
        """Raise a `StoreError` where columns beside the predictions do not fit; stores are read later."""
        for source in self.sources:
            for name, values in source.columns.items():
                if values.shape != self.batch[:1]:
                    raise StoreError(
                        f"{source.label}: expected one value of {name} for each of {self.batch[0]} inputs, "
                        f"got shape {values.shape}"
                    )
        stored = any(is_zarr(source.path) for source in self.sources)
        merge = self.window(0, 1) if stored else self
        merge.columns  # noqa: B018

    def window(self, start: int, stop: int) -> Predictions:
        """Return the predictions for some inputs alone, from the same files."""
        found = copy.copy(self)
        found.__dict__.pop("columns", None)
        found.first, found.batch = self.first + start, (stop - start, *self.batch[1:])
        found.inputs = math.prod(found.batch)
        return found

    @property
    def is_window(self) -> bool:
        """Whether the files have other inputs, too."""
        return self.batch[0] != self.sources[0].batch[0]

    @property
    def tasks(self) -> tuple[str, ...] | None:
        """Names of the tasks, where there are several: those of columns, or task_0, task_1 and so on."""
        if self.outcome not in ("binary", "points") or len(self.batch) != 2:
            return None
        return self.names or tuple(f"task_{index}" for index in range(self.batch[1]))

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes or labels: those of columns, or label_0, label_1 and so on."""
        return self.names or tuple(f"label_{index}" for index in range(self.classes))

    def chunks(self, inputs: slice, members: int) -> Iterator[Chunk]:
        """Yield predictions for some inputs, at most `members` members at a time, each of one type."""
        skipped = self.first * math.prod(self.batch[1:])
        inputs = slice(inputs.start + skipped, inputs.stop + skipped)
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
    axis: int | None = 0,
    class_axis: int = -1,
    outcome: Outcome = "classes",
    id_column: str | None = None,
    keep: Sequence[str] = (),
    directory: str | os.PathLike[str] | None = None,
) -> Predictions:
    """Open the predictions of all members.

    Parameters
    ----------
    names
        Files, `file.npz:name`, or globs. The files of a glob come in natural order: 9 before 10.
    axis
        Where a file that holds several members has them; None: each file is one member.
    class_axis
        Where the classes or labels are: 2 for images (members, inputs, classes, height, width).
    outcome
        What is predicted. "classes", "multilabel": two axes are one member (inputs, classes), more are
        several (members, inputs, ..., classes). "binary", "points": one axis or two are one member
        (inputs, tasks), more are several. "gaussian": as "classes", with mean and variance last; or a file
        with two arrays, mean and variance, (members, inputs) each.
    id_column, keep
        Columns of tables that are no predictions: the one that names inputs, and others.
    directory
        Where formats that cannot be mapped are unpacked; None for the system's.

    Returns
    -------
    Predictions
        With the members of all files, in their order. Columns of tables are matched by their names.

    Raises
    ------
    StoreError
        A file cannot be read, or does not fit the first one.
    """
    sources: list[MemberFile] = []
    beside = [*keep, *([] if id_column is None else [id_column])]
    with contextlib.ExitStack() as on_error:
        spool = on_error.enter_context(Spool(None if directory is None else Path(directory)))
        for path, name in find_files(names):
            place = show_place(path)
            label = place if name is None else f"{place}:{name}"
            other = next((source for source in sources if source.names is not None), None)
            table = TableColumns(
                beside,
                wanted=("mean", "variance") if outcome == "gaussian" else (),
                order=None if other is None else other.names,
                source="" if other is None else other.label,
                single_cells=outcome in ("binary", "multilabel", "points"),
            )
            url = None if is_zarr(path) else find_url(path)
            local = path if url is None else spool.fetch(url)
            with blame_url(place, local):
                parts = _open_parts(local, name, spool, table, outcome)
            first = sources[-1].members.stop if sources else 0
            axes = _find_axes(label, parts, outcome, axis, class_axis)
            stored = is_zarr(path)
            columns = open_columns(path, beside) if stored else table.columns
            named = read_names(path) if stored else table.names
            source = MemberFile(local, path, label, parts, *axes, first, named, columns)
            _check_classes(source, outcome)
            if sources and (source.batch, source.classes) != (sources[0].batch, sources[0].classes):
                raise StoreError(
                    f"{label}: expected {_describe_sizes(sources[0], outcome)}, as in {sources[0].label}, "
                    f"got {_describe_sizes(source, outcome)}"
                )
            sources.append(source)
        found = Predictions(sources, spool, outcome, id_column, keep)
        found.check_columns()
        on_error.pop_all()
    return found


def _open_parts(
    path: Path, name: str | None, spool: Spool, table: TableColumns, outcome: Outcome
) -> tuple[StoredArray, ...]:
    """Open the array of a file; or two, where it has a mean and a variance."""
    if outcome == "gaussian" and name is None and path.suffix.lower() in NAMED_SUFFIXES:
        try:
            parts = open_array(path, "mean", spool), open_array(path, "variance", spool)
        except StoreError as error:
            with contextlib.suppress(StoreError):
                return (open_array(path, None, spool),)
            raise error from None
        if parts[0].shape != parts[1].shape:
            raise StoreError(
                f"{path}: expected mean and variance of one shape, got {parts[0].shape} and {parts[1].shape}"
            )
        return parts
    return (open_array(path, name, spool, table),)


def _find_axes(
    label: str, parts: tuple[StoredArray, ...], outcome: Outcome, axis: int | None, class_axis: int
) -> tuple[int | None, int | None]:
    """Return where an array has its members, and where the numbers of a prediction."""
    shape = parts[0].shape
    axes = len(shape)
    last = None if len(parts) > 1 else _LAST_AXIS.get(outcome)
    one = 1 if len(parts) > 1 else 2  # axes of one member, at most
    if axes < (1 if last is None else 2):
        last = last or "tasks"
        other = ", or say --binary or --points" if axes == 1 and outcome == "classes" else ""
        raise StoreError(
            f"{label}: expected (inputs, {last}) or (members, inputs, {last}), got shape {shape}: "
            f"reshape it{other}"
        )
    where = {"axis": axis if axes > one else None, "class-axis": None if last is None else class_axis}
    for option, place in where.items():
        if place is not None and not -axes <= place < axes:
            raise StoreError(f"{label}: expected an --{option} of shape {shape}, got {place}: count from 0")
    members, classes = (None if place is None else place % axes for place in where.values())
    if members is not None and members == classes:
        raise StoreError(
            f"{label}: expected members and {last} on two axes of shape {shape}, got {axis} for --axis and "
            f"{class_axis} for --class-axis, which is the same"
        )
    return members, classes


def _check_classes(source: MemberFile, outcome: Outcome) -> None:
    """Raise a `StoreError` where a prediction has too few numbers, or too many."""
    if outcome == "classes" and source.classes < 2:
        raise StoreError(
            f"{source.label}: expected at least 2 classes, got 1, which is always right: if each number is "
            "for the answer yes, say --binary; for numbers that are predicted, --points"
        )
    if outcome == "gaussian" and source.classes != 2:
        raise StoreError(
            f"{source.label}: expected mean and variance, 2 numbers, on the last axis, got {source.classes}: "
            "or give a file with two arrays or columns named mean and variance"
        )


def _describe_sizes(source: MemberFile, outcome: Outcome) -> str:
    inputs, *others = source.batch
    tasks = source.class_axis is None and len(others) == 1
    inner = f", each of {' x '.join(map(str, others))}{' tasks' if tasks else ''}," if others else ""
    classes = {"classes": "classes", "multilabel": "labels"}.get(outcome)
    return f"{inputs} inputs{inner}" + (f" and {source.classes} {classes}" if classes else "")
