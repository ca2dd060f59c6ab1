r"""The gamma function's logarithm and derivative, and differences of them that lose no digits.

NumPy has neither function, and differences at two large arguments would cancel. Arguments are shifted upwards
by ``_SHIFT`` with ``Gamma(x + 1) = x Gamma(x)`` and expanded there by Stirling's series,

    log Gamma(y) = (y - 1/2) log y - y + log(2 pi) / 2 + s(y),    s(y) = 1 / (12 y) - 1 / (360 y**3) + ...,

so that every part has a difference of its own in closed form. With eight terms the rest at y = 10 is 2e-18.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from demur.core.arrays import Array
from demur.core.logarithms import generalised_kl, itakura_saito, log_ratio

_SHIFT = 10
_SERIES = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip
_SLOPES = tuple(
    -(2 * index + 1) * coefficient for index, coefficient in enumerate(_SERIES)
)  # of y**-2, -4 ...


def log_gamma(xp: Any, x: Array) -> Array:
    """Return the logarithm of the gamma function of positive numbers."""
    y = x + _SHIFT
    found = (y - 0.5) * xp.log(y) - y + math.log(2 * math.pi) / 2 + _series(y)
    for step in range(_SHIFT):
        found = found - xp.log(x + step)
    return found


def digamma(xp: Any, x: Array) -> Array:
    """Return the derivative of the logarithm of the gamma function of positive numbers."""
    y = x + _SHIFT
    found = xp.log(y) - 1 / y / 2 + _slope(y)
    for step in range(_SHIFT):
        found = found - 1 / (x + step)
    return found


def gamma_entropy(xp: Any, shape: Array) -> Array:
    """Return the entropy of a gamma distribution of rate 1, ``x + log Gamma(x) + (1 - x) digamma(x)``."""
    large = shape >= _SHIFT
    x = xp.where(large, shape, xp.full_like(shape, float(_SHIFT)))
    # The large parts of the three terms cancel on paper.
    expanded = (xp.log(2 * math.pi * x) + 1 - 1 / x) / 2 + _series(x) + (1 - x) * _slope(x)
    x = xp.where(large, xp.ones_like(shape), shape)
    return xp.where(large, expanded, x + log_gamma(xp, x) + (1 - x) * digamma(xp, x))


def gamma_excess(xp: Any, x: Array, at: Array) -> Array:
    """Return ``log Gamma(x) - log Gamma(at) - digamma(at) (x - at) >= 0``, a sum of such terms."""
    change = x - at
    y, base = x + _SHIFT, at + _SHIFT
    found = base * generalised_kl(xp, y, base, change) + itakura_saito(xp, y, base, change) / 2
    for step in range(_SHIFT):
        found = found + itakura_saito(xp, x + step, at + step, change)
    return found + (_series(y) - _series(base) - _slope(base) * change)


def digamma_difference(xp: Any, x: Array, other: Array) -> Array:
    """Return ``digamma(x) - digamma(other)``."""
    change = x - other
    y, base = x + _SHIFT, other + _SHIFT
    found = log_ratio(xp, y, base, change) + change / y / base / 2 + (_slope(y) - _slope(base))
    for step in range(_SHIFT):
        found = found + change / (x + step) / (other + step)
    return found


class Growth(NamedTuple):
    """How digamma grows from ``a + 1`` to ``a + b + 1``, and by how much less than the logarithm does."""

    log: Array  # log((a + b) / a)
    digamma: Array  # psi(a + b + 1) - psi(a + 1)
    excess: Array  # g(a) - g(a + b) with g(x) = psi(x + 1) - log x: the first minus the second


def grow(xp: Any, a: Array, b: Array) -> Growth:
    """Return the three differences for ``a > 0`` and ``b >= 0``, each right relative to itself."""
    small = a < _SHIFT
    far = xp.where(small, a + _SHIFT, a)
    # psi(x + 1) = psi(x) + 1 / x takes a small argument to a large one by terms of one sign.
    steps = sum(b / (a + k) / (a + k + b) for k in range(1, _SHIFT + 1))
    tail = _tail_difference(far, b)
    grown = xp.log1p(b / far) - tail + xp.where(small, steps, xp.zeros_like(far))
    log = log_ratio(xp, a + b, a, b)
    return Growth(log, grown, xp.where(small, log - grown, tail))


def _tail_difference(z: Array, b: Array) -> Array:
    """Return ``g(z) - g(z + b)`` for large ``z``: ``z**-k - (z + b)**-k`` term by term of g's series.

    With ``r = z / (z + b)`` it is ``z**-k (1 - r**k)``, and ``1 - r**2j`` is ``1 - r**2`` times a
    geometric sum. The series of g is ``1 / (2 z)`` and the slope of Stirling's.
    """
    r, rest = z / (z + b), b / (z + b)
    square, inverse_square = r * r, 1 / z / z
    power, geometric, total = inverse_square, 1, 0
    for coefficient in _SLOPES:
        total = total + coefficient * power * geometric
        power, geometric = power * inverse_square, 1 + square * geometric
    return rest / z / 2 + rest * (1 + r) * total


def _series(y: Array) -> Array:
    """Return ``s(y)``, what Stirling's formula leaves of the logarithm of the gamma function."""
    square, total = 1 / y / y, 0 * y
    for coefficient in reversed(_SERIES):
        total = total * square + coefficient
    return total / y


def _slope(y: Array) -> Array:
    """Return the derivative of ``_series``."""
    square, total = 1 / y / y, 0 * y
    for coefficient in reversed(_SLOPES):
        total = total * square + coefficient
    return total * square
