"""The measures of one class from means over members, for compiled loops and for whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def class_terms(a: Any, u: Any, au: Any, log_q: Any, log1p: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Return one class's terms of the entropy, K and I, over the reference's probability ``q``.

    Parameters
    ----------
    a, u, au
        Means over members of ``(p - q) / q``, ``log p - log q`` and their product.
    """
    more = 1.0 + a
    both = au + u
    # (both - a) is the mean of phi over q; phi of the average prediction, subtracted, has the same - a.
    return a - both - more * log_q, au - a * u, both - more * log1p(a)
