"""Columns read back from files: scores that `demur score` and `Scores.save` wrote, and labels."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demur.stores.arrays import StoreError, open_binary
from demur.stores.names import split_name
from demur.stores.tables import is_number

SUFFIXES = (".csv", ".parquet", ".npz", ".json")
_LABELS = (*SUFFIXES, ".npy")
_LABEL_NAMES = ("label", "labels")
_ROWS = 65536
"""Rows of text that are held at a time."""


def read_columns(path: Path, *, nameless: str | None = None) -> dict[str, np.ndarray]:
    """Read columns of equal length by their names, numbers as numbers, other things and `id` as text.

    Parameters
    ----------
    path
        .csv with names in the first line, .parquet, .npz, or .json with the columns under `scores` or by
        themselves.
    nameless
        What to call a single column of numbers in a .csv that has no name.

    Raises
    ------
    StoreError
        The file is missing, damaged, or holds something else.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise StoreError(
            f"{path}: expected scores in a file that ends in {', '.join(SUFFIXES)}, got "
            f"{repr(suffix) if suffix else 'no suffix'}: "
            "for predictions say --logits, --probs or --log-probs"
        )
    found = _read_csv(path, nameless=nameless) if suffix == ".csv" else _READERS[suffix](path)
    return _checked(path, found)


def read_labels(written: str) -> dict[str, np.ndarray]:
    """Read labels: the column `label`, and `id` and `input` where the file has them.

    Parameters
    ----------
    written
        A file, .npy or as ``read_columns`` takes it; `file.npz:name` for one column of several.
    """
    path, name = split_name(written)
    if Path(path).suffix.lower() == ".npy":
        return {"label": _classes(_checked(Path(path), {"label": _read_npy(Path(path))})["label"])}
    if Path(path).suffix.lower() not in _LABELS:
        raise StoreError(
            f"{path}: expected labels in a file that ends in {', '.join(_LABELS)}, got "
            f"{Path(path).suffix.lower()!r}"
        )
    columns = read_columns(Path(path), nameless="label")
    if name is None:
        known = [each for each in _LABEL_NAMES if each in columns]
        rest = [each for each in columns if each not in ("input", "id")]
        if not known and len(rest) != 1:
            raise StoreError(
                f"{path}: expected a column named label, or a single one, got {_listed(columns)}: "
                f"write {path}:NAME"
            )
        name = (known or rest)[0]
    found = {"label": _classes(column_of(columns, name, path))}
    return found | {beside: columns[beside] for beside in ("input", "id") if beside in columns}


def _classes(labels: np.ndarray) -> np.ndarray:
    """Return labels as predictions are written: classes 0 and 1, not False and True."""
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels


def column_of(columns: Mapping[str, np.ndarray], name: str, path: object) -> np.ndarray:
    """Return one column; where there is none of that name, a `StoreError` says which there are."""
    if name not in columns:
        raise StoreError(f"{path}: expected a column {name}, got {_listed(columns)}")
    return columns[name]


def numbers_of(columns: Mapping[str, np.ndarray], name: str, path: object) -> np.ndarray:
    """Return one column of numbers; a `StoreError` quotes the first cell that is none."""
    values = column_of(columns, name, path)
    if values.dtype.kind not in "fiub":
        odd = next((row for row, cell in enumerate(values) if not is_number(cell)), 0)
        raise StoreError(
            f"{path}: expected numbers in {name}, got the text {str(values[odd])[:40]!r} at input {odd}"
            f"{f', line {odd + 2}' if Path(str(path)).suffix.lower() == '.csv' else ''}"
        )
    return values


def correct_of(
    columns: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray] | None,
    path: object,
    *,
    prediction: str = "prediction",
) -> np.ndarray:
    """Return where predictions are right.

    Parameters
    ----------
    columns
        Of the scores. The labels may be among them, as `label`, or else `correct` itself.
    labels
        What ``read_labels`` returned, for the same inputs in the same order; None if there is no such file.
    path
        What messages call the scores.
    prediction
        The column of predicted classes.
    """
    if labels is None and "label" not in columns:
        if "correct" in columns:
            return columns["correct"]
        raise StoreError(f"{path}: expected a column label, got none: give the labels by --labels")
    found = columns if labels is None else labels
    truth, guess = found["label"], column_of(columns, prediction, path)
    if len(truth) != len(guess):
        raise StoreError(f"labels: expected {len(guess)}, one for each input of {path}, got {len(truth)}")
    for name in ("id", "input"):
        if name in found and name in columns and not np.array_equal(found[name], columns[name]):
            raise StoreError(
                f"labels: expected the inputs of {path} in the same order, got another {name}: sort them"
            )
    if (truth.dtype.kind == "U") != (guess.dtype.kind == "U"):
        which, texts = ("predictions", guess) if guess.dtype.kind == "U" else ("labels", truth)
        odd = next((row for row, cell in enumerate(texts) if not is_number(cell)), 0)
        raise StoreError(
            f"{path}: expected classes of one kind, got the text {str(texts[odd])!r} among the {which}, at "
            f"input {odd}, and numbers as the others: write both as numbers or both as names"
        )
    if truth.dtype.kind == "f" and np.isnan(truth).any():
        raise StoreError(f"labels: expected one for each input, got NaN at input {np.isnan(truth).argmax()}")
    return truth == guess


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    known = list(names)
    return ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")


def _checked(path: Path, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the columns if they are columns."""
    lengths = set()
    for name, values in columns.items():
        if values.ndim != 1:
            raise StoreError(
                f"{path}: expected columns of one value an input, got {name} of shape {values.shape}: "
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


def _read_csv(
    path: Path, texts: frozenset[str] = frozenset({"id"}), nameless: str | None = None
) -> dict[str, np.ndarray]:
    """Read a table, `texts` as text and other columns as the narrowest of integers, numbers and text."""
    with open_binary(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        try:
            rows = csv.reader(file, strict=True)
            names = [name.strip() for name in next(rows, [])]
            if nameless and len(names) == 1 and is_number(names[0]):
                rows, names = itertools.chain([names], rows), [nameless]
            if not names or all(is_number(name) for name in names):
                raise StoreError(
                    f"{path}: expected names of columns in the first line, got {_listed(names) or 'none'}"
                )
            if len(set(names)) < len(names) or "" in names:
                raise StoreError(f"{path}: expected a different name for each column, got {_listed(names)}")
            blocks: list[list[np.ndarray]] = [[] for _ in names]
            while block := [row for row in itertools.islice(rows, _ROWS) if row]:
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
                    parts.append(np.array(cells) if name in texts else _typed(cells))
        except (UnicodeDecodeError, csv.Error) as error:
            raise StoreError(f"{path}: expected a table in UTF-8 with commas, got something else") from error
    mixed = {
        name
        for name, parts in zip(names, blocks, strict=True)
        if 0 < sum(part.dtype.kind == "U" for part in parts) < len(parts)
    }
    if mixed:  # a number in one block is text in another
        return _read_csv(path, frozenset(texts | mixed), nameless)
    return {
        name: np.concatenate(parts) if parts else np.empty(0)
        for name, parts in zip(names, blocks, strict=True)
    }


def _typed(cells: Sequence[Any]) -> np.ndarray:
    """Return integers, else numbers, else text."""
    if not any("_" in cell for cell in cells):  # Python takes 1_0 for 10
        for kind, dtype in ((int, np.int64), (float, np.float64)):
            with contextlib.suppress(ValueError, OverflowError):
                return np.array(list(map(kind, cells)), dtype)
    return np.array(list(map(str, cells)))


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with open_binary(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except Exception as error:  # a damaged archive fails in NumPy and zipfile in many ways
            raise StoreError(
                f"{path}: expected a NumPy archive of columns, got a damaged or foreign file, or Python "
                "objects, which are never unpickled: write it with numpy.savez"
            ) from error


def _read_npy(path: Path) -> np.ndarray:
    with open_binary(path) as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except Exception as error:
            raise StoreError(
                f"{path}: expected a NumPy file, got a damaged or foreign one: write it with numpy.save"
            ) from error


def _read_json(path: Path) -> dict[str, np.ndarray]:
    with open_binary(path) as file:
        try:
            held = json.loads(file.read().decode("utf-8-sig"))
            columns = held.get("scores", held)
            return {name: _from_json(name, values) for name, values in columns.items()}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{path}: expected a JSON object of columns, as demur score writes, got something else"
            ) from error


def _from_json(name: str, values: Any) -> np.ndarray:
    """Return a list as a column; numbers that JSON has no way to write are texts as "inf"."""
    kinds = {type(each) for each in values}
    if not isinstance(values, list) or not kinds <= {bool, int, float, str}:
        raise TypeError
    if name == "id":
        return np.array(list(map(str, values)))
    return np.array(values) if kinds <= {bool, int, float} else _typed([str(each) for each in values])


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise StoreError(
            f"{path}: expected pyarrow to read it with, found none: pip install 'demur[tables]'"
        ) from error
    open_binary(path).close()
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path}: expected a Parquet file, got a damaged or foreign one "
            f"({str(error).splitlines()[0]}): write it again"
        ) from error
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise StoreError(
                f"{path}: expected a value in each row, got {column.null_count} without in {name}"
            )
        if pa.types.is_nested(column.type):
            raise StoreError(f"{path}: expected numbers or text, got {name} of {column.type}: leave it out")
        values = column.to_numpy()
        found[name] = values.astype(str) if values.dtype == object else values
    return found


_READERS = {".parquet": _read_parquet, ".npz": _read_npz, ".json": _read_json}
