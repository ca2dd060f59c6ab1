"""Labels from files, and which predictions are right by them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from demur.reading import read_array
from demur.stores.column_files import COLUMN_SUFFIXES, check_columns, pick_column, read_columns
from demur.stores.column_names import list_names
from demur.stores.csv_files import is_number
from demur.stores.errors import StoreError
from demur.stores.paths import explain_memory, open_binary, split_name

_LABEL_SUFFIXES = (*COLUMN_SUFFIXES, ".npy")
_LABEL_NAMES = ("label", "labels")


def read_labels(written: str) -> dict[str, np.ndarray]:
    """Read labels: the column `label`, and `id` and `input` where the file has them.

    Parameters
    ----------
    written
        A file, .npy or as ``read_columns`` takes it; `file.npz:name` for one column of several.
    """
    path, name = split_name(written)
    if Path(path).suffix.lower() == ".npy":
        return {
            "label": _number_classes(check_columns(Path(path), {"label": _read_npy(Path(path))})["label"])
        }
    if Path(path).suffix.lower() not in _LABEL_SUFFIXES:
        raise StoreError(
            f"{path}: expected labels in a file that ends in {', '.join(_LABEL_SUFFIXES)}, got "
            f"{Path(path).suffix.lower()!r}"
        )
    columns = read_columns(Path(path), nameless="label")
    if name is None:
        known = [each for each in _LABEL_NAMES if each in columns]
        rest = [each for each in columns if each not in ("input", "id")]
        if not known and len(rest) != 1:
            raise StoreError(
                f"{path}: expected a column named label, or a single one, got {list_names(columns)}: "
                f"write {path}:NAME"
            )
        name = (known or rest)[0]
    found = {"label": _number_classes(pick_column(columns, name, path))}
    return found | {beside: columns[beside] for beside in ("input", "id") if beside in columns}


def _number_classes(labels: np.ndarray) -> np.ndarray:
    """Return labels as class numbers: 0 and 1 in place of False and True."""
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels


def mark_correct(
    columns: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray] | None,
    path: object,
    *,
    prediction: str = "prediction",
) -> np.ndarray:
    """Return which predictions are right.

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
        raise StoreError(f"{path}: expected a column label, got none: give the labels with --labels")
    found = columns if labels is None else labels
    truth, guess = found["label"], pick_column(columns, prediction, path)
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


def _read_npy(path: Path) -> np.ndarray:
    with explain_memory(path), open_binary(path) as file:
        try:
            return read_array(file)
        except ValueError as error:
            raise StoreError(f"{path}: expected a NumPy file, got {error}") from error
