r"""Differences of the digamma function that lose no digits, for Dirichlet and Beta distributions.

Expectations under them are differences of :math:`\psi(x + 1)` and of :math:`\log x`, which agree in ever more
digits as ``x`` grows. With :math:`g(x) = \psi(x + 1) - \log x = \frac{1}{2x} - \frac{1}{12x^2} + \dots`
everything here is a sum of terms of one sign, or nearly so, in elementary functions of any array library.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from demur.core import arrays
from demur.core.arrays import Array

# g(x) = sum of coefficient * x**-power, asymptotically: minus B_k / k for even k (DLMF 5.11.2). From x = 10
# on the first term left out is below 1e-15 of the sum.
_SERIES = (
    (1, 1 / 2), (2, -1 / 12), (4, 1 / 120), (6, -1 / 252), (8, 1 / 240), (10, -1 / 132), (12, 691 / 32760),
    (14, -1 / 12),
)  # fmt: skip
_LARGE = 10


class Growth(NamedTuple):
    """How digamma grows from ``a + 1`` to ``a + b + 1``, and by how much less than the logarithm does."""

    log: Array  # log((a + b) / a)
    digamma: Array  # psi(a + b + 1) - psi(a + 1)
    excess: Array  # g(a) - g(a + b): the first minus the second


def growth(xp: Any, a: Array, b: Array) -> Growth:
    """Return the three differences for ``a > 0`` and ``b >= 0``, each right relative to itself."""
    small = a < _LARGE
    far = xp.where(small, a + _LARGE, a)
    # psi(x + 1) = psi(x) + 1 / x takes a small argument to a large one by terms of one sign.
    steps = sum(b / (a + k) / (a + k + b) for k in range(1, _LARGE + 1))
    log_far = xp.log1p(b / far)
    tail = _tail_difference(far, b)
    digamma = log_far - tail + xp.where(small, steps, xp.zeros_like(far))
    log = _log_ratio(xp, a, b)
    return Growth(log, digamma, xp.where(small, log - digamma, tail))


def _tail_difference(z: Array, b: Array) -> Array:
    """Return ``g(z) - g(z + b)`` from the series, for large ``z``: ``z**-k - (z + b)**-k`` term by term.

    With ``r = z / (z + b)`` it is ``z**-k (1 - r**k)``, and ``1 - r**2j`` is ``1 - r**2`` times a
    geometric sum.
    """
    r, rest = z / (z + b), b / (z + b)
    square = r * r
    (_, first), *others = _SERIES
    power, geometric, total = 1 / z, 1, 0
    inverse_square = power * power
    result = first * power * rest
    power = inverse_square
    for _, coefficient in others:
        total = total + coefficient * power * geometric
        power, geometric = power * inverse_square, 1 + square * geometric
    return result + rest * (1 + r) * total


def _log_ratio(xp: Any, a: Array, b: Array) -> Array:
    """Return ``log((a + b) / a)``, also where the ratio is no finite number."""
    far = 1e-100 * b > a
    near = xp.log1p(b / xp.where(far, b, a))
    return xp.where(far, xp.log(xp.where(far, b, xp.ones_like(b))) - xp.log(a), near)


def gamma_entropy(xp: Any, x: Array) -> Array:
    """Return the differential entropy of a Gamma(x, 1) variable, ``x + log Gamma(x) + (1 - x) psi(x)``."""
    small = x < _LARGE
    low = xp.where(small, x, xp.ones_like(x))
    direct = low + _log_gamma(low) + (1 - low) * digamma(low)
    high = xp.where(small, xp.full_like(x, _LARGE), x)
    less = 1 / high - sum(c * high**-k for k, c in _SERIES)  # log x - psi(x)
    stirling = sum(-c / (k - 1) * high ** (1 - k) for k, c in _SERIES if k > 1)
    return xp.where(small, direct, (math.log(2 * math.pi) + xp.log(high)) / 2 + stirling + (high - 1) * less)


def digamma(x: Array) -> Array:
    """Return the digamma function in the array's own library."""
    return special(x).digamma(x)


def _log_gamma(x: Array) -> Array:
    """Return the logarithm of the gamma function in the array's own library."""
    return special(x).gammaln(x)


def special(x: Array) -> Any:
    """Return the module with the array's special functions."""
    kind = arrays.library(x)
    if kind == "torch":
        return sys.modules["torch"].special
    if kind == "jax":
        import jax.scipy.special

        return jax.scipy.special
    import scipy.special

    return scipy.special
