"""Numbers and columns as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def json_columns(columns: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Return columns as lists of values that JSON can hold."""
    return {name: [json_number(value) for value in values] for name, values in columns.items()}


def json_number(value: Any) -> int | float | str:
    """Return a number as JSON can hold it: infinity as "inf", not-a-number as "nan"; text as it is.

    Examples
    --------
    >>> json_number(np.float32(0.1)), json_number(np.inf)
    (0.1, 'inf')
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if not math.isfinite(value):
        return str(float(value))
    return float(str(value))  # as short as in CSV: 0.1, not 0.10000000149011612
