"""The UCI regression data sets with their published splits, an .npz file each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.data.npz import read_arrays

_KEYS = {
    "X": "inputs, (rows, features)",
    "y": "outcomes, (rows,)",
    "test_index": "rows of each split's test, (splits, test rows); all others are training rows",
}
_PUBLISHED_KEYS = {"rmse": "ref_mcdropout_test_MC_rmse", "nll": "ref_mcdropout_test_ll"}
"""Arrays with published results of MC dropout for each split; the second is a log-likelihood."""


@dataclass(frozen=True)
class UciDataset:
    """One data set.

    Attributes
    ----------
    name
        Name of the file, without its suffix.
    x, y
        (rows, features) and (rows,), float64.
    test
        (splits, test rows).
    published
        Published "rmse" and "nll" of MC dropout, (splits,), where the file has them.
    mark
        Sixteen hexadecimal digits that depend on the content of the file.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    test: np.ndarray
    published: dict[str, np.ndarray]
    mark: str

    @property
    def train(self) -> np.ndarray:
        """Training rows of each split, (splits, training rows)."""
        everything = np.arange(len(self.y))
        return np.stack([np.setdiff1d(everything, rows) for rows in self.test])


def read_datasets(folder: Path) -> list[UciDataset]:
    """Read all data sets in a folder, or in its subfolder "uci", in the order of their names."""
    place = folder / "uci" if (folder / "uci").is_dir() else folder
    paths = sorted(place.glob("*.npz")) if place.is_dir() else []
    if not paths:
        raise ValueError(
            f"{place}: expected a folder with an .npz for each data set, which holds {', '.join(_KEYS)}, got "
            "none: pass that folder, or the one that contains it as uci, to --data"
        )
    return [read_dataset(path) for path in paths]


def read_dataset(path: Path) -> UciDataset:
    """Read and check one data set."""
    found = read_arrays(path, _KEYS, _PUBLISHED_KEYS.values())
    published = {name: found[key] for name, key in _PUBLISHED_KEYS.items() if key in found}
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
    repeated = any(len(np.unique(rows)) < len(rows) for rows in test)
    if test.min() < 0 or test.max() >= len(y) or repeated or 2 * test.shape[1] > len(y):
        raise ValueError(
            f"{path}: expected 'test_index' to name different rows from 0 to {len(y) - 1}, at most half "
            f"per split, got {test.shape[1]} from {test.min()} to {test.max()}{', some twice' * repeated}"
        )
    published = {name: each for name, each in published.items() if each.shape == (len(test),)}
    if "nll" in published:
        published["nll"] = -published["nll"]
    mark = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return UciDataset(path.stem, x.astype(float), y.astype(float), test.astype(np.int64), published, mark)
