"""Adversarial attacks: inputs changed slightly so that a network errs."""

from __future__ import annotations

from typing import Any

import numpy as np


def attack_by_projected_gradient(
    model: Any,
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    radius: float,
    steps: int = 20,
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
) -> np.ndarray:
    """Return inputs attacked by projected gradient descent: white-box, untargeted.

    Madry et al. (2018), "Towards deep learning models resistant to adversarial attacks": from a random start
    within the radius, steps along the sign of the gradient of the loss, each projected back.

    Parameters
    ----------
    model
        The network that is attacked, in evaluation mode.
    inputs
        Float32, (inputs, ...).
    labels
        (inputs,), the true classes.
    radius
        How far each value of an input may move.
    steps
        Number of steps; each is 2.5 times the radius, divided by their number.
    low, high
        The range of the values of an input.
    """
    import torch

    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    least, most = (x - radius).clamp(low), (x + radius).clamp(max=high)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed))
    attacked = least + noise * (most - least)
    for _ in range(steps):
        attacked.requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(model(attacked), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, attacked)
        attacked = attacked.detach() + 2.5 * radius / steps * gradient.sign()
        attacked = torch.minimum(torch.maximum(attacked, least), most)
    return attacked.numpy()
