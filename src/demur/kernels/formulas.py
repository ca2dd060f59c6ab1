"""The measures of one class from means over members, for compiled loops and for whole arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

LOST = 0.3  # of one log s: 5e-6 of that is more than float32 takes from t / s - log s
DIFFERENT = 16  # members that are taken to be different at most: a chain that stays repeats them


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


def noise(moved: Any, members: float) -> Any:
    """Return what figures must be above so that float32 has their digits, in the sums of ``brief``.

    Parameters
    ----------
    moved
        The mean of ``|log s|``: how far all logits of a member have moved together, which cancels.
    members
        How many there are: the errors of as many as differ average out.
    """
    return LOST * moved / math.sqrt(min(members, DIFFERENT))
