"""Weights of members, from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from demur.stores.array_files import open_array
from demur.stores.errors import EmptyError, StoreError
from demur.stores.mapped_arrays import FileArray, decode
from demur.stores.paths import open_binary
from demur.stores.spool import Spool

_WEIGHT_SUFFIXES = (".npy", ".csv", ".txt", ".json")


def read_weights(path: Path, *, members: int, inputs: int) -> np.ndarray:
    """Read one weight per member, or one per member and input.

    Parameters
    ----------
    path
        .npy: (members,) or (members, inputs). .csv, .txt: one number per member, with commas, blanks
        or line ends between them; a .csv may begin with a name. .json: a list of numbers.
    members, inputs
        How many there must be.

    Returns
    -------
    numpy.ndarray
        (members,) or (members, inputs), float64, not checked for sense.

    Raises
    ------
    StoreError
        The file cannot be read, or has another number of weights.
    """
    suffix = path.suffix.lower()
    if suffix not in _WEIGHT_SUFFIXES:
        raise StoreError(
            f"{path}: expected weights in a file that ends in {', '.join(_WEIGHT_SUFFIXES)}, got "
            f"{repr(suffix) if suffix else 'no suffix'}"
        )
    expected = f"{path}: expected a weight for each of the {members} members, or shape ({members}, {inputs})"
    if suffix == ".npy":
        try:
            weights = _read_npy(path)
        except EmptyError as error:  # which speaks of predictions
            raise StoreError(f"{expected}, got a single number or none") from error
    else:
        with open_binary(path) as file:
            content = file.read()
        try:
            text = content.decode("utf-8-sig")
            weights = np.array(_read_json(text) if suffix == ".json" else _read_text(text, suffix))
        except (ValueError, OverflowError, RecursionError) as error:
            raise StoreError(
                f"{path}: expected {members} numbers, one per member, got something else: {error}"
            ) from error
    if weights.shape not in ((members,), (members, inputs)):
        raise StoreError(f"{expected}, got shape {weights.shape}")
    return weights


def _read_npy(path: Path) -> np.ndarray:
    with Spool() as spool:
        stored = open_array(path, None, spool)
    assert isinstance(stored, FileArray)  # that is what .npy opens as
    return decode(stored.map(), stored.precision).astype(np.float64)


def _read_json(text: str) -> list[float]:
    held: Any = json.loads(text)
    if not isinstance(held, list):
        raise ValueError(f"{type(held).__name__} where a list was expected")
    for each in held:
        if isinstance(each, bool) or not isinstance(each, int | float):
            raise ValueError(f"{json.dumps(each)[:40]} in the list")
    return [float(each) for each in held]


def _read_text(text: str, suffix: str) -> list[float]:
    rows = [line.replace(",", " ").split() for line in text.splitlines()]
    if suffix == ".csv" and rows:
        try:
            [float(cell) for cell in rows[0]]
        except ValueError:
            rows = rows[1:]
    return [float(cell) for row in rows for cell in row]
