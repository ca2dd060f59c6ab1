"""A small convolutional network, fitted to few images within a second, and what its posterior predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.posteriors import DeepEnsemble, MCDropout

_BATCH, _RATE = 32, 3e-3


@dataclass(frozen=True)
class Posterior:
    """How members are made.

    Parameters
    ----------
    name, title
        In files, and for people.
    networks
        How many are fitted.
    samples
        How many members dropout draws of the one network; 0: the networks are the members.
    steps
        Of gradient descent, for each network.
    """

    name: str
    title: str
    networks: int
    samples: int
    steps: int

    @property
    def members(self) -> int:
        """How many members predict."""
        return self.samples or self.networks

    def fitted(self, images: np.ndarray, labels: np.ndarray, seed: int) -> Any:
        """Return the posterior of labelled images; the seed fixes first weights, batches and masks."""
        rates = (0.25, 0.5) if self.samples else (0.0, 0.0)
        own = np.random.SeedSequence(seed).generate_state(self.networks).tolist()
        models = [fit(rates, images, labels, self.steps, each) for each in own]
        return MCDropout(models[0], self.samples, seed=own[0]) if self.samples else DeepEnsemble(models)


def fit(rates: Sequence[float], images: np.ndarray, labels: np.ndarray, steps: int, seed: int) -> Any:
    """Return a network with fresh weights after so many steps of Adam."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # dropout has no generator of its own
        model = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
            nn.Dropout2d(rates[0]), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Dropout(rates[1]),
            nn.Linear(64, 10),
        )  # fmt: skip
        # In this layout a step takes two thirds of the time; one member at a time is as fast as all at once.
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x, y = torch.from_numpy(images)[:, None], torch.from_numpy(labels)
        optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)
        left = torch.empty(0, dtype=torch.long)
        for _ in range(steps):
            if len(left) < min(_BATCH, len(x)):
                left = torch.randperm(len(x))
            rows, left = left[:_BATCH], left[_BATCH:]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model


def predicted(posterior: Any, images: np.ndarray) -> np.ndarray:
    """Return logits of all members, float32 (members, images, classes)."""
    import torch

    chunks = posterior.predict(torch.from_numpy(images)[:, None])
    found = [chunk[0] if isinstance(chunk, tuple) else chunk for chunk in chunks]
    return torch.cat(found).numpy()
