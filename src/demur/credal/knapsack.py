"""The lowest entropy within intervals of probabilities, by branch and bound.

The entropy is concave, so that it is lowest at a corner: every class at an end of its interval but at most
one, the taker, which takes what is left of 1. Which classes are high is a knapsack. With the chord between
the ends of its interval in place of each class's term, it is a linear programme whose value is a lower
bound; filling the classes in the order of the chords' slopes, until the budget of probability is spent,
solves it. The search decides one class after the other: it is low, it is high, or it is the taker.

Two things tighten the bound. Once there is a taker its term is the true one: what the others add is convex
and piecewise linear in what they take, so that the sum is lowest at an end of the taker's interval or where
the others are all at an end, which is a corner. And once less is left than the next class could take, chords
end at what is left.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

MOST_NODES = 1_000  # an input whose search takes more has to do with the bound that is reached by then
_CLOSE = 1e-9  # nats, times the probability that the low ends leave: the bound need not come closer

_LOW, _HIGH, _TAKER = 0, 1, 2  # what a class is decided to be


def _relax(node, tree, intervals, budget, work, best):
    """Bound what the classes above their low ends add to the entropy, at one node of the tree of decisions.

    Returns the bound (infinite if no corner is left), the class to decide next, and the best corner seen:
    what it adds, how many classes of the order are filled (-1: no better one) and which takes the rest.
    """
    parents, classes, ends, takers = tree
    _, width, gain = intervals
    decided, taken, added = work
    start = 0.0
    above = node
    while above > 0:
        k = classes[above]
        decided[k] = True
        if ends[above] == _HIGH:
            budget -= width[k]
            start += gain[k]
        above = parents[above]
    bound, f, filled, taker = np.inf, -1, -1, takers[node]
    first, last = _fill(intervals, budget, work)
    if taker >= 0:
        bound, f, value, filled = _with_taker(taker, intervals, budget, work, best - start)
        bound += start
        best = start + value if filled >= 0 else best
    elif budget >= 0.0 and last >= 0:
        f = first
        bound = start + added[last] + gain[last] * ((budget - taken[last]) / width[last])
        if first == last and budget > 0.0:
            f, slope = _steepest_share(first, intervals, budget, decided)
            bound = max(bound, start + slope * budget)
        for one in (f, last):
            decided[one] = True
            _, _, value, where = _with_taker(one, intervals, budget, work, best - start)
            decided[one] = False
            if where >= 0:
                best, filled, taker = start + value, where, one
    while node > 0:
        decided[classes[node]] = False
        node = parents[node]
    return bound, f, best, filled, taker


def _fill(intervals, budget, work):
    """Fill undecided classes in the order of the slopes; return the first, and the one that does not fit.

    ``taken`` and ``added`` are the sums of widths and gains before each class, up to that one.
    """
    _, width, gain = intervals
    decided, taken, added = work
    first = -1
    taken[0] = added[0] = 0.0
    for k in range(width.shape[0]):
        taken[k + 1], added[k + 1] = taken[k], added[k]
        if decided[k]:
            continue
        first = k if first < 0 else first
        if budget <= taken[k] + width[k]:
            return first, k
        taken[k + 1] += width[k]
        added[k + 1] += gain[k]
    return first, -1


def _with_taker(taker, intervals, budget, work, best):
    """Bound what is added where one class takes what the others, filled in their order, leave.

    The others are at an end each: those wider than the budget are low.

    Returns the bound, and the best corner: what it adds, and how many classes of the order are filled.
    """
    low, width, gain = intervals
    decided, _, _ = work
    own = _entropy_term(low[taker])
    least = budget - width[taker]  # that the others have to take
    bound, filled, f = np.inf, -1, -1
    total, worth, k = 0.0, 0.0, 0
    while budget >= total:
        if total >= least:
            value = worth + _entropy_term(low[taker] + (budget - total)) - own
            bound = min(bound, value)
            if value < best:
                best, filled = value, k
        while k < width.shape[0] and (decided[k] or width[k] > budget):
            k += 1
        if k == width.shape[0]:
            break
        f = k if f < 0 else f
        if total < least < total + width[k]:
            bound = min(bound, worth + gain[k] * ((least - total) / width[k]) + gain[taker])
        if total < budget < total + width[k]:
            bound = min(bound, worth + gain[k] * ((budget - total) / width[k]))
        total += width[k]
        worth += gain[k]
        k += 1
    return bound, f, best, filled


def _steepest_share(first, intervals, budget, decided):
    """Return the class whose entropy gains least for its share of a budget that fills none, and its slope.

    No class can take more than the budget, so that chords end there and are steeper than those of whole
    intervals: the search is over where those alone are too steep.
    """
    low, width, gain = intervals
    best, least = first, np.inf
    for k in range(first, low.shape[0]):
        if decided[k]:
            continue
        if gain[k] >= least * width[k]:
            break
        share = min(width[k], budget)
        slope = (_entropy_term(low[k] + share) - _entropy_term(low[k])) / share
        if slope < least:
            best, least = k, slope
    return best, least


def _entropy_term(p):
    """Return ``-p log p``, 0 at 0."""
    return -p * math.log(p) if p > 0.0 else 0.0


def _write_corner(node, filled, taker, tree, intervals, budget, corner):
    """Write the shares above the low ends at a corner that ``_with_taker`` found at a node."""
    parents, classes, ends, _ = tree
    _, width, _ = intervals
    left, above = budget, node
    while above > 0:
        left -= width[classes[above]] if ends[above] == _HIGH else 0.0
        above = parents[above]
    for k in range(corner.shape[0]):
        corner[k] = width[k] if k < filled and width[k] <= left else 0.0
    while node > 0:
        k = classes[node]
        corner[k] = width[k] if ends[node] == _HIGH else 0.0
        node = parents[node]
    corner[taker] = 0.0
    for k in range(corner.shape[0]):
        budget -= corner[k]
    corner[taker] = min(max(0.0, budget), width[taker])  # summed in another order, off by a rounding


def _branch_and_bound(intervals, budget, tree, work, corner):
    """Write the corner of lowest entropy found, and return how far below it the lowest may still be."""
    parents, classes, ends, takers = tree
    close = _CLOSE * budget
    takers[0] = -1
    bound, f, best, filled, taker = _relax(0, tree, intervals, budget, work, np.inf)
    _write_corner(0, filled, taker, tree, intervals, budget, corner)
    floor = np.inf  # the lowest bound of what was left aside
    nodes = 0
    heap = [(bound, 0, f)]
    while len(heap) > 0 and heap[0][0] < best - close and nodes + 3 < parents.shape[0]:
        above, parent, k = heapq.heappop(heap)
        for end in (_LOW, _HIGH, _TAKER):
            if end == _TAKER and takers[parent] >= 0:
                continue
            nodes += 1
            parents[nodes], classes[nodes], ends[nodes] = parent, k, end
            takers[nodes] = k if end == _TAKER else takers[parent]
            bound, f, value, filled, taker = _relax(nodes, tree, intervals, budget, work, best)
            bound = max(bound, above)
            if filled >= 0:
                best = value
                _write_corner(nodes, filled, taker, tree, intervals, budget, corner)
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
    whole = np.zeros((4, MOST_NODES), np.int64)
    tree = (whole[0], whole[1], whole[2], whole[3])
    work = (np.zeros(size, np.bool_), np.zeros(size + 1), np.zeros(size + 1))
    for b in range(low.shape[0]):
        count = counts[b]
        if count > 0:
            intervals = (low[b, :count], width[b, :count], gain[b, :count])
            gaps[b] = _branch_and_bound(intervals, budgets[b], tree, work, corners[b, :count])
    return gaps
