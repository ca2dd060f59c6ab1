"""Parquet files, by pyarrow: the one place that reads and writes them.

read_parquet_blocks    predictions of one member, rows of numbers, a block at a time
read_parquet_columns   columns by name
read_parquet_log       columns by name, of any type and with empty cells
write_parquet          columns by name; write_parquet_parts and read_parquet_parts, some rows at a time
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from demur.reading import check_expansion, check_memory
from demur.stores.column_names import ID_NAMES, refuse_scores
from demur.stores.errors import StoreError
from demur.stores.paths import open_binary
from demur.stores.table_columns import TableColumns
from demur.stores.urls import fetch_file, find_url

if TYPE_CHECKING:
    from pyarrow import Schema, Table

_BLOCK_BYTES = 8 << 20
"""Bytes of numbers that are held at a time."""


def check_pyarrow(path: Path) -> None:
    """Raise a `StoreError` unless pyarrow is installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise StoreError(
            f"{path}: expected pyarrow to be installed, found none: pip install 'demur[tables]'"
        ) from error


@contextlib.contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    """Raise a `StoreError` of one line where pyarrow finds a damaged file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path}: expected a Parquet file, got a damaged or foreign one "
            f"({str(error).splitlines()[0]}): write it again"
        ) from error


def count_parquet_bytes(path: Path) -> int:
    """Return the bytes of a table's numbers in its widest type; few bytes of the file may stand for many."""
    check_pyarrow(path)
    import pyarrow.parquet as pq

    with _explain_damage(path):
        found = pq.read_metadata(path)
    kinds = {found.schema.column(index).physical_type for index in range(len(found.schema))}
    return (4 if kinds <= {"FLOAT"} else 8) * found.num_rows * found.num_columns


def read_parquet_blocks(path: Path, table: TableColumns | None = None) -> Iterator[np.ndarray]:
    """Yield the predictions of a table, in the widest type of their columns; empty cells are NaN.

    Parameters
    ----------
    path
        The file.
    table
        Collects the names, and the columns beside the predictions. Row names of pandas are among these.
    """
    check_pyarrow(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table or TableColumns()
    # Without these options Arrow reads ahead, and holds all row groups at once in the end.
    with _explain_damage(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
        fields = list(file.schema_arrow)
        index_names = _find_index_columns(path, file.schema_arrow)
        for field in fields:
            if pa.types.is_nested(field.type):
                raise StoreError(
                    f"{path}: expected numbers or text, got {field.name!r} of {field.type}: leave it out"
                )
        refuse_scores(path, [field.name for field in fields if not table.is_beside(field.name)])
        names = ["id" if field.name == "__index_level_0__" else field.name for field in fields]
        numeric = [pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in fields]
        apart = [
            not number or field.name in index_names for number, field in zip(numeric, fields, strict=True)
        ]
        chosen = table.choose(path, names, apart)
        if not chosen:
            raise StoreError(f"{path}: expected columns of numbers, got none: one column per class")
        beside = [place for place in range(len(fields)) if place not in chosen]
        kinds = [fields[place].type.to_pandas_dtype() for place in chosen]
        dtype = np.result_type(*kinds, np.float16)
        rows = max(1, _BLOCK_BYTES // (8 * max(1, len(fields))))
        for batch in file.iter_batches(batch_size=rows):
            block = np.empty((batch.num_rows, len(chosen)), dtype)
            for index, place in enumerate(chosen):
                block[:, index] = batch.columns[place].to_numpy(zero_copy_only=False)
            for place in beside:
                table.add(names[place], _list_cells(batch.columns[place], names[place], numeric[place]))
            yield block


def _list_cells(column: Any, name: str, numeric: bool) -> np.ndarray:
    """Return cells that stand beside predictions: numbers as they are, all others and ids as text."""
    if numeric and name.lower() not in ID_NAMES:
        return column.to_numpy(zero_copy_only=False)
    if str(column.type) == "bool" and not column.null_count:
        return column.to_numpy(zero_copy_only=False).astype(np.int64)  # as labels, 0 and 1
    return np.array(["" if cell is None else str(cell) for cell in column.to_pylist()], dtype=str)


def read_parquet_columns(path: Path) -> dict[str, np.ndarray]:
    """Read all columns by name, as numbers or text."""
    table = _read_table(path)
    import pyarrow as pa

    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise StoreError(
                f"{path}: expected a value in each row, got {column.null_count} rows without one in {name}"
            )
        if pa.types.is_nested(column.type):
            raise StoreError(f"{path}: expected numbers or text, got {name} of {column.type}: leave it out")
        values = column.to_numpy()
        found[name] = values.astype(str) if values.dtype == object else values
    return found


def read_parquet_log(path: Path) -> dict[str, np.ndarray]:
    """Read all columns by name, as a log has them: empty numbers are NaN, all but numbers is text."""
    table = _read_table(path)
    import pyarrow as pa

    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        whole = pa.types.is_boolean(column.type) and not column.null_count
        found[name] = column.to_numpy() if whole else _list_cells(column, name, numeric)
    return found


def _read_table(path: Path) -> Table:
    """Read a table whole, if it fits into memory."""
    check_pyarrow(path)
    import pyarrow.parquet as pq

    open_binary(path).close()
    try:
        size = count_parquet_bytes(path)
        check_expansion(path.stat().st_size, size)
        check_memory(size)
    except ValueError as error:
        raise StoreError(f"{path}: expected a table that fits into memory, got {error}") from error
    with _explain_damage(path):
        return pq.read_table(path)


def write_parquet(file: IO[bytes], columns: Mapping[str, Any]) -> None:
    """Write columns under their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)), file, write_page_checksum=True)


def write_parquet_parts(file: IO[bytes], parts: Iterable[Mapping[str, Any]]) -> None:
    """Write columns that come a run of rows at a time, the same columns in each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for part in parts:
            table = pa.table(dict(part))
            if writer is None:
                writer = pq.ParquetWriter(file, table.schema, write_page_checksum=True)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def read_parquet_parts(path: Path, names: Sequence[str] | None, rows: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield columns by name, so many rows at a time, of a file that demur has written; None: all columns."""
    import pyarrow.parquet as pq

    url = find_url(path)
    with contextlib.ExitStack() as stack:
        path = path if url is None else stack.enter_context(fetch_file(url))
        file = stack.enter_context(pq.ParquetFile(path, pre_buffer=False))
        for batch in file.iter_batches(rows, columns=names):
            found = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
            yield {name: v.astype(str) if v.dtype == object else v for name, v in found.items()}


def _find_index_columns(path: Path, schema: Schema) -> list[object]:
    """Return the columns that hold row names of pandas; entries that are not text are ranges."""
    try:
        return list((schema.pandas_metadata or {}).get("index_columns", []))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:  # any JSON, or none
        raise StoreError(
            f"{path}: expected the metadata that pandas writes, got damaged metadata: write it again"
        ) from error
