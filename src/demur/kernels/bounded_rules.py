"""Mean entropy, K, I and M under the Brier and the zero-one rule: one pass over an input's probabilities.

As ``summarise`` of these rules in ``demur.core.rules``, member by member. Inputs with numbers that are no
prediction are returned. Rows are filled up with zeros to whole vectors.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import exp_log, vectors
from demur.kernels.compiling import INLINED, cached
from demur.kernels.layouts import claim, weight_of
from demur.kernels.vectors import LANES

_INPUTS = 16  # that a thread claims at a time
_EPSILON = 2.0**-52
_TIE = 1.0 - 8 * _EPSILON  # of the top: sums of the same numbers in another order are still a tie


@njit(**INLINED)
def _load(flat, start, ahead, step, classes, row):
    """Copy a member's numbers; meanwhile fetch those of the next input into the cache."""
    for y in range(0, min(classes, 4 * LANES), LANES):
        vectors.prefetch(flat, start + ahead + y)
    if step == 1:
        for y in range(classes):
            row[y] = flat[start + y]
    else:
        for y in range(classes):
            row[y] = flat[start + y * step]


@njit(**INLINED)
def _exponentiate(row, classes):
    """Write the odds of logits against the highest; False if that is no number."""
    row[classes:] = -np.inf
    top = vectors.spread(-np.inf)
    for y in range(0, row.shape[0], LANES):
        top = vectors.larger(vectors.load(row, y), top)
    highest = vectors.highest(top)
    top, none, least = vectors.spread(highest), vectors.spread(0.0), vectors.spread(-1e300)
    odd = none
    for y in range(0, row.shape[0], LANES):
        z = vectors.load(row, y)
        odd = odd + vectors.where_less(z, least, none, z - z)  # NaN, which has no exponential of its own
        vectors.store(row, y, vectors.where_less(z, least, none, exp_log.exp(z - top)))
    return -1e300 < highest < np.inf and vectors.add_up(odd) == 0.0


@njit(**INLINED)
def _normalise(row, is_probs, tolerance):
    """Divide numbers by their sum; False if that is off 1, or one of them is below 0."""
    total, low = vectors.spread(0.0), vectors.spread(0.0)
    for y in range(0, row.shape[0], LANES):
        p = vectors.load(row, y)
        total, low = total + p, vectors.smaller(p, low)
    sums = vectors.add_up(total)
    scale = vectors.spread(1.0 / sums)
    for y in range(0, row.shape[0], LANES):
        vectors.store(row, y, vectors.load(row, y) * scale)
    return vectors.lowest(low) >= 0.0 and (abs(sums - 1.0) <= tolerance if is_probs else sums >= 1.0)


@njit(**INLINED)
def _add_brier(row, first, weight, mean, of_inputs):
    """Add a member to the mean of what is apart from the first one, and to that of its square."""
    square, own, w = vectors.spread(0.0), vectors.spread(0.0), vectors.spread(weight)
    for y in range(0, row.shape[0], LANES):
        p = vectors.load(row, y)
        apart = p - vectors.load(first, y)
        vectors.store(mean, y, vectors.load(mean, y) + w * apart)
        square, own = square + apart * apart, own + p * p
    of_inputs[0] += weight * (1.0 - vectors.add_up(own))
    of_inputs[1] += weight * vectors.add_up(square)


@njit(**INLINED)
def _add_zero_one(row, weight, mean, votes, of_inputs):
    """Add a member to the mean prediction, the mean vote and the mean of the top."""
    top, ties, none, w = vectors.spread(0.0), vectors.spread(0.0), vectors.spread(0.0), vectors.spread(weight)
    for y in range(0, row.shape[0], LANES):
        p = vectors.load(row, y)
        top = vectors.larger(p, top)
        vectors.store(mean, y, vectors.load(mean, y) + w * p)
    highest = vectors.highest(top)
    tie, one = vectors.spread(highest * _TIE), vectors.spread(1.0)
    for y in range(0, row.shape[0], LANES):
        ties = ties + vectors.where_less(vectors.load(row, y), tie, none, one)
    share = vectors.spread(weight / vectors.add_up(ties))
    for y in range(0, row.shape[0], LANES):
        more = vectors.where_less(vectors.load(row, y), tie, none, share)
        vectors.store(votes, y, vectors.load(votes, y) + more)
    of_inputs[0] += weight * highest


@njit(**INLINED)
def _finish_brier(mean, of_inputs):
    """Return the variance of the probabilities."""
    square = vectors.spread(0.0)
    for y in range(0, mean.shape[0], LANES):
        square = square + vectors.load(mean, y) * vectors.load(mean, y)
    variance = of_inputs[1] - vectors.add_up(square)
    return variance if variance > 4 * _EPSILON * of_inputs[1] else 0.0  # what rounding leaves of nothing


@njit(**INLINED)
def _finish_zero_one(mean, votes, of_inputs):
    """Return K, I and M, each a sum of what is not negative."""
    high, k, m = np.max(mean), vectors.spread(0.0), vectors.spread(0.0)
    for y in range(0, mean.shape[0], LANES):
        p, vote = vectors.load(mean, y), vectors.load(votes, y)
        k = k + vote * (vectors.spread(of_inputs[0]) - p)
        m = m + vote * (vectors.spread(high) - p)
    return vectors.add_up(k), of_inputs[0] - high, vectors.add_up(m)


@cached
def over_members(
    single, double, is_single, is_probs, origin, steps, shape, weights, weight_steps, tolerance, chosen,
    claimed, out, is_zero_one,
):  # fmt: skip
    """Write mean entropy, K, I and M of chosen inputs to ``out``; return those that are not for this loop."""
    count, classes = shape
    rows = np.zeros((4, -(-classes // LANES) * LANES))
    row, first, mean, votes = rows[0], rows[1], rows[2], rows[3]
    of_inputs, rejected, left = np.empty(2), np.empty(chosen.shape[0], np.int64), 0
    own = claim(chosen, claimed, _INPUTS)
    while own.shape[0] > 0:
        for b in own:
            rows[2:] = 0.0
            of_inputs[:] = 0.0
            total, fits, begun = 0.0, True, False
            for member in range(count):
                total += weight_of(weights, weight_steps, member, b)
            for member in range(count):
                w = weight_of(weights, weight_steps, member, b) / total
                if not w > 0.0:
                    continue
                start = origin + b * steps[1] + member * steps[0]
                if is_single:
                    _load(single, start, steps[1], steps[2], classes, row)
                else:
                    _load(double, start, steps[1], steps[2], classes, row)
                if not is_probs:
                    fits = _exponentiate(row, classes) and fits
                fits = _normalise(row, is_probs, tolerance) and fits
                if is_zero_one:
                    _add_zero_one(row, w, mean, votes, of_inputs)
                    continue
                if not begun:
                    first[:] = row
                    begun = True
                _add_brier(row, first, w, mean, of_inputs)
            if not fits:
                rejected[left] = b
                left += 1
            elif is_zero_one:
                out[0, b] = 1.0 - of_inputs[0]
                out[1, b], out[2, b], out[3, b] = _finish_zero_one(mean, votes, of_inputs)
            else:
                variance = _finish_brier(mean, of_inputs)
                out[0, b], out[1, b], out[2, b], out[3, b] = of_inputs[0], 2 * variance, variance, variance
        own = claim(chosen, claimed, _INPUTS)
    return rejected[:left]
