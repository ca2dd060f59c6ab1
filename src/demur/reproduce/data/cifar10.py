"""CIFAR-10, from PNG files with an image per row."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demur.reading import read_json
from demur.reproduce.data.image_folders import decode_image

CLASSES = 10
_SIDE = 32
"""Pixels of an image's side."""
_TRAIN_FILES = tuple(f"data_batch_{k}.png" for k in range(1, 6))
_TEST_FILES = ("test_batch.png",)
_LABEL_FILES = {"train": "train_lables.json", "test": "test_lables.json"}  # as they are published
_FILES = (*_TRAIN_FILES, *_TEST_FILES, *_LABEL_FILES.values())


@dataclass(frozen=True)
class CifarImages:
    """The images in their published order.

    Attributes
    ----------
    train_images, test_images : (images, 3, 32, 32) uint8
    train_labels, test_labels : (images,) int64
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def check_files(folder: Path) -> str:
    """Return sixteen hexadecimal digits that depend on the files' content; raise if one is missing."""
    found = hashlib.sha256()
    for file in _FILES:
        path = folder / file
        if not path.is_file():
            raise ValueError(
                f"{path}: expected CIFAR-10 with one image per row, in {', '.join(_FILES)}, found none"
            )
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def read_images(folder: Path) -> CifarImages:
    """Read and check all files; raise a `ValueError` that says what is wrong with them."""
    train = np.concatenate([_read_sheet(folder / file) for file in _TRAIN_FILES])
    test = np.concatenate([_read_sheet(folder / file) for file in _TEST_FILES])
    labels = []
    for part, images in (("train", train), ("test", test)):
        labels.append(read_labels(folder, part))
        if len(labels[-1]) != len(images):
            raise ValueError(
                f"{folder / _LABEL_FILES[part]}: expected a label for each of {len(images)} images, "
                f"got {len(labels[-1])}"
            )
    return CifarImages(train, labels[0], test, labels[1])


def read_labels(folder: Path, part: str) -> np.ndarray:
    """Return the labels of a part, "train" or "test"."""
    path = folder / _LABEL_FILES[part]
    found = np.asarray(read_json(path))
    if found.ndim != 1 or found.dtype.kind != "i" or found.min() < 0 or found.max() >= CLASSES:
        raise ValueError(
            f"{path}: expected a list of labels from 0 to {CLASSES - 1}, "
            f"got shape {found.shape} of {found.dtype}"
        )
    return found.astype(np.int64)


def _read_sheet(path: Path) -> np.ndarray:
    """Return the images of a PNG file, (images, 3, 32, 32)."""
    sheet = np.asarray(decode_image(path))
    if sheet.shape[1] != _SIDE**2:
        raise ValueError(f"{path}: expected {_SIDE**2} pixels in each row, one image. Got {sheet.shape[1]}.")
    return np.ascontiguousarray(sheet.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2))
