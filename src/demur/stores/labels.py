"""Labels from files, and which predictions are right by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from demur.reading import read_array
from demur.stores.column_files import COLUMN_SUFFIXES, check_columns, pick_column, read_columns
from demur.stores.column_names import LABEL_NAMES, list_names
from demur.stores.csv_files import is_number
from demur.stores.errors import StoreError
from demur.stores.paths import explain_memory, open_binary, split_name
from demur.stores.row_columns import PLACE_NAMES
from demur.stores.urls import fetch_file, find_url

_LABEL_SUFFIXES = (*COLUMN_SUFFIXES, ".npy")


def read_labels(written: str, task: str | None = None) -> dict[str, np.ndarray]:
    """Read labels: the column `label`, and `id` and `input` where the file has them.

    Parameters
    ----------
    written
        A file, .npy or as ``read_columns`` takes it; `file.npz:name` for one column of several.
    task
        The one task that is predicted, if it has a name: its labels may stand under it.
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
        known = [each for each in (*LABEL_NAMES, task) if each in columns]
        rest = [each for each in columns if each not in ("input", "id")]
        if not known and len(rest) != 1:
            raise StoreError(
                f"{path}: expected a column named label, or a single one, got {list_names(columns)}: "
                f"write {path}:NAME"
            )
        name = (known or rest)[0]
    found = {"label": _number_classes(pick_column(columns, name, path))}
    return found | {beside: columns[beside] for beside in ("input", "id") if beside in columns}


def read_batch_labels(
    written: str, batch: Sequence[int], names: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Read the labels of inputs that have several: one for each pixel, or one for each task or label.

    Parameters
    ----------
    written
        A .npy, or an array of a .npz, of the batch's shape; or a table with a column for each of `names`. An
        empty cell, or NaN, is a label that nobody knows.
    batch
        How many inputs there are, then how many pixels, tasks or labels each has.
    names
        Of the tasks or labels.

    Returns
    -------
    dict
        ``label``, one for each pixel or task in C order; ``id`` of each row where a table has it.
    """
    path, name = split_name(written)
    suffix = Path(path).suffix.lower()
    shape = tuple(batch)
    if suffix == ".npy":
        found = _number_classes(_read_npy(Path(path)))
        if found.shape != shape or found.dtype.kind not in "fiuU":
            raise StoreError(f"{path}: expected labels of shape {shape}, got {found.dtype} of {found.shape}")
        return {"label": found.ravel()}
    if names is None or name is not None:
        raise StoreError(f"{written}: expected labels in a .npy of shape {shape}, got another file")
    columns = read_columns(Path(path))
    missing = [each for each in names if each not in columns]
    if missing:
        raise StoreError(
            f"{path}: expected a column for each of {list_names(list(names))}, got {list_names(columns)}: "
            f"{missing[0]} is not among them"
        )
    wide = [_parse_gaps(_number_classes(columns[each])) for each in names]
    if len(wide[0]) != shape[0]:
        raise StoreError(f"{path}: expected labels of {shape[0]} inputs, got {len(wide[0])}")
    ids = {"id": np.repeat(columns["id"], len(names))} if "id" in columns else {}
    return {"label": np.stack(wide, axis=1).ravel(), **ids}


def read_labels_of(written: str, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Read the labels of scores: one per row, or as ``read_batch_labels`` where inputs have several rows."""
    path = Path(split_name(written)[0])
    rows = len(next(iter(columns.values())))
    if "task" in columns:
        tasks = list(dict.fromkeys(columns["task"].tolist()))
        wide = path.suffix.lower() != ".npy" and not set(tasks).isdisjoint(read_columns(path))
        if wide or (path.suffix.lower() == ".npy" and _read_npy(path).ndim > 1):
            return read_batch_labels(written, (rows // len(tasks), len(tasks)), tasks)
    elif path.suffix.lower() == ".npy" and _read_npy(path).ndim > 1:
        places = [values for name, values in columns.items() if name in PLACE_NAMES]
        return read_batch_labels(written, [int(values.max()) + 1 for values in places])
    return read_labels(written)


def _parse_gaps(cells: np.ndarray) -> np.ndarray:
    """Return numbers with NaN for empty cells; other text as it is."""
    if cells.dtype.kind != "U" or not all(is_number(cell) or not cell.strip() for cell in cells):
        return cells
    return np.array([float(cell) if cell.strip() else np.nan for cell in cells])


def _number_classes(labels: np.ndarray) -> np.ndarray:
    """Return labels as class numbers: 0 and 1 in place of False and True."""
    return labels.astype(np.int64) if labels.dtype.kind == "b" else labels


def mark_correct(
    columns: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray] | None,
    path: object,
    *,
    prediction: str = "prediction",
    tolerance: float | None = None,
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
    tolerance
        For predicted numbers: how far from the label they may be.
    """
    if labels is None and "label" not in columns:
        if "correct" in columns:
            return parse_correct(columns["correct"], path) == 1
        raise StoreError(
            f"{path}: expected a column label, got {list_names(columns)}: give the true classes "
            "with --labels FILE or FILE:COLUMN"
        )
    truth, guess = match_labels(columns, labels, path, prediction=prediction)
    unknown = find_unlabelled(truth)
    if unknown.any() and "task" not in columns:
        raise StoreError(f"labels: expected one for each input, got NaN at input {unknown.argmax()}")
    if tolerance is not None:
        if guess.dtype.kind == "U":
            raise StoreError(
                f"{path}: expected numbers in {prediction} for --tolerance, got names of classes"
            )
        return np.abs(truth - guess) <= tolerance
    fractions = guess[guess != np.rint(guess)] if guess.dtype.kind == "f" else guess[:0]
    fractions = fractions[np.isfinite(fractions)] if len(fractions) else fractions
    if len(fractions):
        raise StoreError(
            f"{path}: expected classes in {prediction}, got numbers as {fractions[0]:g}, which hardly ever "
            "equal a label: say with --tolerance how far from it they may be"
        )
    if truth.dtype.kind == "U" and not np.isin(truth, guess).any():
        raise StoreError(
            f"{path}: expected labels that are names of classes, got {_list_some(truth)} where predictions "
            f"are {_list_some(guess)}: write both alike"
        )
    return truth == guess


def parse_correct(cells: np.ndarray, path: object) -> np.ndarray:
    """Return 1 for right, 0 for wrong, NaN for unknown, of a column of numbers or of words such as True."""
    if cells.dtype.kind != "U":
        found = cells.astype(float)
        odd = ~np.isnan(found) & (found != 0) & (found != 1)
    else:
        words = {
            "": np.nan,
            "nan": np.nan,
            "true": 1.0,
            "1": 1.0,
            "1.0": 1.0,
            "false": 0.0,
            "0": 0.0,
            "0.0": 0.0,
        }
        read = [words.get(str(cell).strip().lower()) for cell in cells]
        odd = np.array([each is None for each in read], bool)
        found = np.array([np.nan if each is None else each for each in read])
    if odd.any():
        row = int(odd.argmax())
        raise StoreError(
            f"{path}: expected true or false, 1 or 0, or nothing in correct, got {str(cells[row])[:40]!r} at "
            f"input {row}"
        )
    return found


def match_labels(
    columns: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray] | None,
    path: object,
    *,
    prediction: str = "prediction",
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and predictions, of one kind; raise a `StoreError` unless they are of the same inputs."""
    found = columns if labels is None else labels
    truth, guess = found["label"], pick_column(columns, prediction, path)
    if truth.dtype.kind == "U" and guess.dtype.kind != "U" and f"{prediction}_name" in columns:
        guess = columns[f"{prediction}_name"]
    if len(truth) != len(guess):
        raise StoreError(f"labels: expected {len(guess)}, one for each input of {path}, got {len(truth)}")
    for name in ("id", "input"):
        if name in found and name in columns and not np.array_equal(found[name], columns[name]):
            raise StoreError(
                f"labels: expected the inputs of {path} in the same order, got another {name}: sort them"
            )
    if (truth.dtype.kind == "U") != (guess.dtype.kind == "U"):
        named, other = ("predictions", "labels") if guess.dtype.kind == "U" else ("labels", "predictions")
        texts = guess if named == "predictions" else truth
        odd = next((row for row, cell in enumerate(texts) if not is_number(cell)), 0)
        raise StoreError(
            f"{path}: expected labels and predictions both as numbers of classes or both as names, got "
            f"{str(texts[odd])!r} in the {named}, at input {odd}, and numbers in the {other}"
        )
    return truth, guess


def number_labels(labels: np.ndarray, names: Sequence[str] | None, path: object) -> np.ndarray:
    """Return class numbers of labels that are names of classes; numbers as they are."""
    if labels.dtype.kind != "U":
        return labels
    numbers = {name: number for number, name in enumerate(names or ())}
    odd = [label for label in labels.tolist() if label not in numbers]
    if odd:
        known = f"one of {list_names(numbers)}" if numbers else "a number, since its classes have no names"
        raise StoreError(f"labels: expected {known}, as in {path}, got the text {odd[0][:40]!r}")
    return np.array([numbers[label] for label in labels.tolist()])


def find_unlabelled(labels: np.ndarray) -> np.ndarray:
    """Return where labels are not known: NaN."""
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), bool)


def _list_some(names: np.ndarray) -> str:
    """Return the first names for a message."""
    some = np.unique(names).tolist()
    return ", ".join(some[:3]) + (", ..." if len(some) > 3 else "")


def _read_npy(path: Path) -> np.ndarray:
    url = find_url(path)
    if url is not None:
        with fetch_file(url) as copy:
            return _read_npy(copy)
    with explain_memory(path), open_binary(path) as file:
        try:
            return read_array(file)
        except ValueError as error:
            raise StoreError(f"{path}: expected a NumPy file, got {error}") from error
