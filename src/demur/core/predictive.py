"""The average of members that predict a number, as a distribution: cdf, quantiles, density and CRPS.

Numbers are (members, inputs), outcomes (inputs,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_NUMBERS_AT_ONCE = 1 << 18  # worked on at a time
_MOST_STEPS = 400  # a hundred halvings, where thirteen digits of the widest bracket take 50


@dataclass(frozen=True)
class GaussianMixture:
    """Gaussian members with weights that sum to 1."""

    means: np.ndarray
    scale: np.ndarray
    shares: np.ndarray

    def only(self, inputs: slice) -> GaussianMixture:
        """Return some of the inputs."""
        return GaussianMixture(self.means[:, inputs], self.scale[:, inputs], self.shares[:, inputs])

    def mean(self) -> np.ndarray:
        """Return the mean, exact where all members agree."""
        reference = self.means[0]
        return reference + np.sum(self.shares * (self.means - reference), axis=0)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return the probability of a number up to y."""
        from scipy.special import ndtr

        return np.sum(self.shares * ndtr((y - self.means) / self.scale), axis=0)

    def density(self, y: np.ndarray) -> np.ndarray:
        """Return the density at y."""
        z = (y - self.means) / self.scale
        return np.sum(self.shares * np.exp(-z * z / 2) / self.scale, axis=0) / math.sqrt(2 * math.pi)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return the log-density at y, also where the density itself is too small to write down."""
        from scipy.special import logsumexp

        z = (y - self.means) / self.scale
        logs = -z * z / 2 - np.log(self.scale) - math.log(2 * math.pi) / 2
        return np.asarray(logsumexp(logs, axis=0, b=self.shares))

    def quantile(self, q: float) -> np.ndarray:
        """Return the number that has probability q below it: Newton's steps within a shrinking bracket."""
        if q > 0.5:  # where 1 - q is exact, and the upper tail has digits that the cdf has not
            return -GaussianMixture(-self.means, self.scale, self.shares).quantile(1 - q)
        from scipy.special import ndtri

        own = self.means + self.scale * ndtri(q)
        used = self.shares > 0
        low = np.where(used, own, np.inf).min(axis=0)  # the average's lies between those of the members
        high = np.where(used, own, -np.inf).max(axis=0)
        finest = np.where(used, self.scale, np.inf).min(axis=0)
        x = low + (high - low) / 2
        for count in range(_MOST_STEPS):
            above = self.cdf(x) - q
            low, high = np.where(above <= 0, x, low), np.where(above >= 0, x, high)
            slope = self.density(x)
            flat = slope == 0
            step = x - above / np.where(flat, 1.0, slope)
            inside = ~flat & (step >= low) & (step <= high)
            rounding = 4 * np.finfo(float).eps * np.maximum(np.abs(x), finest)
            if np.all((high - low <= rounding) | (inside & (np.abs(step - x) <= rounding))):
                break
            # Newton's steps may creep along one end of the bracket: every fourth is a halving.
            x = np.where(inside & (count % 4 != 3), step, low + (high - low) / 2)
        return x

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the CRPS in closed form (Grimit et al., 2006), by all pairs of members."""
        found = np.sum(self.shares * _mean_size(y - self.means, self.scale), axis=0)
        for mean, scale, share in zip(self.means, self.scale, self.shares, strict=True):
            pairs = _mean_size(self.means - mean, np.hypot(self.scale, scale))
            found -= share * np.sum(self.shares * pairs, axis=0) / 2
        return found


def _mean_size(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return E|X| of Gaussians."""
    from scipy.special import erf

    z = mean / scale
    return scale * math.sqrt(2 / math.pi) * np.exp(-z * z / 2) + mean * erf(z / math.sqrt(2))


@dataclass(frozen=True)
class NumberMixture:
    """Numbers with weights that sum to 1: points of members, or all of their draws."""

    numbers: np.ndarray
    shares: np.ndarray

    def only(self, inputs: slice) -> NumberMixture:
        """Return some of the inputs."""
        return NumberMixture(self.numbers[:, inputs], self.shares[:, inputs])

    def mean(self) -> np.ndarray:
        """Return the mean, exact where all numbers are equal."""
        reference = self.numbers[0]
        return reference + np.sum(self.shares * (self.numbers - reference), axis=0)

    def quantile(self, q: float) -> np.ndarray:
        """Return the smallest of the numbers that has at least q of the weight up to it."""
        order = np.argsort(self.numbers, axis=0)
        reached = np.cumsum(np.take_along_axis(self.shares, order, axis=0), axis=0)
        # q and sums of weights are rounded: 7 of 100 numbers are a share of 0.07.
        enough = reached >= q * reached[-1] * (1 - 8 * np.finfo(float).eps)
        first = np.take_along_axis(order, enough.argmax(axis=0)[None], axis=0)
        return np.take_along_axis(self.numbers, first, axis=0)[0]

    def ranks(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weight of numbers below y, and of those equal to it."""
        return (
            np.sum(self.shares * (self.numbers < y), axis=0),
            np.sum(self.shares * (self.numbers == y), axis=0),
        )

    def mean_distance(self, y: np.ndarray) -> np.ndarray:
        """Return the mean distance of the numbers from y."""
        return np.sum(self.shares * np.abs(self.numbers - y), axis=0)


Mixture = GaussianMixture | NumberMixture


def in_blocks(mixture: Mixture, function: Callable[[Any, slice], np.ndarray]) -> np.ndarray:
    """Return what a function of a mixture and its inputs returns, in blocks that stay in the cache."""
    members, inputs = mixture.shares.shape
    size = max(1, _NUMBERS_AT_ONCE // members)
    blocks = [slice(begin, begin + size) for begin in range(0, inputs, size)]
    return np.concatenate([function(mixture.only(block), block) for block in blocks])
