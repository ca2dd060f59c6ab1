"""Priors of variational inference, and the cross-entropy of a mean-field Gaussian with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_LOG_ROOT = math.log(2 * math.pi) / 2
"""The logarithm of the root of 2 pi."""


@dataclass(frozen=True)
class GaussianPrior:
    """The same Gaussian about a centre for each parameter; a scale of infinity is a flat prior."""

    centre: Any
    scale: float

    def compute_cross_entropy(self, mean: Any, scale: Any) -> Any:
        """Return minus the expected log density of the prior, exactly; of a flat prior, 0."""
        spread = (scale.square() + (mean - self.centre).square()).sum() / (2 * self.scale**2)
        constant = 0.0 if math.isinf(self.scale) else math.log(self.scale) + _LOG_ROOT
        return spread + constant * len(mean)


@dataclass(frozen=True)
class ScaleMixturePrior:
    """A mixture of a wide and a narrow Gaussian for each parameter: Blundell et al. (2015), Eq. 7."""

    centre: Any
    share: float  # of the wide one
    wide: float
    narrow: float

    def compute_cross_entropy(self, mean: Any, scale: Any) -> Any:
        """Return minus the log density of the prior at one draw: an unbiased estimate."""
        import torch

        drawn = mean + scale * torch.randn_like(mean) - self.centre
        logs = [
            math.log(share) - _LOG_ROOT - math.log(width) - (drawn / width).square() / 2
            for share, width in ((self.share, self.wide), (1 - self.share, self.narrow))
        ]
        return -torch.logaddexp(*logs).sum()


def check_mixture(mixture: Any) -> tuple[float, float, float]:
    """Return the share of the wide Gaussian and both scales; raise unless they make a mixture."""
    if not isinstance(mixture, Sequence) or len(mixture) != 3:
        raise ValueError(
            "mixture must be three numbers: the share of the wide part, its scale and the narrow scale. "
            f"Got {mixture!r}."
        )
    share, wide, narrow = (float(each) for each in mixture)
    if not (0 < share < 1 and 0 < narrow < wide < math.inf):
        raise ValueError(
            "mixture must have a share between 0 and 1, and a wide scale above a narrow one. "
            f"Got {mixture!r}."
        )
    return share, wide, narrow
