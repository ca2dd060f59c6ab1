"""Logarithms of ratios, and divergences made of them: exact also where two numbers nearly agree.

Written as they stand in a textbook, ``log p - log q`` and ``r log r - r + 1`` subtract nearly equal numbers
where ``p`` is nearly ``q``. Here differences are taken first, and series replace what would cancel.
"""

from __future__ import annotations

from typing import Any

from demur.core.arrays import Array


def epsilon(xp: Any, array: Array) -> float:
    """Return the spacing of the array's numbers at 1."""
    return float(xp.finfo(array.dtype).eps)


def log_ratio(xp: Any, p: Array, q: Array, change: Array | None = None) -> Array:
    """Return ``log(p / q)`` of positive numbers, exact also where they nearly agree.

    ``change`` is ``p - q``, where that is known to more digits than ``p`` and ``q`` have.
    """
    change = p - q if change is None else change
    far = 1e-100 * xp.abs(change) > q  # so that the ratio may be no finite number
    relative = change / xp.where(far, xp.ones_like(q), q)
    near = (relative > -0.5) & ~far
    direct = xp.log(xp.where(near, xp.ones_like(p), p)) - xp.log(xp.where(near, xp.ones_like(q), q))
    return xp.where(near, xp.log1p(xp.where(near, relative, xp.zeros_like(relative))), direct)


def itakura_saito(xp: Any, p: Array, q: Array, change: Array | None = None) -> Array:
    """Return ``r - 1 - log r >= 0`` for ``r = p / q``: KL of exponentials of these means."""
    change = p - q if change is None else change
    relative = change / q
    small = xp.abs(relative) < 0.02
    x = xp.where(small, relative, 0 * relative)
    total = 0 * x
    # x - log(1 + x) by its series: eight terms leave 1e-14 of it at 0.02, where the other form is as exact.
    for power in range(9, 1, -1):
        total = 1 / power - x * total
    return xp.where(small, x * x * total, relative - log_ratio(xp, p, q, change))


def generalised_kl(xp: Any, p: Array, q: Array, change: Array | None = None) -> Array:
    """Return ``r log r - r + 1 >= 0`` for ``r = p / q``: KL of Poissons of these rates, over ``q``."""
    change = p - q if change is None else change
    return generalised_kl_term(xp, change / q, log_ratio(xp, p, q, change))


def generalised_kl_term(xp: Any, relative: Array, log: Array) -> Array:
    """Return ``r log r - r + 1``, given both ``r - 1`` and ``log r``.

    This is what one class, or one point of a density, adds to a Kullback-Leibler divergence, over ``q``.
    A prediction that excludes the class has a relative change of -1 and, here, a logarithm of 0.
    """
    small = (xp.abs(log) < (0.02 if epsilon(xp, log) < 1e-10 else 0.3)) & (xp.abs(relative) < 0.5)
    t = xp.where(small, log, xp.zeros_like(log))
    series = 1 / 144 + t * (1 / 840 + t / 5760)
    series = t * t * (1 / 2 + t * (1 / 3 + t * (1 / 8 + t * (1 / 30 + t * series))))
    return xp.where(small, series, (1 + relative) * log - relative)


def exponential_excess(xp: Any, relative: Array, log: Array) -> Array:
    """Return ``r - 1 - log r >= 0``, given both ``r - 1`` and ``log r``; by its series where they agree.

    This is what one class adds to the divergence of an average from a member, over the average.
    """
    small = xp.abs(log) < 0.3
    t = xp.where(small, log, xp.zeros_like(log))
    series = 1 / 120 + t * (1 / 720 + t * (1 / 5040 + t / 40320))
    series = t * t * (1 / 2 + t * (1 / 6 + t * (1 / 24 + t * series)))
    return xp.where(small, series, relative - log)
