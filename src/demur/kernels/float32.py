"""Entropy, K and I of float32 members that disagree, in float32 and with the least arithmetic.

With ``d = z - z_reference``, ``r = exp(d)``, ``s = <q, r>`` and ``t = <q r, d>``, a member has
``p = q r / s``, ``log p = log q + d - log s`` and so ``<p, log p - log q> = t / s - log s``. Means over
members of ``p / q``, ``d``, ``t / s`` and ``log s``, called R, D, T and L, give ``K = T - <q R, D>``,
``I = T - L - <q R, log R>`` and the mean entropy ``L - T - <q R, log q>``. Only R and D are sums for each
class. The reference is the mean of a few members, so that the differences are small.

Where members agree or are certain, the figures are differences of larger numbers, and T, L and D hold how far
all logits of a member have moved together: ``_is_enough`` tells, and ``float64`` takes such inputs.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math
from typing import Any

import numpy as np
from numba import njit

from demur.kernels import exp_log, layouts, vectors
from demur.kernels.compiling import COMPILED, INLINED, cached, named
from demur.kernels.layouts import TILE, add_four, claim, count_slots, dot_four, first_class, four, store_four
from demur.kernels.vectors import LANES, magnitude, to_single

_REFERENCE, _Q, _R, _D, _LOGIT = 0, LANES, 2 * LANES, 3 * LANES, 4 * LANES
_STEP = _LOGIT + TILE * LANES  # exponentials take the place of logits
_SLOTS = 64  # whose numbers are added up in float32
_CHUNK = 32  # members added up in float32 before their sums go to float64
_INPUTS = 2 * LANES  # that a thread claims at a time over inputs,
_ROWS = 4  # and over classes

_LOWEST = np.float32(60.0)  # of -log q: below exp(-60), no class of the reference is for float32
_LEAST = np.float32(1e-37)  # of probabilities: smaller ones have few digits, and 0 has no logarithm
_ROUGH = 0.06  # of I and of M, to which float32 adds up to 2e-7
_CANCELLED = 0.1  # of K or of E phi: I and M below that are differences of larger numbers,
_CERTAIN = 0.05  # and so is an entropy below that
_MOVED = np.float32(16.0)  # how far all logits of a member may move without taking digits from others
_LOST = 0.3  # of one log s: 5e-6 of that is more than float32 takes from t / s - log s
_DIFFERENT = 16  # members that are taken to be different at most: a chain that stays repeats them
_NOTHING, _INFINITE, _NAN = np.float32(0.0), np.float32(np.inf), np.float32(np.nan)
_ONE = np.float32(1.0)


@njit(**INLINED)
def _to_logits(numbers, is_probs):
    """Return logarithms of probabilities, NaN where there is none in float32, and logits as they are."""
    if not is_probs:
        return numbers
    return vectors.where_less(numbers, vectors.spread(_LEAST), vectors.spread(_NAN), exp_log.log(numbers))


@njit(**INLINED)
def _grow(z, weights, box, at):
    """Write ``exp(d)`` of four members and add ``w d``; return ``q r`` and ``q r d``."""
    reference, q = vectors.load(box, at + _REFERENCE), vectors.load(box, at + _Q)
    d0, d1, d2, d3 = z[0] - reference, z[1] - reference, z[2] - reference, z[3] - reference
    r0, r1 = exp_log.rough_exp(d0), exp_log.rough_exp(d1)
    r2, r3 = exp_log.rough_exp(d2), exp_log.rough_exp(d3)
    store_four(box, at + _LOGIT, (r0, r1, r2, r3))
    of_d = (weights[0] * d0 + weights[1] * d1) + (weights[2] * d2 + weights[3] * d3)
    vectors.store(box, at + _D, vectors.load(box, at + _D) + of_d)
    p0, p1, p2, p3 = q * r0, q * r1, q * r2, q * r3
    return (p0, p1, p2, p3), (p0 * d0, p1 * d1, p2 * d2, p3 * d3)


@njit(**INLINED)
def _add_to(sums, place, numbers):
    """Add float32 numbers to float64 ones."""
    vectors.store(sums, place, vectors.load(sums, place) + vectors.to_double(numbers))


@njit(**INLINED)
def _mean_of(z, few):
    """Return the mean of the first one to four members."""
    total = z[0]
    if few > 1:
        total = total + z[1]
    if few > 2:
        total = total + z[2]
    if few > 3:
        total = total + z[3]
    return total * vectors.spread(np.float32(1.0 / few))


@njit(**INLINED)
def _is_enough(entropy, k, i, apart, moved, mean, members):
    """Tell whether float32 made these figures without cancelling.

    ``apart`` is ``E phi``; ``moved`` and ``mean`` say how far all logits of a member have moved together, at
    most and on average over ``members``, whose errors average out.
    """
    largest, smallest = max(k, apart), min(i, k - i)
    fits = smallest > max(_ROUGH, _CANCELLED * largest) and entropy > _CERTAIN * largest
    noise = _LOST * mean / math.sqrt(min(members, _DIFFERENT))
    return fits and min(smallest, entropy) > noise and moved < _MOVED


@njit(**COMPILED)
def _clear(box):
    """Set the sums to 0."""
    for at in range(0, box.shape[0], _STEP):
        vectors.store(box, at + _R, vectors.spread(_NOTHING))
        vectors.store(box, at + _D, vectors.spread(_NOTHING))


@njit(**COMPILED)
def _flush(box, sums):
    """Move the sums of a chunk of members to float64."""
    to = 0
    for at in range(_R, box.shape[0], _STEP):
        for plane in (0, LANES):
            more = vectors.to_double(vectors.load(box, at + plane))
            vectors.store(sums, to, vectors.load(sums, to) + more)
            vectors.store(box, at + plane, vectors.spread(_NOTHING))
            to += LANES


@njit(**COMPILED)
def _check_sums(log_totals, normaliser, tolerance, moved):
    """Mark lanes in which the probabilities of one of four members do not sum to 1."""
    least, most = vectors.spread(math.log1p(-tolerance)), vectors.spread(math.log1p(tolerance))
    none, bad = vectors.spread(0.0), vectors.spread(np.inf)
    own = vectors.load(normaliser, 0) + vectors.load(normaliser, LANES)
    for k in range(TILE):
        log_total = own + vectors.to_double(vectors.load(log_totals, k * LANES))
        off = vectors.where_less(log_total, least, bad, vectors.where_less(most, log_total, bad, none))
        vectors.store(moved, 0, vectors.larger(to_single(off), vectors.load(moved, 0)))


@njit(**COMPILED)
def _spread_out(members):
    """Bring four members from all over to the front, in place: those of a chain are like their neighbours."""
    count = members.shape[0]
    if count > 2 * TILE:
        for k in range(1, TILE):
            other = k * count // TILE
            members[k], members[other] = members[other], members[k]


@njit(**COMPILED)
def _copy_rows(flat, places, class_step, copied):
    """Copy four members' numbers, whose classes lie apart, one after the other; write where they are now."""
    classes = copied.shape[0] // TILE
    for k in range(TILE):
        for y in range(classes):
            copied[k * classes + y] = flat[places[k] + y * class_step]
        places[k] = k * classes


@njit(**COMPILED)
def _set_shares(weighing, inputs, members, first, weight, shares, total):
    """Write the shares that four members have of the weight, 0 for a member that is not there."""
    weights, weight_steps, alike, _ = weighing
    for k in range(TILE):
        for lane in range(LANES):
            share = 0.0
            if first + k < members.shape[0]:
                b = inputs[min(lane, inputs.shape[0] - 1)]
                own = layouts.weight_of(weights, weight_steps, members[first + k], b)
                share = 1.0 if alike else own / weight[lane]
            shares[k * LANES + lane] = np.float32(share)
            total[lane] += np.float64(shares[k * LANES + lane])


def _build(over_classes: bool) -> Any:
    """Return the loop for one layout."""
    name = "over_classes" if over_classes else "over_inputs"
    sum_up = layouts.sum_over_classes if over_classes else layouts.sum_in_lanes
    top_of = layouts.top_over_classes if over_classes else layouts.top_in_lanes

    @njit(**INLINED)
    def read(rows, places, slot, classes, box, is_probs):
        """Return a slot's logits of four members: from their rows, or as they were brought to the box."""
        if over_classes:
            first = first_class(slot, classes)
            return (
                _to_logits(vectors.load(rows, places[0] + first), is_probs),
                _to_logits(vectors.load(rows, places[1] + first), is_probs),
                _to_logits(vectors.load(rows, places[2] + first), is_probs),
                _to_logits(vectors.load(rows, places[3] + first), is_probs),
            )
        return four(box, slot * _STEP + _LOGIT)

    @named(name)
    def set_reference(rows, places, classes, few, box, is_probs, normaliser, moved):
        """Write the mean of a few members' logits as the reference, and its probabilities.

        ``normaliser`` is that of its logits, in two parts; ``moved`` is infinite where float32 is not for it.
        """
        top, bottom = vectors.spread(-_INFINITE), vectors.spread(-_INFINITE)
        for slot in range(count_slots(classes, over_classes)):
            reference = _mean_of(read(rows, places, slot, classes, box, is_probs), few)
            vectors.store(box, slot * _STEP + _REFERENCE, reference)
            top = vectors.larger(reference, top)
            bottom = vectors.larger(vectors.spread(_NOTHING) - reference, bottom)
        top, bottom = top_of(top), top_of(bottom)
        for at in range(0, box.shape[0], _STEP):
            odds = exp_log.exp(vectors.load(box, at + _REFERENCE) - top)
            vectors.store(box, at + _Q, odds)
        if over_classes:
            layouts.hide_repeated(box, _STEP, _Q, classes)
        # By themselves, the odds of classes below the top keep their digits where the reference is certain.
        tops, others, one = vectors.spread(0.0), vectors.spread(0.0), vectors.spread(1.0)
        for at in range(0, box.shape[0], _STEP):
            odds, reference = vectors.load(box, at + _Q), vectors.load(box, at + _REFERENCE)
            below = vectors.where_less(reference, top, odds, vectors.spread(_NOTHING))
            tops, others = tops + vectors.to_double(odds - below), others + vectors.to_double(below)
        tops, others = sum_up(tops), sum_up(others)
        scale = to_single(one / (tops + others))
        for at in range(0, box.shape[0], _STEP):
            vectors.store(box, at + _Q, vectors.load(box, at + _Q) * scale)
        log_odds = exp_log.log1p((tops - one) + others)
        vectors.store(normaliser, 0, vectors.to_double(top))
        vectors.store(normaliser, LANES, log_odds)
        far = (top + bottom) + to_single(log_odds)
        fits, none = vectors.spread(_LOWEST), vectors.spread(_INFINITE)
        vectors.store(moved, 0, vectors.where_less(far, fits, vectors.spread(_NOTHING), none))

    @named(name)
    def add_tile(rows, places, classes, box, is_probs, shares, flat, ahead, moved, log_totals, means):
        """Add four members to the sums, and what members have one of to ``means``.

        ``moved`` and ``log_totals`` say how far their logits were off. Meanwhile fetch the next four members
        into the cache.
        """
        w, none = four(shares, 0), vectors.spread(_NOTHING)
        zero = vectors.spread(0.0)
        totals, tilts = (zero, zero, zero, zero), (zero, zero, zero, zero)
        slots = count_slots(classes, over_classes)
        for begin in range(0, slots, _SLOTS):
            part, tilt = (none, none, none, none), (none, none, none, none)
            for slot in range(begin, min(begin + _SLOTS, slots)):
                for k in range(TILE):
                    vectors.prefetch(flat, ahead[k] + slot * LANES)
                z = read(rows, places, slot, classes, box, is_probs)
                grown = _grow(z, w, box, slot * _STEP)
                part, tilt = add_four(part, grown[0]), add_four(tilt, grown[1])
            more = sum_up(part[0]), sum_up(part[1]), sum_up(part[2]), sum_up(part[3])
            totals = add_four(totals, more)
            more = sum_up(tilt[0]), sum_up(tilt[1]), sum_up(tilt[2]), sum_up(tilt[3])
            tilts = add_four(tilts, more)
        s0, s1 = to_single(totals[0]), to_single(totals[1])
        s2, s3 = to_single(totals[2]), to_single(totals[3])
        logs = exp_log.log(s0), exp_log.log(s1), exp_log.log(s2), exp_log.log(s3)
        sizes = magnitude(logs[0]), magnitude(logs[1]), magnitude(logs[2]), magnitude(logs[3])
        scales = w[0] / s0, w[1] / s1, w[2] / s2, w[3] / s3
        tilt = to_single(tilts[0]), to_single(tilts[1]), to_single(tilts[2]), to_single(tilts[3])
        farthest = vectors.larger(vectors.larger(sizes[0], sizes[1]), vectors.larger(sizes[2], sizes[3]))
        vectors.store(moved, 0, vectors.larger(farthest, vectors.load(moved, 0)))
        store_four(log_totals, 0, logs)
        _add_to(means, 0, dot_four(scales, tilt))
        _add_to(means, LANES, dot_four(w, logs))
        _add_to(means, 2 * LANES, dot_four(w, sizes))
        for slot in range(slots - 1, -1, -1):  # what was written last is still in the first cache
            at = slot * _STEP
            of_r = dot_four(four(box, at + _LOGIT), scales)
            vectors.store(box, at + _R, vectors.load(box, at + _R) + of_r)

    @named(name)
    def mark_agreeing(box, shares, means, moved):
        """Mark lanes in which the first four members agree as infinitely far moved."""
        w = four(shares, 0)
        share, k = vectors.spread(_ONE) / ((w[0] + w[1]) + (w[2] + w[3])), vectors.spread(_NOTHING)
        for at in range(0, box.shape[0], _STEP):
            r, d = vectors.load(box, at + _R) * share, vectors.load(box, at + _D) * share
            k = k + vectors.load(box, at + _Q) * (r * d)
        found = (vectors.load(means, 0) * vectors.to_double(share)) - sum_up(k)
        rough = vectors.spread(np.float32(_ROUGH))
        none, before = vectors.spread(_INFINITE), vectors.load(moved, 0)
        vectors.store(moved, 0, vectors.where_less(rough, to_single(found), before, none))

    @named(name)
    def finish(box, sums, total, normaliser, means, found):
        """Write entropy, K, I and E phi of each lane."""
        share = vectors.spread(1.0) / vectors.load(total, 0)
        top, log_odds = vectors.load(normaliser, 0), vectors.load(normaliser, LANES)
        none, one, place = vectors.spread(0.0), vectors.spread(1.0), 0
        entropy, k, i, apart = none, none, none, none
        for at in range(0, box.shape[0], _STEP):
            log_q = (vectors.to_double(vectors.load(box, at + _REFERENCE)) - top) - log_odds
            r, d = vectors.load(sums, place) * share, vectors.load(sums, place + LANES) * share
            p = vectors.to_double(vectors.load(box, at + _Q)) * r
            entropy, k, i, apart = entropy + p * log_q, k + p * d, i + p * exp_log.log(r), apart + p
            place += 2 * LANES
        t = vectors.load(means, 0) * share
        net = t - vectors.load(means, LANES) * share
        entropy, k = none - (net + sum_up(entropy)), t - sum_up(k)
        store_four(found, 0, (entropy, k, net - sum_up(i), (net + one) - sum_up(apart)))

    @named(name)
    def bring(source, starts, evenly, classes, members, first, box, places, ahead, copied):
        """Bring four members' numbers to the box, or write where their rows are; and where the next ones are.

        The last member stands for those that are not there. After the last come those of the next inputs.
        """
        flat, is_probs, steps = source
        count, together = members.shape[0], 1 if over_classes else LANES
        for k in range(TILE):
            shift, later = members[min(first + k, count - 1)] * steps[0], first + TILE + k
            next_one = members[later] * steps[0] if later < count else together * steps[1] + k * steps[0]
            ahead[k] = starts[0] + next_one
            if over_classes:
                places[k] = starts[0] + shift
            else:
                plane = _LOGIT + k * LANES
                layouts.load_single(flat, starts, shift, steps, evenly, classes, _STEP, box, plane)
        if over_classes and steps[2] != 1:
            _copy_rows(flat, places, steps[2], copied)
        if is_probs and not over_classes:
            for at in range(_LOGIT, box.shape[0], _STEP):
                for k in range(TILE):
                    numbers = vectors.load(box, at + k * LANES)
                    vectors.store(box, at + k * LANES, _to_logits(numbers, True))

    @named(name)
    def add_members(source, starts, evenly, classes, members, weighing, inputs, tolerance, work):
        """Write sums over members; False if float32 is for none of the inputs."""
        flat, is_probs, steps = source
        weights, weight_steps, alike, all_members = weighing
        box, shares, moved, log_totals, means, sums, total, normaliser, copied, places, ahead = work
        rows, count = copied if over_classes and steps[2] != 1 else flat, members.shape[0]
        sums[:] = means[:] = total[:] = 0.0
        _clear(box)
        weight = np.ones(LANES)
        if not alike:
            heaviest = np.zeros(LANES, np.int64)
            for lane in range(LANES):
                b = inputs[min(lane, inputs.shape[0] - 1)]
                heaviest[lane], weight[lane] = layouts.find_heaviest(weights, weight_steps, all_members, b)
                heaviest[lane] = starts[lane] + heaviest[lane] * steps[0]
            # ``alike`` is False, and no literals: numba would compile both functions for them once more.
            zero, the_first = np.int64(0), np.zeros(1, np.int64)
            bring(source, heaviest, alike, classes, the_first, zero, box, places, ahead, copied)
            set_reference(rows, places, classes, zero + 1, box, is_probs, normaliser, moved)
        for first in range(0, count, TILE):
            bring(source, starts, evenly, classes, members, first, box, places, ahead, copied)
            if alike and first == 0:
                few = min(TILE, count)
                set_reference(rows, places, classes, few, box, is_probs, normaliser, moved)
            _set_shares(weighing, inputs, members, first, weight, shares, total)
            add_tile(rows, places, classes, box, is_probs, shares, flat, ahead, moved, log_totals, means)
            if tolerance < np.inf:
                _check_sums(log_totals, normaliser, tolerance, moved)
            if alike and first == 0 and count > 2 * TILE:
                mark_agreeing(box, shares, means, moved)
            if not vectors.lowest(vectors.load(moved, 0)) < _MOVED:
                return False
            if (first + TILE) % _CHUNK == 0:
                _flush(box, sums)
        _flush(box, sums)
        return True

    def take(flat, is_probs, origin, steps, shape, weights, weight_steps, tolerance, chosen, claimed, out):
        """Write entropy, K and I of chosen inputs to ``out``; return those that this is not enough for."""
        count, classes = shape
        slots = count_slots(classes, over_classes)
        like = np.empty(0, np.float32)
        box, shares = vectors.aligned_zeros(slots * _STEP, like), vectors.aligned_zeros(TILE * LANES, like)
        log_totals = vectors.aligned_zeros(TILE * LANES + LANES, like)
        moved = log_totals[TILE * LANES :]
        means, sums, total = np.empty(3 * LANES), np.empty(slots * 2 * LANES), np.empty(LANES)
        normaliser, found = np.empty(2 * LANES), np.zeros(4 * LANES)
        copied = np.empty(TILE * classes if over_classes and steps[2] != 1 else 0, np.float32)
        starts, places, ahead = np.empty(LANES, np.int64), np.empty(TILE, np.int64), np.empty(TILE, np.int64)
        work = (box, shares, moved, log_totals, means, sums, total, normaliser, copied, places, ahead)
        rejected, left, room = np.empty(chosen.shape[0], np.int64), 0, np.empty(count, np.int64)
        alike, together = weight_steps[0] == 0 and weight_steps[1] == 0, 1 if over_classes else LANES
        source, weighing = (flat, is_probs, steps), (weights, weight_steps, alike, count)
        own = claim(chosen, claimed, _ROWS if over_classes else _INPUTS)
        while own.shape[0] > 0:
            for first in range(0, own.shape[0], together):
                inputs = own[first : first + together]
                evenly = layouts.locate_inputs(origin, steps[1], inputs, starts)
                members = layouts.list_members(weights, weight_steps, count, inputs, room)
                _spread_out(members)
                fits = members.shape[0] > 0 and add_members(
                    source, starts, evenly, classes, members, weighing, inputs, tolerance, work
                )
                if fits:
                    finish(box, sums, total, normaliser, means, found)
                for lane in range(inputs.shape[0]):
                    b, entropy, k = inputs[lane], found[lane], found[LANES + lane]
                    i, apart = found[2 * LANES + lane], found[3 * LANES + lane]
                    mean = means[2 * LANES + lane] / total[lane]
                    if fits and _is_enough(entropy, k, i, apart, moved[lane], mean, total[lane]):
                        out[0, b], out[1, b], out[2, b] = entropy, k, i
                    else:
                        rejected[left] = b
                        left += 1
            own = claim(chosen, claimed, _ROWS if over_classes else _INPUTS)
        return rejected[:left]

    return cached(take, name=name)


over_classes, over_inputs = _build(over_classes=True), _build(over_classes=False)
