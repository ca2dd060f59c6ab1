"""Columns of scores, read back from .csv, .parquet, .npz or .json."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from demur.stores.arrays import StoreError
from demur.stores.output import SUFFIXES


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Read columns of equal length that `write_columns`, `demur score` or a user wrote.

    Parameters
    ----------
    path
        The file; its suffix says the format. Columns of whole numbers are integers, of other numbers floats;
        all else, and the column `id`, is text. Infinity is `inf`.

    Raises
    ------
    StoreError
        The file is missing, foreign or damaged, or its columns differ in length.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise StoreError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}, got {suffix!r}")
    read = {".csv": from_csv, ".parquet": from_parquet, ".npz": from_npz, ".json": from_json}[suffix]
    try:
        columns = read(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise StoreError(
            f"{path}: expected columns of one length, with a row at least, got {sorted(lengths)}"
        )
    return columns


def from_csv(path: Path) -> dict[str, np.ndarray]:
    """Read a table with names in its first line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path}: expected text in UTF-8 with commas, got something else") from error
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise StoreError(
                f"{path}: expected {len(names)} cells in each line, as in the first, "
                f"got {len(row)} in line {number}"
            )
    names = [name.strip() for name in names]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise StoreError(f"{path}: expected each column once, got {sorted(twice)[0]!r} twice")
    return {
        name: typed(name, list(cells)) for name, cells in zip(names, zip(*rows, strict=True), strict=False)
    }


def typed(name: str, cells: list[Any]) -> np.ndarray:
    """Return a column as integers, floats or text, the first that it can be.

    Examples
    --------
    >>> typed("a", ["1", "2"]), typed("b", ["1", "inf"]), typed("id", ["007"])
    (array([1, 2]), array([ 1., inf]), array(['007'], dtype='<U3'))
    """
    if name != "id":
        for kind in (np.int64, np.float64):
            try:
                column = np.array(cells, dtype=kind)
            except (ValueError, TypeError, OverflowError):
                continue
            if kind is np.float64 or not any(isinstance(cell, float) for cell in cells):
                return column
    return np.array([str(cell) for cell in cells], dtype=str)


def from_json(path: Path) -> dict[str, np.ndarray]:
    """Read what `demur score --out scores.json` writes: columns under `scores`."""
    expected = f"{path}: expected a JSON object with columns under 'scores', as demur score writes it"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["scores"]
        columns = {str(name): typed(name, list(values)) for name, values in content.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{expected}, got something else") from error
    return columns


def from_npz(path: Path) -> dict[str, np.ndarray]:
    """Read one array a column; nothing that would run code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: np.asarray(file[name]) for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError, AttributeError, TypeError) as error:
        raise StoreError(f"{path}: expected an .npz file of columns, got a damaged or foreign one") from error
    for name, values in columns.items():
        if values.ndim != 1 or values.dtype.kind not in "fiubU":
            raise StoreError(
                f"{path}: expected columns of numbers or text, (inputs,), got {name} of {values.dtype} "
                f"and shape {values.shape}"
            )
    return columns


def from_parquet(path: Path) -> dict[str, np.ndarray]:
    """Read a Parquet table."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise StoreError(
            f"{path}: expected pyarrow to read it with, found none: pip install 'demur[tables]'"
        ) from error
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise StoreError(f"{path}: expected a Parquet file, got a damaged or foreign one") from error
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    return {
        name: values if values.dtype.kind in "fiub" else typed("id", values.tolist())
        for name, values in columns.items()
    }
