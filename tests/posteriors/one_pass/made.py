"""Small networks and real data that the tests of one-pass scores share."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import demur


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of the digits 0 to 4 with labels, and images of noise: no digit at all."""
    images, labels = load_digits(return_X_y=True)
    known = labels < 5
    noise = np.random.default_rng(0).uniform(0, 1, (200, 64))
    return images[known] / 16, labels[known], noise


def train_network(x: np.ndarray, y: np.ndarray, width: int = 12) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 5)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def check_direction(known: np.ndarray, strange: np.ndarray, at_least: float) -> None:
    """Require that strange inputs score higher, and that halves of the known ones cannot be told apart.

    The halves are drawn at random, so that an interval of 99.9 % misses 0.5 for one seed in a thousand.
    """
    found = demur.tasks.detection(known, strange).auroc
    assert found.low > at_least, str(found)
    order = np.random.default_rng(0).permutation(len(known))
    first, second = np.array_split(known[order], 2)
    control = demur.tasks.detection(first, second, confidence=0.999).auroc
    assert control.low < 0.5 < control.high, str(control)
