"""Fewer points that look the same: bins for histograms, corners for curves, ranks for scatter plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_LOGARITHMIC_FROM = 100.0  # scores that span more than this factor are shown on a logarithmic axis


@dataclass(frozen=True)
class Bins:
    """Counts per bin of several sets on common edges.

    Attributes
    ----------
    edges
        (bins + 1,), finite.
    logarithmic
        Whether edges are evenly spaced on a logarithmic axis.
    counts
        (bins,) by set.
    below, infinite
        How many inputs have no place on the axis, by set: 0 and what is next to it on a logarithmic one, and
        infinity.
    number
        How many inputs there are, by set.
    """

    edges: np.ndarray
    logarithmic: bool
    counts: dict[str, np.ndarray]
    below: dict[str, int]
    infinite: dict[str, int]
    number: dict[str, int]


def count_bins(sets: Mapping[str, np.ndarray], bins: int = 50) -> Bins:
    """Return counts per bin; on a logarithmic axis where positive scores span a factor of 100 or more.

    Examples
    --------
    >>> found = count_bins({"id": np.array([0.0, 1e-4, 0.02, 1.0, np.inf])}, bins=4)
    >>> found.logarithmic, found.counts["id"].tolist(), found.below, found.infinite
    (True, [1, 0, 1, 1], {'id': 1}, {'id': 1})
    """
    pooled = np.concatenate(list(sets.values()))
    finite = pooled[np.isfinite(pooled)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    logarithmic = False
    if low >= 0 and high > 0:
        # Nine powers of ten at most: more would leave no room for the scores that matter.
        least = max(float(np.quantile(finite[finite > 0], 0.005, method="lower")), high * 1e-9)
        logarithmic = high > _LOGARITHMIC_FROM * least
        low = least if logarithmic else low
    if low == high:
        low, high = low - 0.5 * max(abs(low), 1.0), high + 0.5 * max(abs(high), 1.0)
    edges = (np.geomspace if logarithmic else np.linspace)(low, high, bins + 1)
    edges[0], edges[-1] = low, high
    counts, below, infinite = {}, {}, {}
    for name, values in sets.items():
        counts[name] = np.histogram(values[np.isfinite(values)], edges)[0]
        infinite[name] = int(np.isposinf(values).sum())
        below[name] = len(values) - int(counts[name].sum()) - infinite[name]
    return Bins(edges, logarithmic, counts, below, infinite, {k: len(v) for k, v in sets.items()})


def find_corners(x: np.ndarray, y: np.ndarray, tolerance: float = 1e-3) -> np.ndarray:
    """Return which points of a curve to draw: lines between them pass all others within the tolerance.

    Ramer (1972) and Douglas and Peucker (1973). Points are those of the curve, none is moved.

    Examples
    --------
    >>> find_corners(np.array([0, 0, 0.5, 1]), np.array([0, 0.5, 0.75, 1]))
    array([0, 1, 3])
    """
    keep = np.zeros(len(x), bool)
    keep[[0, -1]] = True
    waiting = [(0, len(x) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        dx, dy = x[last] - x[first], y[last] - y[first]
        across, along = x[first + 1 : last] - x[first], y[first + 1 : last] - y[first]
        length = np.hypot(dx, dy)
        if length > 0:
            distance = np.abs(dx * along - dy * across) / length
        else:
            distance = np.hypot(across, along)
        worst = int(np.argmax(distance))
        if distance[worst] > tolerance:
            middle = first + 1 + worst
            keep[middle] = True
            waiting += [(first, middle), (middle, last)]
    return np.flatnonzero(keep)


def spread_by_rank(values: np.ndarray, most: int) -> np.ndarray:
    """Return inputs at evenly spaced ranks of a score, the lowest and the highest among them.

    Examples
    --------
    >>> spread_by_rank(np.array([5.0, 1, 4, 2, 3]), 3)
    array([1, 4, 0])
    """
    order = np.argsort(values, kind="stable")
    if len(order) <= most:
        return order
    return order[np.rint(np.linspace(0, len(order) - 1, most)).astype(int)]
