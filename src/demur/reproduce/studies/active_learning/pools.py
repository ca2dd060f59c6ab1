"""The pool of images that may be labelled, and the test images, of one seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reproduce.data.mnist import CLASSES, MnistImages


@dataclass(frozen=True)
class InputPool:
    """The images that one seed works with.

    Attributes
    ----------
    images : (images, 28, 28) float32
        Images that may be labelled, scaled to mean 0 and variance 1 over the pool.
    labels : (images,)
        Their labels; each is used only once its image has been picked.
    start : (images,) int
        The images that are labelled at the start, equally many of each class.
    test, test_labels
        Scaled like the pool; the same for all seeds.
    """

    images: np.ndarray
    labels: np.ndarray
    start: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def check_size(images: MnistImages, folder: Path, pool: int, test: int, start: int) -> None:
    """Raise a `ValueError` unless a data set has enough images."""
    for part, needed, had in (
        ("training", pool, len(images.train_images)),
        ("test", test, len(images.test_images)),
    ):
        if needed > had:
            raise ValueError(f"{folder}: expected at least {needed} {part} images, got {had}: ask for fewer")
    fewest = int(np.bincount(images.train_labels, minlength=CLASSES).min())
    if start > fewest * CLASSES:
        raise ValueError(f"{folder}: expected {start // CLASSES} images of each class, got {fewest} of one")


def draw_pool(images: MnistImages, *, pool: int, test: int, start: int, seed: int) -> InputPool:
    """Draw the pool of a seed, the images labelled at the start first, and the test images of all seeds."""
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(images.train_images))
    each = start // CLASSES
    first = np.concatenate([order[images.train_labels[order] == c][:each] for c in range(CLASSES)])
    chosen = np.concatenate([first, order[~np.isin(order, first)][: pool - start]])
    kept = np.random.default_rng([0, 2]).permutation(len(images.test_images))[:test]
    inside = images.train_images[chosen].astype(np.float32)
    mean, spread = float(inside.mean()), float(inside.std())
    return InputPool(
        (inside - mean) / spread,
        images.train_labels[chosen].astype(np.int64),
        np.arange(start),
        (images.test_images[kept].astype(np.float32) - mean) / spread,
        images.test_labels[kept].astype(np.int64),
    )
