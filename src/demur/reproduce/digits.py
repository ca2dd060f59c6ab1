"""Handwritten digits that ship with scikit-learn, and a small network that never sees 8 and 9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_HELD_OUT = (8, 9)
CLASSES = tuple(str(digit) for digit in range(10) if digit not in _HELD_OUT)
_EPOCHS, _BATCH, _RATE, _DECAY, _WIDTH = 60, 32, 3e-3, 1e-2, 64
NETWORK = f"networks with two hidden layers of {_WIDTH} and dropout of 0.2 behind each"
TRAINING = f"{_EPOCHS} epochs of AdamW (rate {_RATE:g}, weight decay {_DECAY:g}, batches of {_BATCH})"


@dataclass(frozen=True)
class Digits:
    """Images of 8 by 8 pixels from 0 to 1, float32 (images, 64), and their digits.

    Attributes
    ----------
    train_images, train_digits
        To fit networks to: 0 to 7.
    images, digits
        To score: 0 to 7.
    strange_images, strange_digits
        To score: all of 8 and 9.
    """

    train_images: np.ndarray
    train_digits: np.ndarray
    images: np.ndarray
    digits: np.ndarray
    strange_images: np.ndarray
    strange_digits: np.ndarray


def load(seed: int) -> Digits:
    """Return the images; the seed says which 3 of 10 known ones are trained on."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found: Any = load_digits()
    images, digits = (found.data / 16).astype(np.float32), found.target  # pixels count from 0 to 16
    strange = np.isin(digits, _HELD_OUT)
    train, test = train_test_split(
        np.flatnonzero(~strange), train_size=0.3, stratify=digits[~strange], random_state=seed
    )
    return Digits(images[train], digits[train], images[test], digits[test], images[strange], digits[strange])


def network() -> Any:
    """Return a network with fresh weights: two hidden layers, dropout behind each."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(64, _WIDTH), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(_WIDTH, len(CLASSES)),
    )  # fmt: skip


def train(model: Any, member: Any, images: np.ndarray, digits: np.ndarray) -> None:
    """Fit a network, as ``DeepEnsemble.fit`` asks for it."""
    import torch

    x, y = torch.from_numpy(images), torch.from_numpy(digits)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=_DECAY)
    order = torch.Generator().manual_seed(member.seed)
    model.train()
    for _ in range(_EPOCHS):
        for rows in torch.randperm(len(x), generator=order).split(_BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
