"""Intervals of probabilities, class by class, from the lowest to the highest that a member gives.

Their set is all distributions within them. The highest entropy is exact, by water filling; the lowest comes
with a bound, from the search in ``knapsack``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from demur.credal import knapsack
from demur.credal.compiled_calls import SEARCH
from demur.kernels.compiling import find_loop

INTERVALS_WORTH_COMPILING = 2048  # intervals below which the search is not worth compiling
_INPUTS_AT_ONCE = 8  # that the plain search takes before it asks again for a compiled one

Search = Callable[..., np.ndarray]


def highest_entropy_point(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the distribution of highest entropy within intervals, (inputs, classes).

    It is as level as the intervals allow: one level for all classes, cut off at the ends of each interval,
    with the sum 1.
    """
    ends = np.concatenate([low, high], axis=1)
    order = np.argsort(ends, axis=1)
    levels = np.take_along_axis(ends, order, axis=1)
    # Between two ends the sum rises by the classes whose interval holds the level.
    rising = np.cumsum(np.where(order < low.shape[1], 1, -1), axis=1)[:, :-1]
    rise = np.cumsum(rising * np.diff(levels, axis=1), axis=1)
    missing = 1.0 - np.sum(low, axis=1, keepdims=True)
    k = np.minimum(np.sum(rise < missing, axis=1, keepdims=True), rise.shape[1] - 1)
    below, above = (np.take_along_axis(levels, at, axis=1) for at in (k, k + 1))
    free = (low <= below) & (high >= above) & (low < high)
    fixed = np.where(free, 0.0, np.where(high <= below, high, low))
    count = np.sum(free, axis=1, keepdims=True)
    level = (1.0 - np.sum(fixed, axis=1, keepdims=True)) / np.maximum(count, 1)
    return np.where(free, np.clip(level, low, high), fixed)


def search_for(intervals: int) -> Search:
    """Return the search of ``knapsack``, compiled as soon as that pays if there are intervals enough."""
    return knapsack.search if intervals < INTERVALS_WORTH_COMPILING else _search


def _search(*given: np.ndarray) -> np.ndarray:
    """Search as ``knapsack.search`` does; compiled, which gives the same bytes, once that has taken long.

    How long depends on the numbers: some inputs take a thousand times as long as others.
    """
    found, inputs, seconds = [], len(given[0]), 0.0
    for begin in range(0, inputs, _INPUTS_AT_ONCE):
        loop = find_loop(SEARCH, seconds, repeated=True)
        if loop is not None:
            return np.concatenate([*found, loop(*(each[begin:] for each in given))])
        start = time.perf_counter()
        found.append(knapsack.search(*(each[begin : begin + _INPUTS_AT_ONCE] for each in given)))
        seconds = time.perf_counter() - start
    return np.concatenate(found) if found else np.zeros(0)


def lowest_entropy_point(
    low: np.ndarray, high: np.ndarray, search: Search
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return a distribution of low entropy within intervals, and how far below it the lowest may be."""
    from scipy.special import entr

    width, gain = high - low, entr(high) - entr(low)
    wide = width > 0
    order = np.argsort(np.where(wide, gain / np.where(wide, width, 1.0), np.inf), axis=1)
    lows, widths, gains = (np.take_along_axis(part, order, axis=1) for part in (low, width, gain))
    # Members sum to 1 but for rounding, and so may the ends of intervals that hardly have a width.
    missing = np.maximum(0.0, 1.0 - np.sum(low, axis=1))
    budgets = np.minimum(missing, np.cumsum(widths, axis=1)[:, -1])
    corners = np.zeros_like(low)
    gaps = search(lows, widths, gains, np.sum(wide, axis=1), budgets, corners)
    shares = np.empty_like(low)
    np.put_along_axis(shares, order, corners, axis=1)
    return low + shares, gaps
