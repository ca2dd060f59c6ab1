"""Files of columns by name, as scores and labels: .csv, .parquet, .npz, .json and .zarr, also at URLs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from demur import atomic
from demur.reading import parse_json, read_arrays
from demur.stores.block_store import BlockStore, check_new_store, open_columns_of
from demur.stores.column_names import list_names
from demur.stores.csv_files import TEXT_COLUMNS, is_number, parse_cells, read_csv_columns, write_csv
from demur.stores.errors import StoreError
from demur.stores.json_values import json_columns
from demur.stores.parquet_files import check_pyarrow, read_parquet_columns, write_parquet
from demur.stores.paths import explain_memory, open_binary
from demur.stores.urls import exists_at, fetch_file, find_url, show_place, store_file

COLUMN_BLOCK = 1 << 18
"""Inputs in a block of a store of columns."""

COLUMN_SUFFIXES = (".csv", ".parquet", ".npz", ".json", ".zarr")


def read_columns(path: Path, *, nameless: str | None = None) -> dict[str, np.ndarray]:
    """Read columns of equal length by their names: numbers as numbers, `id` and anything else as text.

    Parameters
    ----------
    path
        .csv with names in the first line, .parquet, .npz, .json with the columns under `scores` or by
        themselves, or a .zarr store of scores; also a `Path` of a URL.
    nameless
        What to call a single column of numbers in a .csv that has no name.

    Raises
    ------
    StoreError
        The file is missing, damaged, or holds something else.
    """
    suffix, url = path.suffix.lower(), find_url(path)
    if suffix in COLUMN_SUFFIXES[:-1] and url is not None:
        with fetch_file(url) as copy:
            return read_columns(copy, nameless=nameless)
    if suffix not in COLUMN_SUFFIXES:
        raise StoreError(
            f"{show_place(path)}: expected scores in a file that ends in {', '.join(COLUMN_SUFFIXES)}, got "
            f"{repr(suffix) if suffix else 'no suffix'}: "
            "for predictions say --logits, --probs or --log-probs"
        )
    with explain_memory(path):
        found = read_csv_columns(path, nameless=nameless) if suffix == ".csv" else _READERS[suffix](path)
    return check_columns(path, found)


def pick_column(columns: Mapping[str, np.ndarray], name: str, path: object) -> np.ndarray:
    """Return one column; raise a `StoreError` that lists the columns where there is none of that name."""
    if name not in columns:
        raise StoreError(f"{path}: expected a column {name}, got {list_names(columns)}")
    return columns[name]


def pick_numbers(columns: Mapping[str, np.ndarray], name: str, path: object) -> np.ndarray:
    """Return one column of numbers; raise a `StoreError` that quotes the first cell that is not one."""
    values = pick_column(columns, name, path)
    if values.dtype.kind not in "fiub":
        odd = next((row for row, cell in enumerate(values) if not is_number(cell)), 0)
        raise StoreError(
            f"{path}: expected numbers in {name}, got the text {str(values[odd])[:40]!r} at input {odd}"
            f"{f', line {odd + 2}' if Path(str(path)).suffix.lower() == '.csv' else ''}"
        )
    return values


def check_columns(path: Path, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return columns in this machine's byte order; raise a `StoreError` unless they have one length."""
    lengths = set()
    for name, values in columns.items():
        if values.ndim != 1:
            raise StoreError(
                f"{path}: expected columns of one value per input, got {name} of shape {values.shape}: "
                "for predictions say --logits, --probs or --log-probs"
            )
        if values.dtype.kind not in "fiubU":
            raise StoreError(f"{path}: expected numbers or text, got {name} of {values.dtype}")
        lengths.add(len(values))
    if len(lengths) != 1 or lengths == {0}:
        raise StoreError(
            f"{path}: expected columns of one length and at least one row, got "
            f"{' and '.join(str(length) for length in sorted(lengths)) or 'no column'}"
        )
    # Arrow takes no other byte order than the machine's.
    return {
        name: values.astype(values.dtype.newbyteorder("="), copy=False) for name, values in columns.items()
    }


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with open_binary(path) as file:
        try:
            return read_arrays(file)
        except ValueError as error:
            raise StoreError(f"{path}: expected a NumPy archive of columns, got {error}") from error


def _read_json(path: Path) -> dict[str, np.ndarray]:
    with open_binary(path) as file:
        try:
            held = parse_json(file.read().decode("utf-8-sig"))
            columns = held.get("scores", held)
            return {name: _parse_json_column(name, values) for name, values in columns.items()}
        except (ValueError, AttributeError, TypeError, OverflowError) as error:
            why = f" ({error})" if isinstance(error, ValueError) else ""
            raise StoreError(
                f"{path}: expected a JSON object of columns, as demur score writes, got something else{why}"
            ) from error


def _parse_json_column(name: str, values: Any) -> np.ndarray:
    """Return a list as a column; numbers that JSON cannot write are text, such as "inf"."""
    kinds = {type(each) for each in values}
    if not isinstance(values, list) or not kinds <= {bool, int, float, str}:
        raise TypeError
    if name in TEXT_COLUMNS:
        return np.array(list(map(str, values)))
    return np.array(values) if kinds <= {bool, int, float} else parse_cells([str(each) for each in values])


def _read_store(path: Path) -> dict[str, np.ndarray]:
    return {name: column[:] for name, column in open_columns_of(path, "scores")[0].items()}


_READERS = {
    ".parquet": read_parquet_columns,
    ".npz": _read_npz,
    ".json": _read_json,
    ".zarr": _read_store,
}


def check_output(path: Path, *, force: bool = False) -> None:
    """Raise a `StoreError` if `write_columns` could not write to `path`; call it before long work."""
    suffix, url = path.suffix.lower(), find_url(path)
    if suffix not in COLUMN_SUFFIXES:
        raise StoreError(
            f"{show_place(path)}: expected an output file that ends in {', '.join(COLUMN_SUFFIXES)}, got "
            f"{repr(suffix) if suffix else 'no suffix'}"
        )
    if suffix == ".parquet":
        check_pyarrow(path)
    if suffix == ".zarr":
        check_new_store(path, force=force)
    elif url is not None:
        if not force and exists_at(url):
            raise _exists_error(path)
    elif path.is_dir():
        raise StoreError(f"{path}: expected an output file, got a directory: add a file name")
    elif path.exists() and not force:
        raise _exists_error(path)
    if url is not None:
        return
    parent = atomic.follow_link(path).parent
    if not parent.is_dir():
        raise StoreError(f"{path}: expected a directory to write to, found none: create {parent} first")
    if not os.access(parent, os.W_OK):
        raise StoreError(f"{path}: expected a directory to write to, got one that is read-only")


def write_columns(
    path: Path,
    columns: Mapping[str, np.ndarray],
    *,
    facts: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write columns of equal length to a file, in the format of its suffix.

    The file appears at once and whole, or not at all; a store says when it is complete.

    Parameters
    ----------
    path
        The file, or a `Path` of a URL. It must not exist, unless `force`.
    columns
        Columns by name. In text, infinity is `inf`; in JSON, which has no such number, `"inf"`.
    facts
        What a .json file or a store says besides its `scores`; other formats have no place for it.
    force
        Replace an existing file.
    """
    check_output(path, force=force)
    url = find_url(path)
    if path.suffix.lower() == ".zarr":
        _write_store(path, columns, facts or {}, force=force)
        return
    if url is not None:
        with store_file(url) as copy:
            write_columns(copy, columns, facts=facts)
        return
    with explain_write_errors(path), atomic.open_file(path, replace=force) as file:
        _write(file, path.suffix.lower(), columns, facts or {})


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raise a `StoreError` where the system raises an error about writing a file."""
    try:
        yield
    except FileExistsError as error:  # somebody else was faster
        raise _exists_error(path) from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


def _write_store(
    path: Path, columns: Mapping[str, np.ndarray], facts: Mapping[str, Any], *, force: bool
) -> None:
    inputs = len(next(iter(columns.values())))
    store = BlockStore(path, holds="scores", block=COLUMN_BLOCK, inputs=inputs, force=force)
    for number, start in enumerate(range(0, inputs, COLUMN_BLOCK)):
        store.write(number, {name: each[start : start + COLUMN_BLOCK] for name, each in columns.items()})
    store.finish(inputs, facts)


def _exists_error(path: Path) -> StoreError:
    return StoreError(
        f"{show_place(path)}: expected a new file, got one that exists: choose another name or add --force"
    )


def _write(file: IO[bytes], suffix: str, columns: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    if suffix == ".npz":
        arrays: dict[str, Any] = dict(columns)
        np.savez(file, **arrays)
    elif suffix == ".parquet":
        write_parquet(file, columns)
    elif suffix == ".json":
        whole = {**facts, "scores": json_columns(columns)}
        file.write(json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n")
    else:
        write_csv(file, columns)
