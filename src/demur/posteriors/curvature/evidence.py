r"""The log marginal likelihood of a Laplace approximation, and what maximises it.

With parameters :math:`\theta` (P of them), prior precision :math:`\delta` and eigenvalues :math:`h` of the
curvature (MacKay, 1992, "A practical Bayesian framework for backpropagation networks"),

.. math::

    \log p(D) \approx \log p(D | \theta) - \tfrac\delta2 |\theta|^2 - \tfrac12 \sum \log(1 + h / \delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

_FARTHEST = 300.0
"""Natural logarithm of the largest precision or variance that is looked at."""


@dataclass(frozen=True)
class Evidence:
    """What the marginal likelihood depends on, besides prior precision and noise.

    Parameters
    ----------
    eigenvalues
        Of the curvature, of any shape, 0 or more; in regression, for noise of variance 1.
    square_norm
        Sum of the squared parameters.
    fit
        The log-likelihood of the labels; in regression, the sum of squared residuals.
    numbers
        In regression, how many numbers were predicted, inputs times outputs; 0 for classes.
    """

    eigenvalues: np.ndarray
    square_norm: float
    fit: float
    numbers: int = 0

    def log_marginal_likelihood(self, precision: float, noise: float | None = None) -> float:
        """Return it in nats; ``noise`` is the variance of the observations, None for classes."""
        curvature = self.eigenvalues if noise is None else self.eigenvalues / noise
        likelihood = self.fit
        if noise is not None:
            likelihood = -self.numbers / 2 * math.log(2 * math.pi * noise) - self.fit / (2 * noise)
        spread = float(np.log1p(curvature / precision).sum())
        return likelihood - (precision * self.square_norm + spread) / 2

    def maximise(self, precision: float | None, noise: float | None) -> tuple[float, float | None]:
        """Return prior precision and noise with the largest marginal likelihood; given ones stay as they are.

        Each derivative below is the difference of a rising and a falling function of the logarithm, so that
        it has one zero, and the maximum is the only one.
        """
        if not self.numbers:
            return (self._find_precision(1.0) if precision is None else precision), None
        if precision is not None:
            return precision, self._find_noise(precision) if noise is None else noise
        if noise is not None:
            return self._find_precision(noise), noise
        # With a = precision * noise, the best noise is known: (residuals + a |theta|^2) / numbers.
        square, fit, numbers = self.square_norm, self.fit, self.numbers

        def slope(a: float) -> float:
            return self._count_determined(a) - numbers * a * square / (fit + a * square)

        a = _find_zero(slope, "prior_precision")
        noise = (fit + a * square) / numbers
        return a / noise, noise

    def _find_precision(self, noise: float) -> float:
        """Return the best prior precision: the number of determined parameters over their squared norm."""
        if self.square_norm == 0:
            raise ValueError(
                "prior_precision='marginal_likelihood' takes parameters other than 0. Got none: the prior "
                "would be infinitely narrow. Give a number."
            )
        return _find_zero(
            lambda d: self._count_determined(d * noise) - d * self.square_norm, "prior_precision"
        )

    def _find_noise(self, precision: float) -> float:
        """Return the best variance of the observations."""
        return _find_zero(
            lambda v: self.fit / v + self._count_determined(precision * v) - self.numbers, "noise_variance"
        )

    def _count_determined(self, damping: float) -> float:
        """Return MacKay's gamma, the number of parameters that the data determine."""
        return float((self.eigenvalues / (self.eigenvalues + damping)).sum())


def _find_zero(slope: Callable[[float], float], name: str) -> float:
    """Return where a function that falls from above 0 to below 0 is 0, on the positive numbers."""
    low, high = -1.0, 1.0
    while slope(math.exp(low)) < 0 and low > -_FARTHEST:
        low *= 2
    while slope(math.exp(high)) > 0 and high < _FARTHEST:
        high *= 2
    if slope(math.exp(low)) < 0 or slope(math.exp(high)) > 0:
        raise ValueError(
            f"{name}='marginal_likelihood' takes data for which a finite one is best. Got data that the "
            "model fits exactly, or that tell nothing about it. Give a number."
        )
    found, _ = brentq(lambda at: slope(math.exp(at)), low, high, xtol=1e-12, full_output=True)
    return math.exp(found)
