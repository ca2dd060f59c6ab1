"""The lowest entropy within intervals of probabilities, by branch and bound.

The entropy is concave, so that it is lowest at a corner: every class at an end of its interval but at most
one, which takes what is left of 1. Which classes are high is a knapsack. With the chord between the ends of
its interval in place of each class's term, it is a linear programme whose value is a lower bound; filling
the classes in the order of the chords' slopes solves it. All classes but one are then at an end, and the
search branches on that one, ``f``, in three:

- ``f`` at its low end and ``f`` at its high end: two smaller problems;
- ``f`` takes what is left. The chords of the others are convex in their share and the term of ``f`` concave,
  so that their sum is lowest where the others are all at an end: one pass over the order of the slopes.
"""

from __future__ import annotations

import functools
import heapq
import math
from typing import Any

import numpy as np

NODES = 5_000  # an input for which the search takes more ends with a bound instead
CLOSE = 1e-9  # nats, times the probability that the low ends leave: the bound need not come closer


@functools.cache
def compiled() -> Any:
    """Return ``search`` compiled; the functions here stay plain, for few numbers and without numba."""
    from numba.extending import register_jitable

    from demur.kernels.arithmetic import cached

    for function in (relax, entropy_term, write_corner, branch_and_bound):
        register_jitable(function)
    return cached(search)


def relax(node, tree, intervals, budget, work, best):
    """Bound what the classes above their low ends add to the entropy, at one node of the tree of decisions.

    Returns the bound (infinite if no corner is left), the class to branch on, and the best corner seen: what
    it adds, and how many classes of the order are filled (-1: no better one) while that class takes the rest.
    """
    parents, classes, ends = tree
    low, width, gain = intervals
    decided, taken, added = work
    count = low.shape[0]
    start = 0.0
    above = node
    while above > 0:
        k = classes[above]
        decided[k] = True
        if ends[above] == 1:
            budget -= width[k]
            start += gain[k]
        above = parents[above]
    bound, f, filled = np.inf, -1, -1
    taken[0] = added[0] = 0.0
    for k in range(count):  # in the order of the slopes, up to the class that does not fit any more
        taken[k + 1], added[k + 1] = taken[k], added[k]
        if decided[k]:
            continue
        if budget <= taken[k] + width[k]:
            f = k
            break
        taken[k + 1] += width[k]
        added[k + 1] += gain[k]
    if budget >= 0.0 and f >= 0:
        bound = start + added[f] + gain[f] * ((budget - taken[f]) / width[f])
        own = entropy_term(low[f])
        total, worth, k = taken[f], added[f], f
        while budget >= total:  # from what was filled on, to more of the others
            value = start + worth + entropy_term(low[f] + (budget - total)) - own
            if value < best:
                best, filled = value, k
            k = k + 2 if k == f else k + 1  # `f` itself is not among the others
            if k > count:
                break
            if not decided[k - 1]:
                total += width[k - 1]
                worth += gain[k - 1]
        k = f - 1
        while k >= 0 and budget - taken[k] <= width[f]:  # and to fewer of them
            value = start + added[k] + entropy_term(low[f] + (budget - taken[k])) - own
            if value < best:
                best, filled = value, k
            k -= 1
    while node > 0:
        decided[classes[node]] = False
        node = parents[node]
    return bound, f, best, filled


def entropy_term(p):
    """Return ``-p log p``, 0 at 0."""
    return -p * math.log(p) if p > 0.0 else 0.0


def write_corner(node, filled, f, tree, intervals, budget, corner):
    """Write the shares above the low ends at a corner: decisions, then the order, the rest to ``f``."""
    parents, classes, ends = tree
    _, width, _ = intervals
    for k in range(corner.shape[0]):
        corner[k] = width[k] if k < filled else 0.0
    while node > 0:
        k = classes[node]
        corner[k] = width[k] if ends[node] == 1 else 0.0
        node = parents[node]
    corner[f] = 0.0
    for k in range(corner.shape[0]):
        budget -= corner[k]
    corner[f] = min(max(0.0, budget), width[f])  # summed in another order, it may be off by a rounding


def branch_and_bound(intervals, budget, tree, work, corner):
    """Write the corner of lowest entropy found, and return how far below it the lowest may still be."""
    parents, classes, ends = tree
    close = CLOSE * budget
    bound, f, best, filled = relax(0, tree, intervals, budget, work, np.inf)
    write_corner(0, filled, f, tree, intervals, budget, corner)
    floor = np.inf  # the lowest bound of what was left aside
    nodes = 0
    heap = [(bound, 0, f)]
    while len(heap) > 0 and heap[0][0] < best - close and nodes + 2 < parents.shape[0]:
        above, parent, k = heapq.heappop(heap)
        for end in range(2):
            nodes += 1
            parents[nodes], classes[nodes], ends[nodes] = parent, k, end
            bound, f, value, filled = relax(nodes, tree, intervals, budget, work, best)
            bound = max(bound, above)
            if filled >= 0:
                best = value
                write_corner(nodes, filled, f, tree, intervals, budget, corner)
            if bound < best - close:
                heapq.heappush(heap, (bound, nodes, f))
            else:
                floor = min(floor, bound)
    if len(heap) > 0:
        floor = min(floor, heap[0][0])
    return max(0.0, best - floor)


def search(low, width, gain, counts, budgets, corners):
    """Write corners of low entropy, as shares above the low ends; return how much lower it may get.

    Parameters
    ----------
    low, width, gain
        Low ends, widths, and what the entropy gains from low to high end, (inputs, classes); each input's
        classes in the order of the slopes of their chords.
    counts
        How many classes have a width; they come first.
    budgets
        What is to be shared out.
    """
    gaps = np.zeros(low.shape[0])
    size = low.shape[1]
    tree = (np.zeros(NODES, np.int64), np.zeros(NODES, np.int64), np.zeros(NODES, np.int64))
    work = (np.zeros(size, np.bool_), np.zeros(size + 1), np.zeros(size + 1))
    for b in range(low.shape[0]):
        count = counts[b]
        if count > 0:
            intervals = (low[b, :count], width[b, :count], gain[b, :count])
            gaps[b] = branch_and_bound(intervals, budgets[b], tree, work, corners[b, :count])
    return gaps
