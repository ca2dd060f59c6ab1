"""`MeanField`: a Gaussian over all parameters, independent for each."""

from __future__ import annotations

import math
from typing import Any


class MeanField:
    r"""The Gaussian :math:`q(w) = \prod_i \mathcal N(w_i;\, \mu_i, \sigma_i^2)` with softplus scales.

    Section 3.2 of Blundell et al. (2015): :math:`\sigma = \log(1 + e^\rho)`.

    Parameters
    ----------
    start
        The first means, a vector.
    scale
        The first standard deviation of all parameters.

    Attributes
    ----------
    mean, rho
        (parameters,); they collect gradients.
    """

    def __init__(self, start: Any, scale: float) -> None:
        import torch

        self.mean = start.detach().clone().requires_grad_()
        # The inverse of softplus.
        self.rho = torch.full_like(start, math.log(math.expm1(scale))).requires_grad_()

    @classmethod
    def restore(cls, mean: Any, rho: Any) -> MeanField:
        """Return the Gaussian with these numbers."""
        found = cls(mean, 1.0)
        found.rho = rho.detach().clone().requires_grad_()
        return found

    @property
    def scale(self) -> Any:
        """Standard deviations, (parameters,)."""
        import torch

        return torch.nn.functional.softplus(self.rho)

    def compute_entropy(self, scale: Any) -> Any:
        """Return the differential entropy, in nats, given the standard deviations."""
        return scale.log().sum() + len(scale) * (1 + math.log(2 * math.pi)) / 2

    def draw(self, seed: int) -> Any:
        """Draw one vector, the same for a seed whatever was drawn before."""
        import torch

        source = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(self.mean), generator=source, dtype=self.mean.dtype)
        return (self.mean + self.scale * noise.to(self.mean.device)).detach()
