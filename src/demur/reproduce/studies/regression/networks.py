"""Small networks with a Gaussian head; those of all splits and members are trained as one tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.reproduce.data.uci import UciDataset

VARIANCE_FLOOR = 1e-6
"""Smallest variance of a standardised outcome, as in Lakshminarayanan et al. (2017)."""
_VALIDATION_SHARE, _MOST_VALIDATION_ROWS = 0.1, 1000
"""The share of the training rows, and the most of them, that choose the best step."""
_VALIDATIONS = 40
"""How often they are evaluated."""


@dataclass(frozen=True)
class MemberMethod:
    """How members are made.

    Attributes
    ----------
    members
        Number of networks per split, or of dropout masks of one network.
    dropout
        Rate before both layers, as in Gal and Ghahramani (2016); 0: an ensemble of networks.
    """

    members: int
    dropout: float = 0.0


METHODS = {"deep-ensemble": MemberMethod(5), "mc-dropout": MemberMethod(20, 0.05)}


@dataclass(frozen=True)
class TrainingSettings:
    """How networks are trained: one hidden layer, Adam, a cosine schedule of the step size down to 0."""

    hidden: int = 50
    batch: int = 100
    rate: float = 0.01
    epochs: int = 40
    fewest: int = 1500
    most: int = 5000

    def count_steps(self, rows: int) -> int:
        """Return the number of steps for this many training rows."""
        return min(max(self.epochs * rows // self.batch, self.fewest), self.most)


def predict_test_rows(
    rows: UciDataset, method: MemberMethod, training: TrainingSettings, seed: int
) -> dict[str, np.ndarray]:
    """Return `mean` and `variance`, (members, splits, test rows), in the unit of the outcome.

    Inputs and outcomes are scaled by the training rows. A tenth of these, different for each network, chooses
    the step at which it was best.
    """
    import torch

    draws = torch.Generator().manual_seed(seed)
    train = rows.train
    x, y, centre, scale = _standardise(rows, train)
    networks = 1 if method.dropout else method.members
    owner = torch.arange(len(train)).repeat_interleave(networks)
    order = torch.stack([torch.randperm(train.shape[1], generator=draws) for _ in owner])
    mixed = torch.from_numpy(train)[owner].gather(1, order)
    held = min(max(int(_VALIDATION_SHARE * train.shape[1]), 1), _MOST_VALIDATION_ROWS)
    parts = _train(x, y, owner, mixed[:, held:], mixed[:, :held], method, training, draws)
    test = torch.from_numpy(rows.test)[owner]
    with torch.no_grad():
        inputs = x[owner[:, None], test]
        if method.dropout:
            each = [run_networks(parts, inputs, method.dropout, draws) for _ in range(method.members)]
        else:
            each = [run_networks(parts, inputs)]
    mean, variance = (torch.stack([one[k] for one in each]).double().numpy() for k in range(2))
    if not method.dropout:
        shape = len(train), networks, -1
        mean, variance = (part[0].reshape(shape).transpose(1, 0, 2) for part in (mean, variance))
    return {
        "mean": mean * scale[:, None] + centre[:, None],
        "variance": variance * scale[:, None] ** 2,
    }


def _standardise(rows: UciDataset, train: np.ndarray) -> tuple[Any, Any, np.ndarray, np.ndarray]:
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


def _train(
    x: Any,
    y: Any,
    owner: Any,
    rows: Any,
    held: Any,
    method: MemberMethod,
    training: TrainingSettings,
    draws: Any,
) -> list[Any]:
    """Return the parameters of networks, each at the step with the lowest loss on its held-out rows.

    Parameters
    ----------
    x, y
        (splits, rows, features) and (splits, rows).
    owner
        (networks,), the split of each.
    rows, held
        (networks, ...), the rows that each is trained on, and those that choose its best step.
    """
    import torch

    parts = init_parameters(len(owner), x.shape[-1], training.hidden, draws)
    for part in parts:
        part.requires_grad_(True)
    steps = training.count_steps(rows.shape[1])
    optimizer = torch.optim.Adam(parts, lr=training.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, lowest = [part.detach().clone() for part in parts], torch.full((len(owner),), math.inf)
    places = owner[:, None]
    judge = x[places, held], y[places, held]
    for step in range(1, steps + 1):
        own = rows.gather(1, torch.randint(rows.shape[1], (len(owner), training.batch), generator=draws))
        optimizer.zero_grad()
        # A sum over networks, so that their gradients are independent.
        loss = (
            compute_nll(*run_networks(parts, x[places, own], method.dropout, draws), y[places, own])
            .mean(1)
            .sum()
        )
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(steps // _VALIDATIONS, 1) == 0:
            with torch.no_grad():
                found = compute_nll(*run_networks(parts, judge[0]), judge[1]).mean(1)
                better = found < lowest
                lowest = torch.where(better, found, lowest)
                best = [torch.where(better[:, None, None], p, b) for p, b in zip(parts, best, strict=True)]
    return best


def init_parameters(networks: int, features: int, hidden: int, draws: Any) -> list[Any]:
    """Return initial parameters as in ``torch.nn.Linear``: two weights, each followed by its bias."""
    import torch

    parts = []
    for width, height in ((features, hidden), (hidden, 2)):
        for shape in ((networks, width, height), (networks, 1, height)):
            parts.append((2 * torch.rand(shape, generator=draws) - 1) / math.sqrt(width))
    return parts


def run_networks(parts: list[Any], x: Any, dropout: float = 0.0, draws: Any = None) -> tuple[Any, Any]:
    """Return means and variances, (networks, rows), of inputs (networks, rows, features)."""
    import torch

    def drop(values: Any) -> Any:
        if not dropout:
            return values
        return values * (torch.rand(values.shape, generator=draws) >= dropout) / (1 - dropout)

    first, first_bias, second, second_bias = parts
    hidden = torch.baddbmm(first_bias, drop(x), first).relu()
    out = torch.baddbmm(second_bias, drop(hidden), second)
    return out[..., 0], torch.nn.functional.softplus(out[..., 1]) + VARIANCE_FLOOR


def compute_nll(mean: Any, variance: Any, y: Any) -> Any:
    """Return the negative log-likelihood of each outcome, up to a constant."""
    return (variance.log() + (y - mean) ** 2 / variance) / 2
