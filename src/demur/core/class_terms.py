"""The measures of one class from means over members, for compiled loops and for whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLOSE = 1e-15  # of E a u: members are so close that E phi is half of it, to 1e-8,
CLOSE_AVERAGE = 1e-3  # and of |a|: so close is their average that a series has all digits of its phi
NOISE = 2e-15  # of E a u, of which K and I are differences: some units of its last digit


def class_terms(a: Any, u: Any, au: Any, phi: Any, of_average: Any, log_q: Any) -> tuple[Any, Any, Any]:
    """Return one class's terms of the entropy, K and I, over the reference's probability ``q``.

    Parameters
    ----------
    a, u, au, phi
        Means over members of ``(p - q) / q``, ``log p - log q``, their product, and ``phi / q``.
    of_average
        ``phi / q`` of the average prediction.
    """
    return -phi - (1.0 + a) * log_q, au - a * u, phi - of_average


def settle(term: Any, au: Any, where: Callable[..., Any]) -> Any:
    """Return a term of K or I, or 0 for what rounding leaves of one where p, next to 0, is alike for all."""
    return where(abs(term) > NOISE * abs(au), term, 0.0)


def mean_phi(a: Any, u: Any, au: Any, close: Any, where: Callable[..., Any]) -> Any:
    """Return the mean of ``phi / q``; where members are close, ``u - a`` has none of its digits.

    ``close``: whether ``au`` is below ``CLOSE``, and no member excludes the class.
    """
    return where(close, 0.5 * au, au + (u - a))


def phi_of_average(a: Any, log1p: Callable[[Any], Any], where: Callable[..., Any]) -> Any:
    """Return ``phi / q`` of the average prediction, not negative however close that is to ``q``."""
    v = log1p(a)
    series = v * v * (1 / 2 + v * (1 / 3 + v * (1 / 8 + v * (1 / 30 + v / 144))))
    return where(abs(a) < CLOSE_AVERAGE, series, (1.0 + a) * v - a)
