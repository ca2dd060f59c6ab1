"""Products of a linear layer by NumPy, in the order of compiled loops: the same to the last bit.

A matrix product of a library adds up in an order of its own, which changes with the number of rows.
"""

from __future__ import annotations

import numpy as np

LANES = 16
"""Sums that are kept for a logit: one for every sixteenth feature."""

_NUMBERS_AT_ONCE = 1 << 15
"""Sums that stay in the cache."""


def split_rows(rows: int, classes: int) -> list[slice]:
    """Return parts of rows whose sums stay in the cache."""
    some = max(1, _NUMBERS_AT_ONCE // (LANES * classes))
    return [slice(begin, begin + some) for begin in range(0, rows, some)]


def multiply_in_lanes(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the logits of rows of features, (rows, classes).

    Feature k is added to sum k modulo 16, and then one half of the sums to the other until one is left.
    """
    features = rows.shape[1]
    blocks = -(-features // LANES)
    # Rows come last: NumPy is fast along the last axis if that is long.
    turned = np.zeros((blocks * LANES, len(rows)), rows.dtype)
    turned[:features] = rows.T
    layer = np.zeros((len(weight), blocks * LANES, 1), rows.dtype)
    layer[:, :features, 0] = weight
    sums = np.zeros((len(weight), LANES, len(rows)), rows.dtype)
    product = np.empty_like(sums)
    for begin in range(0, blocks * LANES, LANES):
        own = slice(begin, begin + LANES)
        np.multiply(layer[:, own], turned[own], out=product)
        sums += product
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0].T + bias
