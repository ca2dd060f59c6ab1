"""Small networks with a Gaussian head: those of all splits and members are trained as one tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.reproduce.regression.data import Rows

FLOOR = 1e-6
"""Of the variance of a standardised outcome, as Lakshminarayanan et al. (2017) have it."""
_HELD, _MOST_HELD = 0.1, 1000
"""The share of the training rows, and the most, that say when a network was best."""
_LOOKS = 40
"""How often they are asked."""


@dataclass(frozen=True)
class Method:
    """How members come about.

    Attributes
    ----------
    members
        Networks of a split, or masks of one network.
    dropout
        Rate before both layers, as Gal and Ghahramani (2016) have it; 0: an ensemble of networks.
    """

    members: int
    dropout: float = 0.0


METHODS = {"deep-ensemble": Method(5), "mc-dropout": Method(20, 0.05)}


@dataclass(frozen=True)
class Training:
    """How networks are trained: one hidden layer, Adam, a step size that falls to 0 along a cosine."""

    hidden: int = 50
    batch: int = 100
    rate: float = 0.01
    epochs: int = 40
    fewest: int = 1500
    most: int = 5000

    def steps(self, rows: int) -> int:
        """Return how many steps a set of so many training rows gets."""
        return min(max(self.epochs * rows // self.batch, self.fewest), self.most)


def predictions(rows: Rows, method: Method, training: Training, seed: int) -> dict[str, np.ndarray]:
    """Return `mean` and `variance`, (members, splits, test rows), in the unit of the outcome.

    Training rows give the scale of inputs and outcomes. A tenth of them, other ones for each network, says
    after which step it was best.
    """
    import torch

    draws = torch.Generator().manual_seed(seed)
    train = rows.train
    x, y, centre, scale = _standardised(rows, train)
    networks = 1 if method.dropout else method.members
    owner = torch.arange(len(train)).repeat_interleave(networks)
    order = torch.stack([torch.randperm(train.shape[1], generator=draws) for _ in owner])
    mixed = torch.from_numpy(train)[owner].gather(1, order)
    held = min(max(int(_HELD * train.shape[1]), 1), _MOST_HELD)
    parts = _trained(x, y, owner, mixed[:, held:], mixed[:, :held], method, training, draws)
    test = torch.from_numpy(rows.test)[owner]
    with torch.no_grad():
        inputs = x[owner[:, None], test]
        if method.dropout:
            each = [forward(parts, inputs, method.dropout, draws) for _ in range(method.members)]
        else:
            each = [forward(parts, inputs)]
    mean, variance = (torch.stack([one[k] for one in each]).double().numpy() for k in range(2))
    if not method.dropout:
        shape = len(train), networks, -1
        mean, variance = (part[0].reshape(shape).transpose(1, 0, 2) for part in (mean, variance))
    return {
        "mean": mean * scale[:, None] + centre[:, None],
        "variance": variance * scale[:, None] ** 2,
    }


def _standardised(rows: Rows, train: np.ndarray) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return float32 inputs and outcomes of each split by its training rows; outcomes' mean and scale."""
    import torch

    x, y = [], []
    centres, scales = [], []
    for own in train:
        centre, scale = rows.x[own].mean(0), rows.x[own].std(0)
        x.append((rows.x - centre) / np.where(scale > 0, scale, 1.0))
        centres.append(rows.y[own].mean())
        scales.append(rows.y[own].std() or 1.0)
        y.append((rows.y - centres[-1]) / scales[-1])
    inputs, outcomes = (torch.from_numpy(np.stack(each).astype(np.float32)) for each in (x, y))
    return inputs, outcomes, np.array(centres), np.array(scales)


def _trained(
    x: Any, y: Any, owner: Any, rows: Any, held: Any, method: Method, training: Training, draws: Any
) -> list[Any]:
    """Return the parameters of networks, each as it was when its held rows liked it best.

    Parameters
    ----------
    x, y
        (splits, rows, features) and (splits, rows).
    owner
        (networks,), the split of each.
    rows, held
        (networks, ...), what each is trained on, and what says when to stop.
    """
    import torch

    parts = initial(len(owner), x.shape[-1], training.hidden, draws)
    for part in parts:
        part.requires_grad_(True)
    steps = training.steps(rows.shape[1])
    optimizer = torch.optim.Adam(parts, lr=training.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, lowest = [part.detach().clone() for part in parts], torch.full((len(owner),), math.inf)
    places = owner[:, None]
    judge = x[places, held], y[places, held]
    for step in range(1, steps + 1):
        own = rows.gather(1, torch.randint(rows.shape[1], (len(owner), training.batch), generator=draws))
        optimizer.zero_grad()
        # A sum over networks: none knows of another.
        loss = nll(*forward(parts, x[places, own], method.dropout, draws), y[places, own]).mean(1).sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(steps // _LOOKS, 1) == 0:
            with torch.no_grad():
                found = nll(*forward(parts, judge[0]), judge[1]).mean(1)
                better = found < lowest
                lowest = torch.where(better, found, lowest)
                best = [torch.where(better[:, None, None], p, b) for p, b in zip(parts, best, strict=True)]
    return best


def initial(networks: int, features: int, hidden: int, draws: Any) -> list[Any]:
    """Return parameters as ``torch.nn.Linear`` starts them: two weights, each followed by its bias."""
    import torch

    parts = []
    for width, height in ((features, hidden), (hidden, 2)):
        for shape in ((networks, width, height), (networks, 1, height)):
            parts.append((2 * torch.rand(shape, generator=draws) - 1) / math.sqrt(width))
    return parts


def forward(parts: list[Any], x: Any, dropout: float = 0.0, draws: Any = None) -> tuple[Any, Any]:
    """Return means and variances, (networks, rows), of inputs (networks, rows, features)."""
    import torch

    def dropped(values: Any) -> Any:
        if not dropout:
            return values
        return values * (torch.rand(values.shape, generator=draws) >= dropout) / (1 - dropout)

    first, first_bias, second, second_bias = parts
    hidden = torch.baddbmm(first_bias, dropped(x), first).relu()
    out = torch.baddbmm(second_bias, dropped(hidden), second)
    return out[..., 0], torch.nn.functional.softplus(out[..., 1]) + FLOOR


def nll(mean: Any, variance: Any, y: Any) -> Any:
    """Return the negative log-likelihood of each outcome, up to a constant."""
    return (variance.log() + (y - mean) ** 2 / variance) / 2
