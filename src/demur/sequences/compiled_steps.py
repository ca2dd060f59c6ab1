"""Entropy, K, I and M of two to four float32 members over many classes, and the normalisers of their logits.

As language models have them: few members, a large vocabulary. With ``q`` the heaviest member's probabilities,
``d`` the logits of a member less that one's, and ``shift = <q, expm1(d)>``, a member has
``u = log(p / q) = d - log1p(shift)`` and ``a = p / q - 1 = (expm1(d) - shift) / (1 + shift)``; its
normaliser is the heaviest one's plus ``log1p(shift)``. With ``A`` the mean of ``a`` by weight and
``v = u - log1p(A)``, the log of a member over the average, ``I = <q (1 + A), mean of exp(v) v - exp(v) + 1>``
by weight as a predictor, ``M = <q (1 + A), mean of exp(v) - 1 - v>`` by weight as the truth, and K = I + M.
No term is negative, and no step subtracts nearly equal numbers where members agree, so float32 does, and
identical members give exactly 0. No member outweighs the heaviest, so none is nearer to the average than that
one, whose ``v`` is ``-log1p(A)``.

All logits of a member may have moved together: ``d`` is relative to how far its highest one has moved. Rows
that float32 is not for are returned: those with a number that is none or of extreme size.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math

import numpy as np
from numba import njit

from demur.kernels import exp_log, vectors
from demur.kernels.compiling import COMPILED, INLINED, cached
from demur.kernels.layouts import claim, first_class, hide_repeated
from demur.kernels.vectors import LANES, magnitude, spread, to_double, where_less

MOST = 4
"""Members, at most."""
_ODDS, _APART, _GROWN = 0, LANES, 2 * LANES  # of the first member; d and expm1(d) of each of the others
_NEXT = 2 * LANES
_STEP = LANES + (MOST - 1) * _NEXT
_SLOTS = 32  # whose numbers are added up in float32
_ROWS = 2  # that a thread claims at a time

_FARTHEST = np.float32(80.0)  # of the first member's logits from its top: beyond, exponentials are bounded
_LEAST = 1e-13  # of K: below, digits are those of the logits' own rounding
_NEAR = np.float32(0.5)  # below, exp(v) - 1 - v is a series, which then is good to 1e-7
_NOTHING, _ONE, _INFINITE = np.float32(0.0), np.float32(1.0), np.float32(np.inf)
_H2, _H3, _H4, _H5, _H6, _H7, _H8 = (np.float32(1 / math.factorial(n)) for n in range(2, 9))


@njit(**INLINED)
def _diverge(v, ratio):
    """Return ``exp(v) v - exp(v) + 1`` and ``exp(v) - 1 - v``, of which ``ratio`` is the exponential of v."""
    series = spread(_H6) + v * (spread(_H7) + v * spread(_H8))
    series = spread(_H3) + v * (spread(_H4) + v * (spread(_H5) + v * series))
    series = (v * v) * (spread(_H2) + v * series)
    size, near, grown = magnitude(v), spread(_NEAR), ratio - spread(_ONE)
    forward = where_less(size, near, v * (v + series) - series, ratio * v - grown)
    return forward, where_less(size, near, series, grown - v)


@njit(**INLINED)
def _subtract(z, reference, by):
    """Return ``z - reference - by``, in which the first difference is not rounded."""
    d = z - reference
    back = d - z
    lost = (z - (d - back)) - (reference + back)
    return (d - by) + lost


@njit(**COMPILED)
def _find_top(flat, place, classes):
    """Return the highest of a row's numbers, and minus the lowest."""
    high, low = spread(-_INFINITE), spread(-_INFINITE)
    for slot in range(-(-classes // LANES)):
        z = vectors.load(flat, place + first_class(slot, classes))
        high, low = vectors.larger(z, high), vectors.larger(spread(_NOTHING) - z, low)
    return vectors.highest(high), vectors.highest(low)


@njit(**COMPILED)
def _write_odds(flat, place, classes, top, box):
    """Write the first member's odds against its top; return their sum without the top, and the top's."""
    high = spread(top)
    for slot in range(-(-classes // LANES)):
        z = vectors.load(flat, place + first_class(slot, classes))
        vectors.store(box, slot * _STEP + _ODDS, exp_log.exp(z - high))
    hide_repeated(box, _STEP, _ODDS, classes)
    tops, others = spread(0.0), spread(0.0)
    for slot in range(-(-classes // LANES)):
        odds = vectors.load(box, slot * _STEP + _ODDS)
        below = where_less(odds, spread(_ONE), odds, spread(_NOTHING))
        tops, others = tops + to_double(odds - below), others + to_double(below)
    return vectors.add_up(others), vectors.add_up(tops)


@njit(**COMPILED)
def _write_growth(flat, place, other, moved, classes, k, box):
    """Write ``expm1(d)`` of a member; return the sum of the first one's odds times that."""
    by, total = spread(moved), 0.0
    slots = -(-classes // LANES)
    for begin in range(0, slots, _SLOTS):
        part = spread(_NOTHING)
        for slot in range(begin, min(begin + _SLOTS, slots)):
            at, first = slot * _STEP, first_class(slot, classes)
            d = _subtract(vectors.load(flat, other + first), vectors.load(flat, place + first), by)
            grown = exp_log.expm1(d)
            vectors.store(box, at + _APART + k * _NEXT, d)
            vectors.store(box, at + _GROWN + k * _NEXT, grown)
            part = part + vectors.load(box, at + _ODDS) * grown
        total += np.float64(vectors.add_up(to_double(part)))
    return total


@njit(**COMPILED)
def _add_classes(flat, place, logs, scales, less, shares, truths, count, classes, top, log_odds, box, found):
    """Write sums over classes, weighted by the reference's odds: of entropies, I and M.

    ``logs`` are ``log1p(shift)``, ``scales`` are ``1 / (1 + shift)`` and ``less`` are ``scales - 1``, of the
    members but the reference; ``shares`` and ``truths`` are weights of all, the reference's first.
    """
    none, one = spread(_NOTHING), spread(_ONE)
    high, log_q = spread(top), spread(np.float32(log_odds))
    l1, l2, l3 = spread(logs[0]), spread(logs[1]), spread(logs[2])
    s1, s2, s3 = spread(scales[0]), spread(scales[1]), spread(scales[2])
    t1, t2, t3 = spread(less[0]), spread(less[1]), spread(less[2])
    w0, w1, w2, w3 = spread(shares[0]), spread(shares[1]), spread(shares[2]), spread(shares[3])
    p0, p1, p2, p3 = spread(truths[0]), spread(truths[1]), spread(truths[2]), spread(truths[3])
    entropy, i, m = 0.0, 0.0, 0.0
    slots = -(-classes // LANES)
    for begin in range(0, slots, _SLOTS):
        entropy_part, i_part, m_part = none, none, none
        for slot in range(begin, min(begin + _SLOTS, slots)):
            at, first = slot * _STEP, first_class(slot, classes)
            odds, z = vectors.load(box, at + _ODDS), vectors.load(flat, place + first)
            log_p = (z - high) - log_q
            u1, grown = vectors.load(box, at + _APART) - l1, vectors.load(box, at + _GROWN)
            r1, average = (grown + one) * s1, w1 * (grown * s1 + t1)
            own = w0 * log_p + (w1 * r1) * (log_p + u1)
            u2, u3, r2, r3 = none, none, none, none
            if count > 2:
                grown = vectors.load(box, at + _GROWN + _NEXT)
                u2 = vectors.load(box, at + _APART + _NEXT) - l2
                r2, average = (grown + one) * s2, average + w2 * (grown * s2 + t2)
                own = own + (w2 * r2) * (log_p + u2)
                if count > 3:
                    grown = vectors.load(box, at + _GROWN + 2 * _NEXT)
                    u3 = vectors.load(box, at + _APART + 2 * _NEXT) - l3
                    r3, average = (grown + one) * s3, average + w3 * (grown * s3 + t3)
                    own = own + (w3 * r3) * (log_p + u3)
            whole = one + average
            base, over = exp_log.log1p(average), one / whole
            i0, m0 = _diverge(none - base, over)
            i1, m1 = _diverge(u1 - base, r1 * over)
            i0, m0 = w0 * i0 + w1 * i1, p0 * m0 + p1 * m1
            if count > 2:
                i2, m2 = _diverge(u2 - base, r2 * over)
                i0, m0 = i0 + w2 * i2, m0 + p2 * m2
                if count > 3:
                    i3, m3 = _diverge(u3 - base, r3 * over)
                    i0, m0 = i0 + w3 * i3, m0 + p3 * m3
            mean = odds * whole
            entropy_part, i_part, m_part = entropy_part + odds * own, i_part + mean * i0, m_part + mean * m0
        entropy -= vectors.add_up(to_double(entropy_part))
        i += vectors.add_up(to_double(i_part))
        m += vectors.add_up(to_double(m_part))
    found[0], found[1], found[2] = entropy, i, m


@njit(**COMPILED)
def _order(weights, b, count, order):
    """Write the numbers of members, that of the heaviest first."""
    heaviest = 0
    for k in range(1, count):
        if weights[k, b] > weights[heaviest, b]:
            heaviest = k
    for k in range(count):
        order[k] = k
    order[0], order[heaviest] = heaviest, 0


@cached
def over_classes(flat, origins, row_step, classes, chosen, weights, prior, claimed, out, normalisers):
    """Write entropy, K, I and M of chosen rows to ``out``, and normalisers; return rows not for this.

    Parameters
    ----------
    flat, origins, row_step
        Float32 numbers, where each member's first row begins in them, and from one row to the next.
    weights, prior
        Of members as predictors, and as the truth, (members, rows); their sums are 1.
    """
    box, count = vectors.aligned_zeros(-(-classes // LANES) * _STEP, flat[:0]), weights.shape[0]
    order, found = np.zeros(MOST, np.int64), np.empty(3)
    shares, truths = np.zeros(MOST, np.float32), np.zeros(MOST, np.float32)
    logs, scales, less = np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    rejected, left = np.empty(chosen.shape[0], np.int64), 0
    own = claim(chosen, claimed, _ROWS)
    while own.shape[0] > 0:
        for b in own:
            _order(weights, b, count, order)
            for k in range(count):
                shares[k], truths[k] = weights[order[k], b], prior[order[k], b]
            place = origins[order[0]] + b * row_step
            top, bottom = _find_top(flat, place, classes)
            others, tops = _write_odds(flat, place, classes, top, box)
            log_odds, total = math.log1p((tops - 1.0) + others), tops + others
            first = np.float64(top) + log_odds
            normalisers[order[0], b] = first
            fits = top + bottom < _FARTHEST
            for k in range(1, count):
                other = origins[order[k]] + b * row_step
                highest, _ = _find_top(flat, other, classes)
                moved = np.float32(highest - top)
                shift = _write_growth(flat, place, other, moved, classes, k - 1, box) / total
                logs[k - 1], scales[k - 1] = math.log1p(shift), 1.0 / (1.0 + shift)
                less[k - 1] = -shift / (1.0 + shift)
                normalisers[order[k], b] = first + np.float64(moved) + math.log1p(shift)
                fits = fits and math.isfinite(shift)
            if fits:
                given = flat, place, logs, scales, less, shares, truths, count, classes, top, log_odds
                _add_classes(*given, box, found)
                entropy, i, m = found[0] / total, found[1] / total, found[2] / total
                out[0, b], out[1, b], out[2, b], out[3, b] = entropy, i + m, i, m
                fits = (i == 0.0 and m == 0.0) or (_LEAST < i + m < np.inf)
                fits = fits and entropy >= 0.0
            if not fits:
                rejected[left] = b
                left += 1
        own = claim(chosen, claimed, _ROWS)
    return rejected[:left]
