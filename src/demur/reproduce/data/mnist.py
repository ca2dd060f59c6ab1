"""MNIST and Fashion-MNIST, from the gzipped IDX files in which they were first published."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from demur.reproduce.data.idx import read_idx

DATASETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""Names of the folders, and what the data sets are called."""

CLASSES = 10
_SIDE = 28
"""Pixels of an image's side."""
FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}


@dataclass(frozen=True)
class MnistImages:
    """One data set, as the bytes in its files.

    Attributes
    ----------
    train_images, test_images : (images, 28, 28) uint8
    train_labels, test_labels : (images,) uint8
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@cache
def read_images(folder: Path) -> MnistImages:
    """Read and check the four files of a data set; raise a `ValueError` that says what is wrong with them."""
    found = {name: _read_file(folder / file) for name, file in FILES.items()}
    for part in ("train", "test"):
        images, labels = found[f"{part}_images"], found[f"{part}_labels"]
        where = folder / FILES[f"{part}_images"]
        if images.ndim != 3 or images.shape[1:] != (_SIDE, _SIDE):
            raise ValueError(f"{where}: expected images of 28 by 28 pixels, got shape {images.shape}")
        where = folder / FILES[f"{part}_labels"]
        if labels.shape != images.shape[:1]:
            raise ValueError(f"{where}: expected a label for each of {len(images)} images, got {len(labels)}")
        if set(np.unique(labels).tolist()) != set(range(CLASSES)):
            raise ValueError(f"{where}: expected labels 0 to 9, got {sorted(set(labels.tolist()))}")
    return MnistImages(**found)


def _read_file(path: Path) -> np.ndarray:
    """Return the array in one of the files."""
    if not path.is_file():
        raise ValueError(
            f"{path}: expected the gzipped IDX file of this name as first published, found none: "
            f"put it there; --data must hold {' and '.join(DATASETS)}, each with {', '.join(FILES.values())}"
        )
    return read_idx(path)


@cache
def compute_digest(folder: Path) -> str:
    """Return sixteen hexadecimal digits that depend on the content of the files."""
    found = hashlib.sha256()
    for file in FILES.values():
        found.update(hashlib.sha256((folder / file).read_bytes()).digest())
    return found.hexdigest()[:16]
