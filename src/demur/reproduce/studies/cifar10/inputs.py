"""The files of the study: images, and the reference's predictions."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.data import cifar10
from demur.reproduce.data.npz import read_arrays

_KEY = "cifar10"
"""The array of the reference's file."""
_LEAST_ACCURACY = 0.5
"""Of a reference whose rows are in the order of the test images."""


@dataclass(frozen=True)
class Inputs:
    """The files, read when they are first needed.

    Attributes
    ----------
    folder
        Of the images; see `demur.reproduce.data.cifar10`.
    reference
        An .npz with `cifar10`, (test images, classes).
    mark
        Digits that depend on the images' files.
    """

    folder: Path
    reference: Path
    mark: str

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read: another process reads it again."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @functools.cached_property
    def images(self) -> cifar10.CifarImages:
        """All images."""
        return cifar10.read_images(self.folder)

    @functools.cached_property
    def training(self) -> tuple[Any, Any]:
        """Training images from 0 to 1, and classes, as tensors."""
        import torch

        images = torch.from_numpy(self.images.train_images).to(torch.float32).div_(255)
        return images, torch.from_numpy(self.images.train_labels)

    @functools.cached_property
    def reference_probs(self) -> np.ndarray:
        """The reference's average prediction, (test images, classes)."""
        probs = read_arrays(self.reference, {_KEY: "class probabilities of the test images"})[_KEY]
        labels = cifar10.read_labels(self.folder, "test")
        if probs.shape != (len(labels), cifar10.CLASSES):
            raise ValueError(
                f"{self.reference}: {_KEY!r}: expected shape {(len(labels), cifar10.CLASSES)}, "
                f"got {probs.shape}"
            )
        right = float((probs.argmax(axis=1) == labels).mean())
        if right < _LEAST_ACCURACY:
            raise ValueError(
                f"{self.reference}: {_KEY!r}: expected rows in the order of the test images, got a likeliest "
                f"class that is the image's for {right:.1%} only: put the rows in the published order"
            )
        return probs.astype(float)
