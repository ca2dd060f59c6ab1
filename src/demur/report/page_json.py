"""Numbers and texts as a page holds them: JSON with few digits, safe inside a script element."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from demur.tasks.estimate import Estimate

_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that let a name change the order in which the text around it is read; pages write them out."""


def embed_json(content: Any) -> str:
    r"""Return JSON that can stand in a script element: no markup, no end of the element, no line separators.

    Examples
    --------
    >>> embed_json({"a": "</script><!--"})
    '{"a":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    for mark in _DIRECTIONS:
        text = text.replace(mark, f"\\\\u{ord(mark):04x}")
    # Half a character, as a name of a file may hold, has no place in UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()


def shorten(value: float, digits: int = 6) -> Any:
    """Return a number with so many digits; infinity as text."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def shorten_all(values: Any, digits: int = 6) -> list[Any]:
    """Return numbers with so many digits."""
    return [shorten(value, digits) for value in np.asarray(values).tolist()]


def shorten_estimate(estimate: Estimate) -> list[Any]:
    """Return value, low and high."""
    return shorten_all([estimate.value, estimate.low, estimate.high])
