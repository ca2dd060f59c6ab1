"""The measures of one class from means over members, for compiled loops and for whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def class_terms(
    q: Any, a: Any, u: Any, au: Any, log_q: Any, log1p: Callable[[Any], Any]
) -> tuple[Any, Any, Any]:
    """Return one class's terms of K, I and the entropy.

    Parameters
    ----------
    q, log_q
        The reference's probability and its logarithm.
    a, u, au
        Means over members of ``(p - q) / q``, ``log p - log q`` and their product.
    """
    more = 1.0 + a
    both = au + u
    k = q * (au - a * u)
    # (both - a) is the mean of phi over q; phi of the average prediction, subtracted, has the same - a.
    i = q * (both - more * log1p(a))
    entropy = q * (a - both - more * log_q)
    return k, i, entropy
