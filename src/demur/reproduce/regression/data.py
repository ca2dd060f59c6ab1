"""The UCI sets, one .npz each, with their published splits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.arrays import read_arrays

_KEYS = {
    "X": "inputs, (rows, features)",
    "y": "outcomes, (rows,)",
    "test_index": "rows of each split's test, (splits, test rows); all others are for training",
}
_REFERENCES = {"rmse": "ref_mcdropout_test_MC_rmse", "nll": "ref_mcdropout_test_ll"}
"""Published MC-dropout results for each split, where the file has them; the second is a log-likelihood."""


@dataclass(frozen=True)
class Rows:
    """One set.

    Attributes
    ----------
    name
        That of the file.
    x, y
        (rows, features) and (rows,), float64.
    test
        (splits, test rows).
    published
        "rmse" and "nll" of MC dropout, (splits,), where known.
    mark
        Sixteen digits of the file's content.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    test: np.ndarray
    published: dict[str, np.ndarray]
    mark: str

    @property
    def train(self) -> np.ndarray:
        """Rows of each split's training, (splits, training rows)."""
        everything = np.arange(len(self.y))
        return np.stack([np.setdiff1d(everything, rows) for rows in self.test])


def read_all(folder: Path) -> list[Rows]:
    """Read all sets of a folder, or of its part named "uci", in the order of their names."""
    place = folder / "uci" if (folder / "uci").is_dir() else folder
    paths = sorted(place.glob("*.npz")) if place.is_dir() else []
    if not paths:
        raise ValueError(
            f"{place}: expected a folder with an .npz for each data set, which holds {', '.join(_KEYS)}, got "
            "none: give --data that folder, or the one that has it under the name uci"
        )
    return [read(path) for path in paths]


def read(path: Path) -> Rows:
    """Read and check one set."""
    found = read_arrays(path, _KEYS, _REFERENCES.values())
    published = {name: found[key] for name, key in _REFERENCES.items() if key in found}
    x, y, test = found["X"], found["y"], found["test_index"]
    for key, right in (
        ("X", x.ndim == 2 and x.dtype.kind == "f" and np.isfinite(x).all()),
        ("y", y.shape == x.shape[:1] and y.dtype.kind == "f" and np.isfinite(y).all()),
        ("test_index", test.ndim == 2 and len(test) > 1 and test.dtype.kind in "iu"),
    ):
        if not right:
            raise ValueError(
                f"{path}: expected {key!r} to be {_KEYS[key]}, of finite or whole numbers, got "
                f"{found[key].dtype} of shape {found[key].shape}"
            )
    alike = any(len(np.unique(rows)) < len(rows) for rows in test)
    if test.min() < 0 or test.max() >= len(y) or alike or 2 * test.shape[1] > len(y):
        raise ValueError(
            f"{path}: expected 'test_index' to name different rows from 0 to {len(y) - 1}, at most half of "
            f"them in a split, got {test.shape[1]} from {test.min()} to {test.max()}{', some twice' * alike}"
        )
    published = {name: each for name, each in published.items() if each.shape == (len(test),)}
    if "nll" in published:
        published["nll"] = -published["nll"]
    mark = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return Rows(path.stem, x.astype(float), y.astype(float), test.astype(np.int64), published, mark)
