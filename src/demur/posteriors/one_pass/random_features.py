"""Random Fourier features: a Gaussian process as Bayesian linear regression, with its Laplace covariance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


class RandomFeatureHead:
    r"""Logits that are linear in random Fourier features of a network's features.

    .. math:: g_k(h) = \phi(h)^\top \beta_k, \qquad \phi(h) = \sqrt{2 / D} \cos(W h / \ell + b),

    with fixed W ~ N(0, 1) and b ~ U(0, 2 pi), so that :math:`\phi(h)^\top \phi(h')` is, on average over
    these, the kernel :math:`\exp(-|h - h'|^2 / 2 \ell^2)` (Rahimi and Recht, 2007). The prior of the weights
    is :math:`\beta_k \sim \mathcal N(0, 1)`.
    """

    def __init__(
        self, width: int, classes: int, *, features: int, length_scale: float, seed: int, device: Any = None
    ) -> None:
        import torch

        source = torch.Generator().manual_seed(seed)
        kind: dict[str, Any] = {"dtype": torch.float64}
        weight = torch.randn(features, width, generator=source, **kind)
        offset = torch.rand(features, generator=source, **kind) * 2 * math.pi
        self.parameters = {"beta": torch.zeros(features, classes, **kind, device=device).requires_grad_()}
        self.buffers = {
            "weight": (weight / length_scale).to(device),
            "offset": offset.to(device),
        }

    def expand(self, features: Any) -> Any:
        """Return the random features of features, (inputs, D), in float64."""
        found = features.double() @ self.buffers["weight"].T + self.buffers["offset"]
        return math.sqrt(2 / found.shape[1]) * found.cos()

    def logits(self, expanded: Any) -> Any:
        """Return the logits at the most likely weights, (inputs, classes)."""
        return expanded @ self.parameters["beta"]

    def penalty(self) -> Any:
        """Return minus the log prior of the weights, up to a constant."""
        return self.parameters["beta"].square().sum() / 2


def factorise_precision(head: RandomFeatureHead, batches: Iterable[Any]) -> Any:
    r"""Return Cholesky factors of the classes' precisions, (classes, D, D).

    Liu et al. (2020), section 3.1, the Laplace approximation of each class's weights by themselves:
    :math:`\Sigma_k^{-1} = I + \sum_i p_{ik} (1 - p_{ik}) \phi_i \phi_i^\top`.

    Parameters
    ----------
    head
        The head, trained.
    batches
        Features of all training inputs, (some, features) at a time.
    """
    import torch

    beta = head.parameters["beta"]
    size, classes = beta.shape
    found = torch.eye(size, dtype=beta.dtype, device=beta.device).repeat(classes, 1, 1)
    with torch.no_grad():
        for features in batches:
            expanded = head.expand(features)
            shares = torch.softmax(head.logits(expanded), 1)
            for k in range(classes):
                found[k].addmm_((expanded * (shares[:, k] * (1 - shares[:, k]))[:, None]).T, expanded)
    # The identity is in it, so that it has a factor whatever the data.
    return torch.linalg.cholesky(found)
