"""Entropy, K and I of two to four float32 members over many classes, and the normalisers of their logits.

As language models have them: few members, a large vocabulary. With ``q`` the first member's probabilities,
``d`` the logits of a member less the first one's, and ``shift = <q, expm1(d)>``, a member has
``u = log(p / q) = d - log1p(shift)`` and ``a = p / q - 1 = (expm1(d) - shift) / (1 + shift)``; its normaliser
is the first one's plus ``log1p(shift)``. Then ``K = <q, mean over pairs of (a - a') (u - u')> / 2``, whose
terms are not negative. With ``A`` the mean of ``a`` and ``v = u - log1p(A)``, the log of a member over the
average, ``I - M = <q (1 + A), mean of g(v)>`` with ``g(v) = (exp(v) + 1) v - 2 (exp(v) - 1)``, which is of
third order, and K = I + M. No step subtracts nearly equal numbers where members agree, so float32 does, and
identical members give exactly 0.

All logits of a member may have moved together: ``d`` is relative to how far its highest one has moved. Rows
that float32 is not for are returned: those with a number that is none or of extreme size, and those with an I
or M that is a small part of K.
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
_SMALL_PART = 0.02  # of K: an I or M below that has lost digits
_NEAR = np.float32(0.5)  # below, g(v) is a series, which then is good to 1e-6 of v squared
_NOTHING, _ONE, _TWO, _INFINITE = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(np.inf)
_SERIES = tuple(np.float32(1 / math.factorial(n - 1) - 2 / math.factorial(n)) for n in range(3, 9))
_G3, _G4, _G5, _G6, _G7, _G8 = _SERIES


@njit(**INLINED)
def _excess(v, grown):
    """Return ``g(v)``, of which ``grown`` is the exponential of v."""
    series = spread(_G7) + v * spread(_G8)
    series = spread(_G5) + v * (spread(_G6) + v * series)
    series = (v * v) * (v * (spread(_G3) + v * (spread(_G4) + v * series)))
    direct = (grown + spread(_ONE)) * v - spread(_TWO) * (grown - spread(_ONE))
    return where_less(magnitude(v), spread(_NEAR), series, direct)


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
def _add_classes(flat, place, logs, scales, less, count, classes, top, log_odds, box, found):
    """Write sums over classes, weighted by the first member's odds: of K, I - M and entropies.

    ``logs`` are ``log1p(shift)``, ``scales`` are ``1 / (1 + shift)`` and ``less`` are ``scales - 1``, of the
    members but the first.
    """
    none, one, share = spread(_NOTHING), spread(_ONE), spread(np.float32(1.0 / count))
    high, log_q = spread(top), spread(np.float32(log_odds))
    l1, l2, l3 = spread(logs[0]), spread(logs[1]), spread(logs[2])
    s1, s2, s3 = spread(scales[0]), spread(scales[1]), spread(scales[2])
    t1, t2, t3 = spread(less[0]), spread(less[1]), spread(less[2])
    k, gap, entropy = 0.0, 0.0, 0.0
    slots = -(-classes // LANES)
    for begin in range(0, slots, _SLOTS):
        k_part, gap_part, entropy_part = none, none, none
        for slot in range(begin, min(begin + _SLOTS, slots)):
            at, first = slot * _STEP, first_class(slot, classes)
            odds, z = vectors.load(box, at + _ODDS), vectors.load(flat, place + first)
            log_p = (z - high) - log_q
            u1, grown = vectors.load(box, at + _APART) - l1, vectors.load(box, at + _GROWN)
            r1, a1 = (grown + one) * s1, grown * s1 + t1
            pairs, average = a1 * u1, a1
            own = log_p + r1 * (log_p + u1)
            u2, u3, r2, r3 = none, none, none, none
            if count > 2:
                grown = vectors.load(box, at + _GROWN + _NEXT)
                u2 = vectors.load(box, at + _APART + _NEXT) - l2
                r2, a2 = (grown + one) * s2, grown * s2 + t2
                pairs = (pairs + a2 * u2) + (a1 - a2) * (u1 - u2)
                average, own = average + a2, own + r2 * (log_p + u2)
                if count > 3:
                    grown = vectors.load(box, at + _GROWN + 2 * _NEXT)
                    u3 = vectors.load(box, at + _APART + 2 * _NEXT) - l3
                    r3, a3 = (grown + one) * s3, grown * s3 + t3
                    pairs = pairs + (a3 * u3 + ((a1 - a3) * (u1 - u3) + (a2 - a3) * (u2 - u3)))
                    average, own = average + a3, own + r3 * (log_p + u3)
            average = average * share
            whole = one + average
            base, over = exp_log.log1p(average), one / whole
            excess = _excess(none - base, over) + _excess(u1 - base, r1 * over)
            if count > 2:
                excess = excess + _excess(u2 - base, r2 * over)
                if count > 3:
                    excess = excess + _excess(u3 - base, r3 * over)
            k_part, gap_part = k_part + odds * pairs, gap_part + (odds * whole) * excess
            entropy_part = entropy_part + odds * own
        k += vectors.add_up(to_double(k_part))
        gap += vectors.add_up(to_double(gap_part))
        entropy += vectors.add_up(to_double(entropy_part))
    found[0], found[1], found[2] = k, gap, entropy


@cached
def over_classes(flat, origins, row_step, count, classes, chosen, claimed, out, normalisers):
    """Write entropy, K and I of chosen rows to ``out``, and normalisers; return rows that are not for this.

    Parameters
    ----------
    flat, origins, row_step
        Float32 numbers, where each member's first row begins in them, and from one row to the next.
    """
    box = vectors.aligned_zeros(-(-classes // LANES) * _STEP, flat[:0])
    places, found = np.zeros(MOST, np.int64), np.empty(3)
    logs, scales, less = np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    rejected, left = np.empty(chosen.shape[0], np.int64), 0
    own = claim(chosen, claimed, _ROWS)
    while own.shape[0] > 0:
        for b in own:
            for k in range(count):
                places[k] = origins[k] + b * row_step
            top, bottom = _find_top(flat, places[0], classes)
            others, tops = _write_odds(flat, places[0], classes, top, box)
            log_odds, total = math.log1p((tops - 1.0) + others), tops + others
            normalisers[0, b] = np.float64(top) + log_odds
            fits = top + bottom < _FARTHEST
            for k in range(1, count):
                highest, _ = _find_top(flat, places[k], classes)
                moved = np.float32(highest - top)
                shift = _write_growth(flat, places[0], places[k], moved, classes, k - 1, box) / total
                logs[k - 1], scales[k - 1] = math.log1p(shift), 1.0 / (1.0 + shift)
                less[k - 1] = -shift / (1.0 + shift)
                normalisers[k, b] = normalisers[0, b] + np.float64(moved) + math.log1p(shift)
                fits = fits and math.isfinite(shift)
            if fits:
                given = flat, places[0], logs, scales, less, count, classes, top, log_odds
                _add_classes(*given, box, found)
                k_, gap = found[0] / (total * count * count), found[1] / (total * count)
                out[0, b], out[1, b], out[2, b] = -found[2] / (total * count), k_, (k_ + gap) / 2
                same = k_ == 0.0 and gap == 0.0
                fits = same or (_LEAST < k_ < np.inf and abs(gap) < (1.0 - 2.0 * _SMALL_PART) * k_)
                fits = fits and out[0, b] >= 0.0
            if not fits:
                rejected[left] = b
                left += 1
        own = claim(chosen, claimed, _ROWS)
    return rejected[:left]
