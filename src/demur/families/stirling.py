"""Differences of the gamma function's logarithm and derivative, without subtracting nearly equal numbers.

NumPy has neither function, and differences of them at two large arguments would lose their digits. Both are
shifted upwards by ``_SHIFT`` with ``Gamma(x + 1) = x Gamma(x)`` and expanded there by Stirling's series,

    log Gamma(y) = (y - 1/2) log y - y + log(2 pi) / 2 + s(y),    s(y) = 1 / (12 y) - 1 / (360 y**3) + ...,

so that every part has a difference of its own in closed form. With eight terms the rest at y = 10 is 2e-18.
"""

from __future__ import annotations

import math
from typing import Any

from demur.core.rules import Array
from demur.families.family import excess, log_ratio, surplus

_SHIFT = 10
_SERIES = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400,
)  # fmt: skip


def gamma_excess(xp: Any, x: Array, at: Array) -> Array:
    """Return ``log Gamma(x) - log Gamma(at) - digamma(at) (x - at) >= 0``, a sum of such terms."""
    change = x - at
    y, base = x + _SHIFT, at + _SHIFT
    found = base * surplus(xp, y, base, change) + excess(xp, y, base, change) / 2
    for step in range(_SHIFT):
        found = found + excess(xp, x + step, at + step, change)
    return found + (_series(y) - _series(base) - _slope(base) * change)


def digamma_difference(xp: Any, x: Array, other: Array) -> Array:
    """Return ``digamma(x) - digamma(other)``."""
    change = x - other
    y, base = x + _SHIFT, other + _SHIFT
    found = log_ratio(xp, y, base, change) + change / y / base / 2 + (_slope(y) - _slope(base))
    for step in range(_SHIFT):
        found = found + change / (x + step) / (other + step)
    return found


def gamma_entropy(xp: Any, shape: Array) -> Array:
    """Return the entropy of a gamma distribution of rate 1, ``x + log Gamma(x) + (1 - x) digamma(x)``."""
    large = shape >= _SHIFT
    x = xp.where(large, shape, xp.full_like(shape, float(_SHIFT)))
    # The large parts of the three terms cancel on paper.
    expanded = (xp.log(2 * math.pi * x) + 1 - 1 / x) / 2 + _series(x) + (1 - x) * _slope(x)
    x = xp.where(large, xp.ones_like(shape), shape)
    y = x + _SHIFT
    log_gamma = (y - 0.5) * xp.log(y) - y + math.log(2 * math.pi) / 2 + _series(y)
    digamma = xp.log(y) - 1 / y / 2 + _slope(y)
    for step in range(_SHIFT):
        log_gamma, digamma = log_gamma - xp.log(x + step), digamma - 1 / (x + step)
    return xp.where(large, expanded, x + log_gamma + (1 - x) * digamma)


def _series(y: Array) -> Array:
    """Return ``s(y)``, what Stirling's formula leaves of the logarithm of the gamma function."""
    square, total = 1 / y / y, 0 * y
    for coefficient in reversed(_SERIES):
        total = total * square + coefficient
    return total / y


def _slope(y: Array) -> Array:
    """Return the derivative of ``_series``."""
    square, total = 1 / y / y, 0 * y
    for index, coefficient in reversed(list(enumerate(_SERIES))):
        total = total * square - (2 * index + 1) * coefficient
    return total * square
