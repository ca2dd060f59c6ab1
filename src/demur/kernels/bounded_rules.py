"""Mean entropy, K, I and M under the Brier and the zero-one rule: an input's probabilities, member by member.

As ``summarise`` of these rules in ``demur.core.rules``. Inputs with numbers that are no prediction are
returned. Whole vectors of float32 probabilities are read where they stand, all else is copied to float64.
The Brier rule takes few classes of sixteen inputs at a time, one in each lane.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import exp_log, vectors
from demur.kernels.compiling import COMPILED, INLINED, cached
from demur.kernels.layouts import claim, load_over_inputs, load_single, locate_inputs, weight_of
from demur.kernels.vectors import LANES

_INPUTS = LANES  # that a thread claims at a time
_FEW = 64  # classes up to which sixteen inputs are faster than vectors that are partly zeros
_EPSILON = 2.0**-52
_TIE = 1.0 - 8 * _EPSILON  # of the top: sums of the same numbers in another order are still a tie
_PLACES, _SINGLE_PLACES = np.arange(LANES + 1.0), np.arange(LANES + 1, dtype=np.float32)


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


@njit(**COMPILED)
def _survey(flat, start, count, ahead, zero):
    """Return the sum of vectors, the lowest number or 0, and the highest or 0; fetch what is ahead."""
    total, low, top = vectors.spread(0.0), vectors.spread(zero), vectors.spread(zero)
    for y in range(start, start + count, LANES):
        vectors.prefetch(flat, y + ahead)
        p = vectors.load(flat, y)
        total, low, top = total + vectors.to_double(p), vectors.smaller(p, low), vectors.larger(p, top)
    return vectors.add_up(total), np.float64(vectors.lowest(low)), np.float64(vectors.highest(top))


@njit(**COMPILED)
def _add_brier(flat, start, count, scale, weight, begun, first, mean):
    """Add a member to the mean of what is apart from the first one; return the sums of two squares."""
    square, own = vectors.spread(0.0), vectors.spread(0.0)
    w, scales = vectors.spread(weight), vectors.spread(scale)
    for y in range(0, count, LANES):
        p = vectors.to_double(vectors.load(flat, start + y)) * scales
        if not begun:
            vectors.store(first, y, p)
        apart = p - vectors.load(first, y)
        vectors.store(mean, y, vectors.load(mean, y) + w * apart)
        square, own = square + apart * apart, own + p * p
    return vectors.add_up(square), vectors.add_up(own)


@njit(**COMPILED)
def _add_brier_in_lanes(box, classes, weight, begun, sums, found):
    """Add a member to the means of sixteen inputs, one in each lane, and to what ``found`` has of them.

    These are the sums of two squares, how far probabilities are from the sum 1, and the lowest number.
    """
    total = square = own = least = vectors.spread(0.0)
    for place in range(0, classes * LANES, LANES):
        p = vectors.to_double(vectors.load(box, place))
        total, least = total + p, vectors.smaller(p, least)
    w, scale = vectors.spread(weight), vectors.spread(1.0) / total
    for place in range(0, classes * LANES, LANES):
        p = vectors.to_double(vectors.load(box, place)) * scale
        if not begun:
            vectors.store(sums, place, p)
        apart = p - vectors.load(sums, place)
        mean = place + classes * LANES
        vectors.store(sums, mean, vectors.load(sums, mean) + w * apart)
        square, own = square + apart * apart, own + p * p
    off = vectors.larger(total - vectors.spread(1.0), vectors.spread(1.0) - total)
    vectors.store(found, 0, vectors.load(found, 0) + w * square)
    vectors.store(found, LANES, vectors.load(found, LANES) + w * (vectors.spread(1.0) - own))
    vectors.store(found, 2 * LANES, vectors.larger(off, vectors.load(found, 2 * LANES)))
    vectors.store(found, 3 * LANES, vectors.smaller(least, vectors.load(found, 3 * LANES)) + (total - total))


@njit(**COMPILED)
def _add_zero_one(flat, start, count, factor, least, places, mean):
    """Add a member to the mean; return how many numbers are ``least`` or more, and where one of them is."""
    none, one, at = vectors.spread(places[0]), vectors.spread(places[1]), vectors.load(places, 0)
    ties, place, further = none, none, vectors.spread(places[LANES])
    tie, factors = vectors.spread(least), vectors.spread(factor)
    for y in range(0, count, LANES):
        p = vectors.load(flat, start + y)
        vectors.store(mean, y, vectors.load(mean, y) + factors * vectors.to_double(p))
        ties = ties + vectors.where_less(p, tie, none, one)
        place, at = vectors.where_less(p, tie, place, at), at + further
    return vectors.add_up(ties), int(vectors.highest(place))


@njit(**COMPILED)
def _share_vote(flat, start, count, least, share, votes):
    """Give each number that is ``least`` or more its share."""
    for y in range(count):
        votes[y] += share if flat[start + y] >= least else 0.0


@njit(**INLINED)
def _remove_rounding(variance, squares):
    """Return 0 for what rounding leaves of nothing."""
    return variance if variance > 4 * _EPSILON * squares else 0.0


@njit(**INLINED)
def _finish_brier(mean, squares):
    """Return the variance of the probabilities."""
    square = vectors.spread(0.0)
    for y in range(0, mean.shape[0], LANES):
        square = square + vectors.load(mean, y) * vectors.load(mean, y)
    return _remove_rounding(squares - vectors.add_up(square), squares)


@njit(**INLINED)
def _finish_zero_one(mean, votes, expected):
    """Return K, I and M, each a sum of what is not negative."""
    high, k, m = np.max(mean), vectors.spread(0.0), vectors.spread(0.0)
    for y in range(0, mean.shape[0], LANES):
        p, vote = vectors.load(mean, y), vectors.load(votes, y)
        k = k + vote * (vectors.spread(expected) - p)
        m = m + vote * (vectors.spread(high) - p)
    return vectors.add_up(k), expected - high, vectors.add_up(m)


@njit(**COMPILED)
def _take_in_lanes(source, origin, steps, shape, weights, weight_steps, tolerance, inputs, room, out):
    """Write the figures of up to sixteen inputs under the Brier rule; tell which of them are predictions."""
    single, double, is_single = source
    starts, box, wide, sums, found = room
    count, classes = shape
    evenly = locate_inputs(origin, steps[1], inputs, starts)
    whole_weight, begun, found[:] = 0.0, False, 0.0
    sums[classes * LANES :] = 0.0
    for member in range(count):
        whole_weight += weight_of(weights, weight_steps, member, 0)
    for member in range(count):
        w = weight_of(weights, weight_steps, member, 0) / whole_weight
        if w > 0.0 and is_single:
            load_single(single, starts, member * steps[0], steps, evenly, classes, LANES, box, 0)
            _add_brier_in_lanes(box, classes, w, begun, sums, found)
        elif w > 0.0:
            load_over_inputs(double, starts, member * steps[0], steps[2], classes, LANES, wide, 0)
            _add_brier_in_lanes(wide, classes, w, begun, sums, found)
        begun = begun or w > 0.0
    square = vectors.spread(0.0)
    for place in range(classes * LANES, 2 * classes * LANES, LANES):
        square = square + vectors.load(sums, place) * vectors.load(sums, place)
    vectors.store(sums, 0, square)
    for lane in range(inputs.shape[0]):
        variance = _remove_rounding(found[lane] - sums[lane], found[lane])
        out[0, inputs[lane]], out[1, inputs[lane]] = found[LANES + lane], 2 * variance
        out[2, inputs[lane]] = out[3, inputs[lane]] = variance
    return (found[2 * LANES : 3 * LANES] <= tolerance) & (found[3 * LANES :] >= 0.0)


@cached
def over_members(
    single, double, is_single, is_probs, origin, steps, shape, weights, weight_steps, tolerance, chosen,
    claimed, out, is_zero_one,
):  # fmt: skip
    """Write mean entropy, K, I and M of chosen inputs to ``out``; return those that are not for this loop."""
    count, classes = shape
    there = is_single and is_probs and steps[2] == 1 and classes < 1 << 24  # which float32 can count
    whole = classes // LANES * LANES if there else 0
    rest, few = classes - whole, classes <= _FEW and is_probs and not is_zero_one and weight_steps[1] == 0
    size = LANES * classes if few else 0
    room = (
        np.empty(LANES, np.int64), np.empty(size, np.float32), np.empty(size), np.empty(2 * size),
        np.empty(4 * LANES),
    )  # fmt: skip
    row = np.zeros(-(-rest // LANES) * LANES)
    end, sums = row.shape[0], np.zeros((3, whole + row.shape[0]))
    first, mean, votes = sums[0], sums[1], sums[2]
    last_first, last_mean, last_votes = first[whole:], mean[whole:], votes[whole:]
    rejected, left = np.empty(chosen.shape[0], np.int64), 0
    own = claim(chosen, claimed, _INPUTS)
    while own.shape[0] > 0:
        if few:
            source = single, double, is_single
            given = source, origin, steps, shape, weights, weight_steps, tolerance, own, room, out
            taken = _take_in_lanes(*given)
            for lane in range(own.shape[0]):
                if not taken[lane]:
                    rejected[left] = own[lane]
                    left += 1
            own = claim(chosen, claimed, _INPUTS)
            continue
        for b in own:
            sums[1:] = 0.0
            whole_weight, own_loss, expected, squares, top = 0.0, 0.0, 0.0, 0.0, 0.0
            fits, begun = True, False
            for member in range(count):
                whole_weight += weight_of(weights, weight_steps, member, b)
            for member in range(count):
                w = weight_of(weights, weight_steps, member, b) / whole_weight
                if not w > 0.0:
                    continue
                start = origin + b * steps[1] + member * steps[0]
                for y in range(rest):
                    at = start + (whole + y) * steps[2]
                    row[y] = single[at] if is_single else double[at]
                fits = (is_probs or _exponentiate(row, classes)) and fits
                total, low, top = _survey(row, 0, end, 0, 0.0)
                if whole > 0:
                    more, lowest, highest = _survey(single, start, whole, steps[1], np.float32(0.0))
                    total, low, top = total + more, min(low, lowest), max(top, highest)
                fits = low >= 0.0 and (abs(total - 1.0) <= tolerance if is_probs else total >= 1.0) and fits
                factor, least = w / total, top * _TIE
                if is_zero_one:
                    ties, place = _add_zero_one(row, 0, end, factor, least, _PLACES, last_mean)
                    place += whole
                    if whole > 0:
                        given = factor, np.float32(least), _SINGLE_PLACES, mean
                        more, at = _add_zero_one(single, start, whole, *given)
                        ties, place = ties + more, at if more > 0 else place
                    if ties == 1.0:
                        votes[place] += w
                    else:
                        _share_vote(single, start, whole, least, w / ties, votes)
                        _share_vote(row, 0, end, least, w / ties, last_votes)
                    expected += factor * top
                    own_loss += factor * (total - top)  # never negative, as 1 less the mean could be
                    continue
                square, certain = _add_brier(row, 0, end, 1.0 / total, w, begun, last_first, last_mean)
                if whole > 0:
                    more, most = _add_brier(single, start, whole, 1.0 / total, w, begun, first, mean)
                    square, certain = square + more, certain + most
                own_loss, squares, begun = own_loss + w * (1.0 - certain), squares + w * square, True
            if not fits:
                rejected[left] = b
                left += 1
            elif is_zero_one:
                out[0, b] = own_loss
                out[1, b], out[2, b], out[3, b] = _finish_zero_one(mean, votes, expected)
            else:
                variance = _finish_brier(mean, squares)
                out[0, b], out[1, b], out[2, b], out[3, b] = own_loss, 2 * variance, variance, variance
        own = claim(chosen, claimed, _INPUTS)
    return rejected[:left]
