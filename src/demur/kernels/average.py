"""The sums of members' probabilities, for groups: without one, a class may have next to no probability."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from demur.kernels.arithmetic import COMPILED

HIDDEN = 1e-6  # of the reference's q: p above that has ten digits as the sum of q and a


@njit(**COMPILED)
def is_hidden(a, total):
    """Tell whether the mean of p is lost in that of ``a / q``, next to -1, for some class."""
    return np.min(a) < (HIDDEN - 1.0) * total


@njit(**COMPILED)
def add_probabilities(row, weight, out):
    """Add a weighted prediction, from its logits."""
    highest, total = np.max(row), 0.0
    for y in range(row.shape[0]):
        total += math.exp(np.float64(row[y]) - highest)
    for y in range(row.shape[0]):
        out[y] += weight * (math.exp(np.float64(row[y]) - highest) / total)
