"""Columns of scores, written to .csv, .parquet, .npz or .json: whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from demur.stores.arrays import StoreError

SUFFIXES = (".csv", ".parquet", ".npz", ".json")
_ROWS = 65536
"""Rows that are made into text at a time."""


def check_output(path: Path, *, force: bool = False) -> None:
    """Raise a `StoreError` if `write_columns` could not write to `path`: ask before the work."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise StoreError(
            f"{path}: expected an output file that ends in {', '.join(SUFFIXES)}, got "
            f"{repr(suffix) if suffix else 'no suffix'}"
        )
    if path.is_dir():
        raise StoreError(f"{path}: expected an output file, got a directory: add a file name")
    if path.exists() and not force:
        raise _exists(path)
    parent = _target(path).parent
    if not parent.is_dir():
        raise StoreError(f"{path}: expected a directory to write to, found none: create {parent} first")
    if not os.access(parent, os.W_OK):
        raise StoreError(f"{path}: expected a directory to write to, got one that is read-only")
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise StoreError(
                f"{path}: expected pyarrow to write it, found none: pip install 'demur[tables]'"
            ) from error


def make_directory(path: Path, *, force: bool = False) -> None:
    """Make a directory for results; raise a `StoreError` if it has files in it, unless `force`."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path}: expected a directory, got a file: choose another name")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise StoreError(
            f"{path}: expected an empty or new directory, got one with files in it: "
            "choose another name or add --force"
        )
    path.mkdir(parents=True, exist_ok=True)


def write_columns(
    path: Path,
    columns: Mapping[str, np.ndarray],
    *,
    facts: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write columns of equal length to a file, in the format of its suffix.

    The file appears at once and whole, or not at all.

    Parameters
    ----------
    path
        The file. It must not exist, unless `force`.
    columns
        Columns by name. In text, infinity is `inf`; in JSON, which has no such number, `"inf"`.
    facts
        What a .json file says besides its `scores`. Other formats have no place for it.
    force
        Replace an existing file.
    """
    check_output(path, force=force)
    with whole_file(path, force=force) as temporary, temporary.open("xb") as file:
        _write(file, path.suffix.lower(), columns, facts or {})


@contextlib.contextmanager
def whole_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield where to write a file that shall appear at `path` at once and whole, or not at all."""
    target = _target(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if force:
            os.replace(temporary, target)
        else:
            _appear(temporary, target)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _target(path: Path) -> Path:
    """Return the file that a link means: it is written, and the link stays."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _appear(temporary: Path, path: Path) -> None:
    """Give the file its name, unless somebody else took that name meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError:  # a file system without links: then the check before must do
        os.replace(temporary, path)


def _exists(path: Path) -> StoreError:
    return StoreError(f"{path}: expected a new file, got one that exists: choose another name or add --force")


def _write(file: IO[bytes], suffix: str, columns: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    if suffix == ".npz":
        arrays: dict[str, Any] = dict(columns)
        np.savez(file, **arrays)
    elif suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(columns)), file)
    elif suffix == ".json":
        whole = {**facts, "scores": json_columns(columns)}
        file.write(json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n")
    else:
        _write_csv(file, columns)


def _write_csv(file: IO[bytes], columns: Mapping[str, np.ndarray]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    length = len(next(iter(columns.values())))
    for start in range(0, length, _ROWS):
        # NumPy's text of a float32 is the shortest that reads back as the same float32.
        block = [values[start : start + _ROWS].astype(str) for values in columns.values()]
        writer.writerows(zip(*block, strict=True))
    text.detach()  # flushes, and leaves the file open to its owner


def json_columns(columns: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Columns as lists of what JSON can hold."""
    return {name: [json_number(value) for value in values] for name, values in columns.items()}


def json_number(value: Any) -> int | float | str:
    """A number as JSON can hold it: infinity as "inf", not-a-number as "nan"; text as it is.

    Examples
    --------
    >>> json_number(np.float32(0.1)), json_number(np.inf)
    (0.1, 'inf')
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if not math.isfinite(value):
        return str(float(value))
    return float(str(value))  # as short as in CSV: 0.1, not 0.10000000149011612
