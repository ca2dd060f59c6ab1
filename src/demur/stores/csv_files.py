"""CSV files: the one place that reads and writes them.

read_csv_blocks    predictions of one member, rows of numbers, a block at a time
read_csv_columns   columns by name, each of integers, numbers or text
write_csv          columns by name
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from demur.stores.column_names import ID_NAMES, list_names, refuse_scores
from demur.stores.errors import StoreError
from demur.stores.paths import open_binary
from demur.stores.table_columns import TableColumns

TEXT_COLUMNS = frozenset({"id", "text", "token"})
"""Columns of text, also where all of it looks like numbers."""
_BLOCK_BYTES = 8 << 20
"""Bytes of text that are held at a time."""
_ROWS_AT_ONCE = 65536
"""Rows of cells that are held at a time."""
_CELLS_AT_ONCE = 1 << 20
"""Cells of a table with text in it that are held at a time."""


@contextlib.contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    """Open a file as CSV has to be read; raise a `StoreError` where it turns out to be something else."""
    with open_binary(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        try:
            yield file
        except (UnicodeDecodeError, csv.Error) as error:
            raise StoreError(f"{path}: expected a table in UTF-8 with commas, got something else") from error


def read_csv_blocks(path: Path, table: TableColumns | None = None) -> Iterator[np.ndarray]:
    """Yield the predictions of a table, as float64; the first line may name the columns.

    Parameters
    ----------
    path
        The file. Where all cells of an input are empty, it has no prediction: NaN.
    table
        Collects the names, and the columns beside the predictions; None where there must be none.
    """
    table = table or TableColumns()
    with _open_text(path) as file:
        number, first = _next_cells(file)
        between, second = _next_cells(file)
        refuse_scores(path, [name for name in first if not table.is_beside(name)])
        # Without a name, a first column of text holds the row names of pandas.
        unnamed = first[:1] in ([""], ["Unnamed: 0"])
        names = ["id", *first[1:]] if unnamed else first
        texts = [bool(cell) and not is_number(cell) for cell in second]
        apart = [text or table.is_beside(name) for text, name in zip(texts, names, strict=False)]
        if any(apart) and len(second) == len(first) and not (unnamed and not texts[0]):
            rest = [
                [cell for cell, out in zip(row, apart, strict=True) if not out] for row in (names, second)
            ]
            if not rest[0]:
                raise _number_error(path, second[0], number + between + 2)
            if _is_header(path, *rest):
                file.seek(0)
                yield from _read_mixed_rows(path, file, names, texts, table)
                return
        columns, header = len(first), _is_header(path, first, second)
        order = table.choose(path, first, [False] * columns) if header else list(range(columns))
        number += header
        file.seek(0)
        for _ in range(number):
            file.readline()
        yield np.empty((0, len(order)))
        while lines := file.readlines(_BLOCK_BYTES):
            block = _parse_lines(path, lines, number, columns, table.single_cells)
            yield block if order == list(range(columns)) else block[:, order]
            number += len(lines)


def _read_mixed_rows(
    path: Path, file: TextIO, names: list[str], texts: list[bool], table: TableColumns
) -> Iterator[np.ndarray]:
    """Yield the predictions of a table that has other columns, too; its first line names them."""
    reader = csv.reader(file, strict=True)
    filled = ([cell.strip() for cell in row] for row in reader if any(map(str.strip, row)))
    next(filled)
    chosen = table.choose(path, names, texts)
    beside = [place for place in range(len(names)) if place not in chosen]
    yield np.empty((0, len(chosen)))
    numbers: list[list[float]] = []
    others: list[list[str]] = []
    for row in itertools.chain(filled, [None]):
        if row is None or len(numbers) * len(names) >= _CELLS_AT_ONCE:
            for place, cells in zip(beside, zip(*others, strict=True), strict=True) if others else ():
                textual = texts[place] or names[place].lower() in ID_NAMES
                table.add(names[place], np.array(cells) if textual else parse_cells(cells))
            yield np.array(numbers).reshape(-1, len(chosen))
            numbers, others = [], []
        if row is None:
            return
        if len(row) != len(names):
            raise _ragged_error(path, len(names), len(row), reader.line_num)
        numbers.append(_parse_numbers(path, [row[c] for c in chosen], reader.line_num, table.single_cells))
        others.append([row[c] for c in beside])
        for place in beside:
            if texts[place] and is_number(row[place]) and not table.is_beside(names[place]):
                raise StoreError(
                    f"{path}: expected numbers or text in {names[place]}, got both, as {row[place]!r} in "
                    f"line {reader.line_num}: mend the text, or keep the column with --keep {names[place]}"
                )


def _parse_numbers(path: Path, cells: list[str], line: int, single_cells: bool) -> list[float]:
    """Return the numbers of a row; empty cells are NaN, single ones only where that makes sense."""
    if not any("_" in cell for cell in cells):  # Python takes 1_0 for 10
        with contextlib.suppress(ValueError):
            return list(map(float, cells))
    if not all(map(is_number, cells)):
        wrong = [cell for cell in cells if not is_number(cell) and (cell or not single_cells)]
        if any(wrong) or (wrong and any(cells)):
            raise _number_error(path, wrong[0], line)
    return [float(cell) if cell else float("nan") for cell in cells]


def read_csv_columns(
    path: Path, texts: frozenset[str] = TEXT_COLUMNS, nameless: str | None = None
) -> dict[str, np.ndarray]:
    """Read the columns of a table by the names in its first line.

    Parameters
    ----------
    path
        The file.
    texts
        Columns to read as text. Others are integers where all cells are, else numbers, else text.
    nameless
        What to call a single column of numbers that has no name.
    """
    with _open_text(path) as file:
        rows = csv.reader(file, strict=True)
        names = [name.strip() for name in next(rows, [])]
        if nameless and len(names) == 1 and is_number(names[0]):
            rows, names = itertools.chain([names], rows), [nameless]
        if not names or all(is_number(name) for name in names):
            raise StoreError(
                f"{path}: expected names of columns in the first line, got {list_names(names) or 'none'}"
            )
        if len(set(names)) < len(names) or "" in names:
            raise StoreError(f"{path}: expected a different name for each column, got {list_names(names)}")
        blocks: list[list[np.ndarray]] = [[] for _ in names]
        filled = filter(None, rows)
        while block := list(itertools.islice(filled, _ROWS_AT_ONCE)):
            try:
                columns = list(zip(*block, strict=True))
            except ValueError:
                columns = []
            if len(columns) != len(names):
                lengths = sorted({len(row) for row in block})
                raise StoreError(
                    f"{path}: expected {len(names)} cells in each row, as in the first, got "
                    f"{' and '.join(map(str, lengths))}"
                )
            for name, parts, cells in zip(names, blocks, columns, strict=True):
                parts.append(np.array(cells) if name in texts else parse_cells(cells))
    mixed = {
        name
        for name, parts in zip(names, blocks, strict=True)
        if 0 < sum(part.dtype.kind == "U" for part in parts) < len(parts)
    }
    if mixed:  # a number in one block is text in another
        return read_csv_columns(path, frozenset(texts | mixed), nameless)
    return {
        name: np.concatenate(parts) if parts else np.empty(0)
        for name, parts in zip(names, blocks, strict=True)
    }


def write_csv(file: IO[bytes], columns: Mapping[str, np.ndarray]) -> None:
    """Write columns under their names; numbers as short as they read back."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(_LineFeeds(text), lineterminator="\r\n")
    writer.writerow(columns)
    length = len(next(iter(columns.values())))
    for start in range(0, length, _ROWS_AT_ONCE):
        # NumPy's text of a float32 is the shortest that reads back as the same float32.
        block = [values[start : start + _ROWS_AT_ONCE].astype(str) for values in columns.values()]
        writer.writerows(zip(*block, strict=True))
    text.detach()  # flushes, and leaves the file open to its owner


class _LineFeeds:
    """Ends lines with a line feed alone; the writer quotes only what is in its own ends of lines."""

    def __init__(self, text: TextIO) -> None:
        self._text = text

    def write(self, line: str) -> None:
        self._text.write(line[:-2] + "\n")


def parse_cells(cells: Sequence[Any]) -> np.ndarray:
    """Return texts as a column of integers where all are, else of numbers, else of text."""
    if not any("_" in cell for cell in cells):  # Python takes 1_0 for 10
        for kind, dtype in ((int, np.int64), (float, np.float64)):
            with contextlib.suppress(ValueError, OverflowError):
                return np.array(list(map(kind, cells)), dtype)
    return np.array(list(map(str, cells)))


def _next_cells(file: TextIO) -> tuple[int, list[str]]:
    """Read up to a line that is not blank; return how many blank ones came before, and its cells."""
    blank = 0
    while line := file.readline():
        if line.strip():
            return blank, _split_cells(line)
        blank += 1
    return blank, []


def _split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _is_header(path: Path, first: list[str], second: list[str]) -> bool:
    """Tell whether the first line names the columns; raise a `StoreError` where nobody can tell."""
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
            f"{path}: expected one column per class, got a first column without a name: "
            "write the file without row numbers, in pandas with index=False"
        )
    # A number among other cells, or a text twice, is an input with a bad cell: parsing it says which.
    return bool(first) and len(set(first)) == len(first) and not any(map(is_number, first))


def is_number(cell: str) -> bool:
    """Tell whether a cell holds a number; 1_0, which Python takes for 10, is a name."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parse_lines(path: Path, lines: list[str], number: int, columns: int, single_cells: bool) -> np.ndarray:
    """Return the numbers of the lines that follow line `number`; empty lines do not count."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return np.empty((0, columns))
    try:
        block = np.loadtxt(filled, delimiter=",", comments=None, quotechar='"', ndmin=2)
    except ValueError:  # which does not say what is wrong, and knows no empty cells
        rows = []
        for at, line in enumerate(lines, start=number + 1):
            cells = _split_cells(line)
            if not any(cells) and len(cells) < 2:
                continue
            wrong = [cell for cell in cells if cell and not is_number(cell)]
            if not wrong and len(cells) != columns:
                raise _ragged_error(path, columns, len(cells), at) from None
            rows.append(_parse_numbers(path, cells, at, single_cells))
        return np.array(rows)
    if block.shape[1] != columns:
        raise _ragged_error(path, columns, block.shape[1], number + 1)
    return block


def _number_error(path: Path, cell: str, line: int) -> StoreError:
    expected = f"{path}: expected numbers with commas between them, got"
    if not cell:
        return StoreError(
            f"{expected} an empty cell in line {line}: fill it, or leave all numbers "
            "of the line empty where there is no prediction"
        )
    advice = ""
    if "%" in cell and is_number(cell.replace("%", "")):
        advice = ": write percentages as probabilities, 0.5 for 50%"
    elif ";" in cell or "\t" in cell:
        advice = ": write the table with commas between the columns, and points in numbers"
    return StoreError(f"{expected} {cell[:40]!r} in line {line}{advice}")


def _ragged_error(path: Path, expected: int, got: int, line: int) -> StoreError:
    return StoreError(
        f"{path}: expected {expected} numbers in each line, as in the first, got {got} in line {line}"
    )
