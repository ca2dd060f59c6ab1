"""Highest and lowest entropy of credal sets by slow, obvious ways; one input at a time."""

import itertools
import math

import numpy as np
from scipy import optimize, special


def entropy(p) -> float:
    return math.fsum(-x * math.log(x) for x in p if x > 0)


def duality_gap(members: np.ndarray, weights: np.ndarray) -> float:
    """What any mixture of the members can have beyond the entropy of this one, (members, classes)."""
    classes = range(members.shape[1])
    mixture = [math.fsum(w * p[y] for w, p in zip(weights, members, strict=True)) for y in classes]
    costs = [math.fsum(-p[y] * math.log(mixture[y]) for y in classes if p[y] > 0) for p in members]
    return max(costs) - entropy(mixture)


def highest_in_hull(members: np.ndarray) -> float:
    """Maximise the entropy over the weights by sequential least squares, from the average."""
    count = len(members)

    def cost(weights: np.ndarray) -> tuple[float, np.ndarray]:
        q = weights @ members
        log = np.log(np.where(q > 0, q, 1.0))
        return float(q @ log), members @ (log + 1.0)

    found = optimize.minimize(
        cost,
        np.full(count, 1.0 / count),
        jac=True,
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(count)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 200},
    )
    weights = np.clip(found.x, 0.0, None)
    return entropy(weights / weights.sum() @ members)


def highest_in_intervals(low: np.ndarray, high: np.ndarray) -> float:
    """Halve the range of the level at which the intervals are cut off until no number is between."""

    def cut(level: float) -> list[float]:
        return [min(max(level, a), b) for a, b in zip(low, high, strict=True)]

    below, above = 0.0, 1.0
    for _ in range(200):
        level = (below + above) / 2
        if math.fsum(cut(level)) < 1.0:
            below = level
        else:
            above = level
    return entropy(cut(above))


def lowest_in_intervals(low: np.ndarray, high: np.ndarray) -> float:
    """Try every corner: one class takes what the others, each at an end of its interval, leave."""
    lowest = math.inf
    for rest in range(len(low)):
        others = np.arange(len(low)) != rest
        ends = np.array(list(itertools.product(*zip(low[others], high[others], strict=True))))
        left = 1.0 - ends.sum(axis=1)
        # A corner may lie on the boundary, and the sums that tell are rounded.
        inside = (low[rest] - 1e-15 <= left) & (left <= high[rest] + 1e-15)
        if inside.any():
            entropies = special.entr(ends[inside]).sum(axis=1) + special.entr(np.maximum(left[inside], 0.0))
            lowest = min(lowest, float(entropies.min()))
    return lowest
