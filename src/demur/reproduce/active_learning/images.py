"""MNIST and Fashion-MNIST as first published, and what of them a run takes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from demur.reproduce.idx import read_idx

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""Folders of the data, and how the sets are called."""

CLASSES, _SIDE = 10, 28
FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}


@dataclass(frozen=True)
class Images:
    """One data set, bytes as in its files.

    Attributes
    ----------
    train_images, test_images : (images, 28, 28) uint8
    train_labels, test_labels : (images,) uint8
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


@dataclass(frozen=True)
class Split:
    """What one seed works with.

    Attributes
    ----------
    pool : (images, 28, 28) float32
        Images that may be labelled, scaled to mean 0 and variance 1 over the pool.
    labels : (images,)
        Their labels, which are looked at once an image is picked.
    start : (images,) int
        Those that are labelled at first, as many of each class.
    test, test_labels
        Scaled as the pool; the same for all seeds.
    """

    pool: np.ndarray
    labels: np.ndarray
    start: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


@cache
def load(folder: Path) -> Images:
    """Read and check the four files of a data set; a `ValueError` says what is wrong with them."""
    found = {name: _read(folder / file) for name, file in FILES.items()}
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
    return Images(**found)


def _read(path: Path) -> np.ndarray:
    """Return the array of one of the files."""
    if not path.is_file():
        raise ValueError(
            f"{path}: expected the gzipped IDX file of this name as first published, found none: "
            f"DIR must hold {' and '.join(SETS)}, each with {', '.join(FILES.values())}"
        )
    return read_idx(path)


@cache
def digest(folder: Path) -> str:
    """Return what the files of a data set hold, in sixteen digits."""
    found = hashlib.sha256()
    for file in FILES.values():
        found.update(hashlib.sha256((folder / file).read_bytes()).digest())
    return found.hexdigest()[:16]


def check(images: Images, folder: Path, pool: int, test: int, start: int) -> None:
    """Raise a `ValueError` unless a data set is large enough."""
    for part, needed, had in (
        ("training", pool, len(images.train_images)),
        ("test", test, len(images.test_images)),
    ):
        if needed > had:
            raise ValueError(f"{folder}: expected at least {needed} {part} images, got {had}: ask for fewer")
    fewest = int(np.bincount(images.train_labels, minlength=CLASSES).min())
    if start > fewest * CLASSES:
        raise ValueError(f"{folder}: expected {start // CLASSES} images of each class, got {fewest} of one")


def split(images: Images, *, pool: int, test: int, start: int, seed: int) -> Split:
    """Draw the pool of a seed, its first images first, and the test images, which no seed moves."""
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(images.train_images))
    each = start // CLASSES
    first = np.concatenate([order[images.train_labels[order] == c][:each] for c in range(CLASSES)])
    chosen = np.concatenate([first, order[~np.isin(order, first)][: pool - start]])
    kept = np.random.default_rng([0, 2]).permutation(len(images.test_images))[:test]
    inside = images.train_images[chosen].astype(np.float32)
    mean, spread = float(inside.mean()), float(inside.std())
    return Split(
        (inside - mean) / spread,
        images.train_labels[chosen].astype(np.int64),
        np.arange(start),
        (images.test_images[kept].astype(np.float32) - mean) / spread,
        images.test_labels[kept].astype(np.int64),
    )
