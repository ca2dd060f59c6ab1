"""Logs, read as columns: JSON lines with one object each, and tables with empty cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from demur.reading import parse_json
from demur.stores.column_files import check_columns, read_columns
from demur.stores.csv_files import parse_cells
from demur.stores.errors import StoreError
from demur.stores.parquet_files import read_parquet_log
from demur.stores.paths import explain_memory, open_binary
from demur.stores.urls import fetch_file, find_url

LOG_SUFFIXES = (".csv", ".parquet", ".jsonl", ".npz", ".json")


def read_log(path: Path) -> dict[str, np.ndarray]:
    """Read columns of a log by name: as `read_columns` does, and from a .jsonl file.

    Columns of a .parquet file may have empty cells and be of any type, as they may in the others.
    """
    suffix, url = path.suffix.lower(), find_url(path)
    if suffix == ".parquet" and url is not None:
        with fetch_file(url) as copy:
            return read_log(copy)
    if suffix not in (".jsonl", ".parquet"):
        return read_columns(path)
    with explain_memory(path):
        if suffix == ".parquet":
            return check_columns(path, read_parquet_log(path))
        return _read_jsonl_columns(path)


def _read_jsonl_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of all objects; where one lacks a name, or has null, the cell is empty.

    A last line without an end that is no object yet is still being written, and left out.
    """
    with open_binary(path) as file:
        lines = file.read().split(b"\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line.decode("utf-8-sig"))
            if not isinstance(row, dict):
                raise ValueError
        except ValueError as error:
            if number == len(lines):
                break
            raise StoreError(
                f"{path}: expected a JSON object in each line, got something else in line {number}"
            ) from error
        rows.append(row)
    if not rows:
        raise StoreError(f"{path}: expected at least one line, got none")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _make_column(name, [row.get(name) for row in rows]) for name in names}


def _make_column(name: str, cells: list[Any]) -> np.ndarray:
    texts = ["" if cell is None else str(cell) for cell in cells]
    return np.array(texts) if name == "id" else parse_cells(texts)
