"""Handwritten digits that come with scikit-learn, and a small network that is never trained on 8 and 9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_HELD_OUT = (8, 9)
CLASSES = tuple(str(digit) for digit in range(10) if digit not in _HELD_OUT)
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE, _WEIGHT_DECAY, _HIDDEN_UNITS = 60, 32, 3e-3, 1e-2, 64
NETWORK_DESCRIPTION = f"networks with two hidden layers of {_HIDDEN_UNITS} and dropout of 0.2 behind each"
TRAINING_DESCRIPTION = (
    f"{_EPOCHS} epochs of AdamW (rate {_LEARNING_RATE:g}, weight decay {_WEIGHT_DECAY:g}, batches of "
    f"{_BATCH_SIZE})"
)


@dataclass(frozen=True)
class DigitImages:
    """Images of 8 by 8 pixels from 0 to 1, float32 (images, 64), and their digits.

    Attributes
    ----------
    train_images, train_digits
        0 to 7, for training.
    images, digits
        0 to 7, for testing.
    strange_images, strange_digits
        All of 8 and 9, for testing.
    """

    train_images: np.ndarray
    train_digits: np.ndarray
    images: np.ndarray
    digits: np.ndarray
    strange_images: np.ndarray
    strange_digits: np.ndarray


def load_images(seed: int) -> DigitImages:
    """Return the images; the seed chooses the 30 % of known digits that are trained on."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found: Any = load_digits()
    images, digits = (found.data / 16).astype(np.float32), found.target  # pixels are integers from 0 to 16
    strange = np.isin(digits, _HELD_OUT)
    train, test = train_test_split(
        np.flatnonzero(~strange), train_size=0.3, stratify=digits[~strange], random_state=seed
    )
    return DigitImages(
        images[train], digits[train], images[test], digits[test], images[strange], digits[strange]
    )


def build_network() -> Any:
    """Return a network with new weights: two hidden layers, each followed by dropout."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(64, _HIDDEN_UNITS), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(_HIDDEN_UNITS, _HIDDEN_UNITS), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(_HIDDEN_UNITS, len(CLASSES)),
    )  # fmt: skip


def train_network(model: Any, member: Any, images: np.ndarray, digits: np.ndarray) -> None:
    """Train a network in place, as ``DeepEnsemble.fit`` calls it."""
    import torch

    x, y = torch.from_numpy(images), torch.from_numpy(digits)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    order = torch.Generator().manual_seed(member.seed)
    model.train()
    for _ in range(_EPOCHS):
        for rows in torch.randperm(len(x), generator=order).split(_BATCH_SIZE):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
