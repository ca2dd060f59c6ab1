"""Parquet files, by pyarrow: the one place that reads and writes them.

read_parquet_blocks    predictions of one member, rows of numbers, a block at a time
read_parquet_columns   columns by name
write_parquet          columns by name
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from demur.reading import check_expansion, check_memory
from demur.stores.column_names import refuse_labels, refuse_scores
from demur.stores.errors import StoreError
from demur.stores.paths import open_binary

if TYPE_CHECKING:
    from pyarrow import Schema

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


def read_parquet_blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield the rows of a table of numbers, in the widest type of its columns."""
    check_pyarrow(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Without these options Arrow reads ahead, and holds all row groups at once in the end.
    with _explain_damage(path), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
        refuse_scores(path, file.schema_arrow.names)
        names = _find_index_columns(path, file.schema_arrow)
        for field in file.schema_arrow:
            if field.name in names:
                raise StoreError(
                    f"{path}: expected one column per class, got {field.name}, row names of "
                    "pandas: write it with index=False"
                )
            if not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
                raise StoreError(
                    f"{path}: expected columns of numbers, got {field.name!r} of {field.type}: leave it out"
                )
        refuse_labels(path, file.schema_arrow.names)
        kinds = [field.type.to_pandas_dtype() for field in file.schema_arrow]
        dtype = np.result_type(*kinds, np.float16) if kinds else np.dtype(np.float64)
        rows = max(1, _BLOCK_BYTES // (8 * max(1, len(kinds))))
        for batch in file.iter_batches(batch_size=rows):
            block = np.empty((batch.num_rows, batch.num_columns), dtype)
            for index, column in enumerate(batch.columns):
                block[:, index] = column.to_numpy(zero_copy_only=False)
            yield block


def read_parquet_columns(path: Path) -> dict[str, np.ndarray]:
    """Read all columns by name, as numbers or text."""
    check_pyarrow(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    open_binary(path).close()
    try:
        size = count_parquet_bytes(path)
        check_expansion(path.stat().st_size, size)
        check_memory(size)
    except ValueError as error:
        raise StoreError(f"{path}: expected a table that fits into memory, got {error}") from error
    with _explain_damage(path):
        table = pq.read_table(path)
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


def write_parquet(file: IO[bytes], columns: Mapping[str, Any]) -> None:
    """Write columns under their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)), file)


def _find_index_columns(path: Path, schema: Schema) -> list[object]:
    """Return the columns that hold row names of pandas; entries that are not text are ranges."""
    try:
        return list((schema.pandas_metadata or {}).get("index_columns", []))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:  # any JSON, or none
        raise StoreError(
            f"{path}: expected the metadata that pandas writes, got damaged metadata: write it again"
        ) from error
