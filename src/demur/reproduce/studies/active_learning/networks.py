"""A small convolutional network that is fitted to few images within a second, and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.posteriors import DeepEnsemble, MCDropout

_BATCH, _RATE = 32, 3e-3


@dataclass(frozen=True)
class MemberRecipe:
    """How members are made.

    Parameters
    ----------
    name, title
        In file names, and for readers.
    networks
        Number of networks that are fitted.
    samples
        Number of members that dropout draws from the one network; 0: the networks are the members.
    steps
        Number of gradient steps for each network.
    """

    name: str
    title: str
    networks: int
    samples: int
    steps: int

    @property
    def members(self) -> int:
        """The number of members."""
        return self.samples or self.networks

    def fit(self, images: np.ndarray, labels: np.ndarray, seed: int) -> Any:
        """Return the posterior of labelled images; the seed fixes initial weights, batches and masks."""
        rates = (0.25, 0.5) if self.samples else (0.0, 0.0)
        own = np.random.SeedSequence(seed).generate_state(self.networks).tolist()
        models = [_fit_network(rates, images, labels, self.steps, each) for each in own]
        return MCDropout(models[0], self.samples, seed=own[0]) if self.samples else DeepEnsemble(models)


def _fit_network(
    rates: Sequence[float], images: np.ndarray, labels: np.ndarray, steps: int, seed: int
) -> Any:
    """Return a network trained from new weights by Adam."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # dropout has no generator of its own
        model = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
            nn.Dropout2d(rates[0]), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Dropout(rates[1]),
            nn.Linear(64, 10),
        )  # fmt: skip
        # This memory layout makes a step a third faster; training all members at once would not be faster.
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


def predict_logits(posterior: Any, images: np.ndarray) -> np.ndarray:
    """Return logits of all members, float32 (members, images, classes)."""
    import torch

    chunks = posterior.predict(torch.from_numpy(images)[:, None])
    found = [chunk[0] if isinstance(chunk, tuple) else chunk for chunk in chunks]
    return torch.cat(found).numpy()
