"""Tables of one member, .csv and .parquet: rows are inputs, columns classes. Read in blocks."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from demur.stores.arrays import StoreError

if TYPE_CHECKING:
    from pyarrow import Schema

BLOCK = 8 << 20
"""Bytes of text, or of numbers, that are held at a time."""

_NO_CLASSES = ("id", "index", "input", "label", "labels")
"""Names of columns that stand beside predictions, in any case of letters."""


def csv_blocks(path: Path) -> Iterator[np.ndarray]:
    """Rows of a CSV file, as float64; the first line may name the columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            number, first = _next_cells(file)
            _, second = _next_cells(file)
            refuse_scores(path, first)
            _refuse_beside(path, first)
            columns = len(first)
            number += _is_header(path, first, second)
            file.seek(0)
            for _ in range(number):
                file.readline()
            yield np.empty((0, columns))
            while lines := file.readlines(BLOCK):
                yield _parse(path, lines, number, columns)
                number += len(lines)
        except (UnicodeDecodeError, csv.Error) as error:
            raise StoreError(
                f"{path}: expected text in UTF-8, got something else: write numbers with commas"
            ) from error


def refuse_scores(path: Path, names: Iterable[str]) -> None:
    """Raise a `StoreError` where columns are those that `demur score` writes: scores are no predictions."""
    scores = [name for name in names if name.rpartition("_")[2] in ("total", "aleatoric", "epistemic")]
    if scores:
        raise StoreError(
            f"{path}: expected predictions, a column for each class, got scores, as {scores[0]}: they are "
            "what demur score writes, for demur evaluate and demur report"
        )


def _refuse_beside(path: Path, names: Iterable[str]) -> None:
    """Raise a `StoreError` where a column names or labels inputs: as a class it would count in silence."""
    for name in names:
        if name.lower() in _NO_CLASSES:
            raise StoreError(
                f"{path}: expected one column a class, got the column {name!r}, which by its name is no "
                "class: leave it out"
            )


def _next_cells(file: TextIO) -> tuple[int, list[str]]:
    """Return how many lines are blank, and the cells of the one behind them."""
    blank = 0
    while line := file.readline():
        if line.strip():
            return blank, _cells(line)
        blank += 1
    return blank, []


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _is_header(path: Path, first: list[str], second: list[str]) -> bool:
    """Whether the first line names the columns; where nobody can tell, a `StoreError`."""
    if first and all(is_number(cell) for cell in first):
        # pandas names columns 0, 1, ... if nobody else does. Rows of floats never look like that.
        counted = first == [str(column) for column in range(1, len(first) + 1)] and len(first) > 1
        if not counted and first != [str(column) for column in range(len(first))]:
            return False
        if counted or (len(second) == len(first) and all(cell.lstrip("-").isdecimal() for cell in second)):
            raise StoreError(
                f"{path}: expected inputs or names in line 1, got {','.join(first[:4])} which may "
                f"be either: name the columns, as class_0, or write {first[0]}.0 for {first[0]}"
            )
        return bool(second)
    names = [str(column) for column in range(len(first) - 1)]
    if first and first[0] in ("", "Unnamed: 0") and (first[1:] == names or not any(map(is_number, first))):
        raise StoreError(
            f"{path}: expected one column a class, got a first column without a name: "
            "write the file without row numbers, in pandas with index=False"
        )
    # A number among other cells, or a text twice, is an input with a bad cell: parsing it says which.
    return bool(first) and len(set(first)) == len(first) and not any(map(is_number, first))


def is_number(cell: str) -> bool:
    """Whether a cell holds a number; 1_0, which Python takes for 10, is a name."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parse(path: Path, lines: list[str], number: int, columns: int) -> np.ndarray:
    """Numbers of the lines that follow line `number`; empty lines do not count."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return np.empty((0, columns))
    try:
        block = np.loadtxt(filled, delimiter=",", comments=None, quotechar='"', ndmin=2)
    except ValueError as error:
        for at, line in enumerate(lines, start=number + 1):
            cells = _cells(line)
            wrong = [cell for cell in cells if not is_number(cell)]
            if wrong:
                raise StoreError(
                    f"{path}: expected numbers with commas between them, got {wrong[0][:40]!r} in line {at}"
                ) from error
            if cells and len(cells) != columns:
                raise _ragged(path, columns, len(cells), at) from error
        raise StoreError(f"{path}: expected a table of numbers, got: {error}") from error
    if block.shape[1] != columns:
        raise _ragged(path, columns, block.shape[1], number + 1)
    return block


def _ragged(path: Path, expected: int, got: int, line: int) -> StoreError:
    return StoreError(
        f"{path}: expected {expected} numbers in each line, as in the first, got {got} in line {line}"
    )


def parquet_blocks(path: Path) -> Iterator[np.ndarray]:
    """Rows of a Parquet file, in the widest type of its columns."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise StoreError(
            f"{path}: expected pyarrow to read it with, found none: pip install 'demur[tables]'"
        ) from error
    try:
        # Otherwise Arrow reads ahead, and holds all row groups at once in the end.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
            refuse_scores(path, file.schema_arrow.names)
            names = _index_columns(path, file.schema_arrow)
            for field in file.schema_arrow:
                if field.name in names:
                    raise StoreError(
                        f"{path}: expected one column a class, got {field.name}, row names of "
                        "pandas: write it with index=False"
                    )
                if not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
                    raise StoreError(
                        f"{path}: expected columns of numbers, got {field.name!r} of "
                        f"{field.type}: leave it out"
                    )
            _refuse_beside(path, file.schema_arrow.names)
            kinds = [field.type.to_pandas_dtype() for field in file.schema_arrow]
            dtype = np.result_type(*kinds, np.float16) if kinds else np.dtype(np.float64)
            rows = max(1, BLOCK // (8 * max(1, len(kinds))))
            for batch in file.iter_batches(batch_size=rows):
                block = np.empty((batch.num_rows, batch.num_columns), dtype)
                for index, column in enumerate(batch.columns):
                    block[:, index] = column.to_numpy(zero_copy_only=False)
                yield block
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path}: expected a Parquet file, got a damaged or foreign one "
            f"({str(error).splitlines()[0]}): write it again"
        ) from error


def _index_columns(path: Path, schema: Schema) -> list[object]:
    """Names of columns that pandas wrote row names to; those that are not text are ranges, and no columns."""
    try:
        return list((schema.pandas_metadata or {}).get("index_columns", []))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:  # any JSON, or none
        raise StoreError(
            f"{path}: expected what pandas says of its columns, got damaged metadata: write it again"
        ) from error
