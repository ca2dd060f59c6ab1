"""The measures of one class from means over members, for compiled loops and for whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def class_terms(a: Any, u: Any, au: Any, log_q: Any, log1p: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Return one class's terms of K, I and the entropy, over ``q``.

    Parameters
    ----------
    a, u, au
        Means over members of ``(p - q) / q``, ``log p - log q`` and their product.
    """
    k = au - a * u
    # (au + u - a) is the mean of phi; what is subtracted is phi of the average prediction.
    i = au + u - a - ((1.0 + a) * log1p(a) - a)
    entropy = a - u - au - (1.0 + a) * log_q
    return k, i, entropy
