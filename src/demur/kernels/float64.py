"""Entropy, K and I, or the sums of a state, of any members: float64 in a form without cancellation.

Everything is relative to a reference distribution ``q``, as ``demur.core.state`` says. With a member's logits
``z`` less its own highest and the reference's less theirs, ``d`` is their difference and ``e = expm1(d)``;
with ``shift = <q, e>``: ``u = d - log1p(shift)`` and ``a = (p - q) / q = (e - shift) / (1 + shift)``. No step
subtracts nearly equal numbers where members agree, and identical members give exactly 0. A member's entropy
is made of the odds of its other classes against its top one. Probabilities come in by their logarithms.

Inputs with a number that is none, or with logits so large that sums would lose digits, are returned.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math
from typing import Any

import numpy as np
from numba import njit

from demur.core import class_terms
from demur.core.class_terms import CLOSE
from demur.kernels import exp_log, layouts, vectors
from demur.kernels.compiling import INLINED, cached, named
from demur.kernels.float64_reference import AU, NO_CLASS, REFERENCE, STEP, A, D, E, Q, U, build_reference
from demur.kernels.layouts import TILE, claim, count_slots, first_class, four, weight_of
from demur.kernels.vectors import LANES, where

_EXCLUDED, _ALLOWED, _P = 0, 1, 2  # further sums, which few inputs need
_INPUTS, _ROWS = 2 * LANES, 4  # that a thread claims at a time over inputs, and over classes

_HUGE = 1e5  # of logits: beyond, sums of u would swallow what phi is made of

_class_terms = njit(**INLINED)(class_terms.class_terms)
_settle = njit(**INLINED)(class_terms.settle)
_mean_phi = njit(**INLINED)(class_terms.mean_phi)
_phi_of_average = njit(**INLINED)(class_terms.phi_of_average)


@njit(**INLINED)
def _grow(box, at, k, top):
    """Write ``d`` and ``e`` of a member; return ``q e`` and what its entropy is made of."""
    reference, q = vectors.load(box, at + REFERENCE), vectors.load(box, at + Q)
    none, one = vectors.spread(0.0), vectors.spread(1.0)
    below = vectors.load(box, at + D + k * LANES) - top
    d = below - reference
    grown = exp_log.expm1_and_exp(d)
    vectors.store(box, at + D + k * LANES, d)
    vectors.store(box, at + E + k * LANES, grown[0])
    p = q * grown[1]
    counted = vectors.where_less(none, q, one, none)
    tops = vectors.where_less(below, none, none, counted)
    others = vectors.where_less(below, none, p, none)
    weighed = p * vectors.larger(below, vectors.spread(NO_CLASS))
    return q * grown[0], tops, others, weighed


@njit(**INLINED)
def _add(box, at, k, term, sums):
    """Add a member to the sums of ``w a``, ``w u`` and ``w a u``, over q."""
    d, e = vectors.load(box, at + D + k * LANES), vectors.load(box, at + E + k * LANES)
    u, a = d - term[0], e * term[1] - term[2]
    return sums[0] + a, sums[1] + term[3] * u, sums[2] + a * u


@njit(**INLINED)
def _add_excluding(box, at, k, term, sums, more, slot):
    """Add a member that may exclude classes: there ``u`` counts as 0, and its weight is added up."""
    d, e = vectors.load(box, at + D + k * LANES), vectors.load(box, at + E + k * LANES)
    limit, none = vectors.spread(NO_CLASS), vectors.spread(0.0)
    u, a = vectors.where_less(d, limit, none, d - term[0]), e * term[1] - term[2]
    plane = slot * LANES
    excluded = vectors.where_less(d, limit, term[3], none)
    vectors.store(more[_EXCLUDED], plane, vectors.load(more[_EXCLUDED], plane) + excluded)
    allowed = vectors.load(more[_ALLOWED], plane)
    vectors.store(more[_ALLOWED], plane, allowed + vectors.where_less(d, limit, none, term[3]))
    return sums[0] + a, sums[1] + term[3] * u, sums[2] + a * u


def _build(over_classes: bool) -> Any:
    """Return the loop for one layout."""
    name = "over_classes" if over_classes else "over_inputs"
    sum_up = layouts.sum_over_classes if over_classes else layouts.sum_in_lanes
    top_of = layouts.top_over_classes if over_classes else layouts.top_in_lanes
    load, set_first_reference, set_reference, read_reference, write_reference = build_reference(over_classes)

    @named(name)
    def inspect(box, plane, classes, lanes, weights, unfit):
        """Mark lanes with weight in which a number is none or too large, or all classes are excluded."""
        for lane in range(lanes):
            allowed, fits = False, True
            for slot in range(count_slots(classes, over_classes)):
                for each in range(LANES) if over_classes else range(lane, lane + 1):
                    z = box[slot * STEP + plane + each]
                    if z > -np.inf:
                        allowed, fits = True, fits and abs(z) <= _HUGE
                    elif z != -np.inf:
                        fits = False
            if not (allowed and fits) and weights[lane] > 0.0:
                unfit[lane] = True

    @named(name)
    def add_tile(box, classes, shares, tolerance, normaliser, terms, more, entropy, unfit, lanes):
        """Add four members, whose logits are in the box; mark lanes that have one that is no prediction."""
        none, excluding = vectors.spread(0.0), False
        slots = count_slots(classes, over_classes)
        for k in range(TILE):
            # The highest logit, the lowest, and 0 or NaN.
            high, low, odd = vectors.spread(-np.inf), vectors.spread(np.inf), none
            for at in range(D + k * LANES, box.shape[0], STEP):
                z = vectors.load(box, at)
                high, low, odd = vectors.larger(z, high), vectors.smaller(z, low), odd + (z - z)
            size, nan = vectors.larger(high, none - low), vectors.spread(np.nan)
            odd = odd + vectors.where_less(size, vectors.spread(_HUGE), none, nan)
            if vectors.add_up(odd) != 0.0:  # also where it is NaN
                inspect(box, D + k * LANES, classes, lanes, shares[k * LANES :], unfit)
                excluding = True
            high = top_of(high)
            shift, tops, others, weighed = none, none, none, none
            for at in range(0, box.shape[0], STEP):
                grown = _grow(box, at, k, high)
                shift, tops = shift + grown[0], tops + grown[1]
                others, weighed = others + grown[2], weighed + grown[3]
            shift, w, one = sum_up(shift), vectors.load(shares, k * LANES), vectors.spread(1.0)
            z = vectors.load(normaliser, LANES)
            scale = w / (one + shift)
            at = 4 * k * LANES
            vectors.store(terms, at, exp_log.log1p(shift))
            vectors.store(terms, at + LANES, scale)
            vectors.store(terms, at + 2 * LANES, scale * shift)
            vectors.store(terms, at + 3 * LANES, w)
            rest = (sum_up(tops) - one) + z * sum_up(others)
            own = exp_log.log1p(rest)
            if tolerance < np.inf:
                off, bad = own + high, vectors.spread(1.0)
                least, most = vectors.spread(math.log1p(-tolerance)), vectors.spread(math.log1p(tolerance))
                bad = vectors.where_less(least, off, vectors.where_less(off, most, none, bad), bad)
                vectors.store(terms, 16 * LANES, vectors.where_less(none, w, bad, none))
                for lane in range(lanes):
                    unfit[lane] = unfit[lane] or terms[16 * LANES + lane] > 0.0
            own = w * (own - (z * sum_up(weighed)) / (one + rest))
            vectors.store(entropy, 0, vectors.load(entropy, 0) + own)
        # Of each member: log1p(shift), w / (1 + shift), that times ``shift``, and the weight.
        t0, t1 = four(terms, 0), four(terms, 4 * LANES)
        t2, t3 = four(terms, 8 * LANES), four(terms, 12 * LANES)
        for slot in range(slots - 1, -1, -1):  # what was written last is still in the first cache
            at = slot * STEP
            sums = vectors.load(box, at + A), vectors.load(box, at + U), vectors.load(box, at + AU)
            if excluding:
                sums = _add_excluding(box, at, 0, t0, sums, more, slot)
                sums = _add_excluding(box, at, 1, t1, sums, more, slot)
                sums = _add_excluding(box, at, 2, t2, sums, more, slot)
                sums = _add_excluding(box, at, 3, t3, sums, more, slot)
            else:
                sums = _add(box, at, 0, t0, sums)
                sums = _add(box, at, 1, t1, sums)
                sums = _add(box, at, 2, t2, sums)
                sums = _add(box, at, 3, t3, sums)
            vectors.store(box, at + A, sums[0])
            vectors.store(box, at + U, sums[1])
            vectors.store(box, at + AU, sums[2])
            if more.shape[0] > _P:
                p = vectors.load(more[_P], slot * LANES)
                for k in range(TILE):
                    p = p + vectors.load(terms, 4 * k * LANES + LANES) * exp_log.exp(
                        vectors.load(box, at + D + k * LANES)
                    )
                vectors.store(more[_P], slot * LANES, p)
        if not excluding:
            everywhere = (t0[3] + t1[3]) + (t2[3] + t3[3])
            vectors.store(entropy, LANES, vectors.load(entropy, LANES) + everywhere)

    @named(name)
    def add_members(source, starts, classes, members, weights, tolerance, normaliser, work, lanes):
        """Add members from 0; ``weights`` has sixteen of each."""
        box, shares, terms, more, entropy, unfit = work
        steps, count = source[4], members.shape[0]
        for at in range(0, box.shape[0], STEP):
            for plane in (A, U, AU):
                vectors.store(box, at + plane, vectors.spread(0.0))
        more[:] = 0.0
        entropy[:] = 0.0
        for first in range(0, count, TILE):
            for k in range(TILE):
                there = first + k < count
                # The last member stands for those that are not there.
                shift = members[min(first + k, count - 1)] * steps[0]
                load(source, starts, shift, classes, box, D + k * LANES)
                at = (first + k) * LANES
                for lane in range(LANES):
                    shares[k * LANES + lane] = weights[at + lane] if there else 0.0
                if vectors.lowest(vectors.load(shares, k * LANES)) > 0.0:
                    continue
                # As the reference, a member adds nothing; as it is, perhaps 0 times infinity.
                none, own = vectors.spread(0.0), vectors.load(shares, k * LANES)
                for at in range(0, box.shape[0], STEP):
                    z, reference = vectors.load(box, at + D + k * LANES), vectors.load(box, at + REFERENCE)
                    vectors.store(box, at + D + k * LANES, vectors.where_less(none, own, z, reference))
            add_tile(box, classes, shares, tolerance, normaliser, terms, more, entropy, unfit, lanes)
        for slot in range(count_slots(classes, over_classes)):
            allowed = vectors.load(more[_ALLOWED], slot * LANES) + vectors.load(entropy, LANES)
            vectors.store(more[_ALLOWED], slot * LANES, allowed)

    @named(name)
    def finish(box, classes, more, total, normaliser, found):
        """Write K and I of each lane; where only some members exclude a class, K is infinite."""
        found[:] = 0.0
        for slot in range(count_slots(classes, over_classes)):
            at, place = slot * STEP, slot * LANES
            for lane in range(LANES):
                scale = 1.0 / total[lane] if total[lane] > 0.0 else 1.0
                q = box[at + Q + lane]
                a, u = box[at + A + lane] * scale, box[at + U + lane] * scale
                au, excluded = box[at + AU + lane] * scale, more[_EXCLUDED, place + lane] > 0.0
                close = au < CLOSE and not excluded
                phi = _mean_phi(a, u, au, close, where)
                log_q = box[at + REFERENCE + lane] - normaliser[lane]
                _, k, i = _class_terms(a, u, au, phi, _phi_of_average(a, exp_log.log1p, where), log_q)
                found[0, lane] += q * _settle(k, au, where)
                found[1, lane] += q * _settle(i, au, where)
        if over_classes:
            found[0, 0], found[1, 0] = np.sum(found[0]), np.sum(found[1])
        for slot in range(count_slots(classes, over_classes)):
            for lane in range(LANES):
                place = slot * LANES + lane
                if more[_EXCLUDED, place] > 0.0 and more[_ALLOWED, place] > 0.0:
                    found[0, 0 if over_classes else lane] = np.inf

    @named(name)
    def keep(box, classes, more, total, b, lane, group, sums):
        """Add the sums of one input to those of a state."""
        to_a, to_u, to_au, to_phi, to_excluded, to_allowed, to_p = sums
        for y in range(classes):
            slot = min(y // LANES, -(-classes // LANES) - 1) if over_classes else y
            each = y - first_class(slot, classes) if over_classes else lane
            if over_classes and slot * LANES != first_class(slot, classes) and y < slot * LANES:
                continue
            at, place = slot * STEP + each, slot * LANES + each
            # What stands twice has its probability in the slot before.
            q = box[at + Q]
            a, u, au = box[at + A], box[at + U], box[at + AU]
            close = au < CLOSE * total and not more[_EXCLUDED, place] > 0.0
            to_a[group, b, y] += q * a
            to_u[group, b, y] += u
            to_au[group, b, y] += q * au
            to_phi[group, b, y] += q * _mean_phi(a, u, au, close, where)
            if to_excluded.shape[0] > 0:
                to_excluded[group, b, y] += more[_EXCLUDED, place]
                to_allowed[group, b, y] += more[_ALLOWED, place]
            if more.shape[0] > _P:
                to_p[group, b, y] += q * more[_P, place]

    def take(
        single, double, is_single, is_probs, origin, steps, shape, weights, weight_steps, tolerance, chosen,
        claimed, out, groups, fresh, ranks, references, sums, entropies,
    ):  # fmt: skip
        """Write figures to ``out`` or, if that is empty, add to a state; return inputs not for this loop."""
        count, classes = shape
        source, weighing = (single, double, is_single, is_probs, steps), (weights, weight_steps, count)
        slots, together = count_slots(classes, over_classes), 1 if over_classes else LANES
        like = np.empty(0, np.float64)
        box, terms = vectors.aligned_zeros(slots * STEP, like), vectors.aligned_zeros(17 * LANES, like)
        shares, normaliser = vectors.aligned_zeros(TILE * LANES, like), vectors.aligned_zeros(2 * LANES, like)
        more, entropy = np.zeros((3 if groups > 1 else 2, slots * LANES)), np.zeros(2 * LANES)
        unfit, found, total = np.zeros(LANES, np.bool_), np.zeros((2, LANES)), np.ones(LANES)
        starts, heaviest, room = (
            np.empty(LANES, np.int64),
            np.zeros(LANES, np.int64),
            np.empty(count, np.int64),
        )
        weights_of, group_of = np.empty((count + 1) * LANES), np.zeros((count, LANES), np.int64)
        rejected, left = np.empty(chosen.shape[0], np.int64), 0
        keeps, alike = out.shape[0] == 0, weight_steps[1] == 0 and groups == 1
        work = (box, shares, terms, more, entropy, unfit)
        members = layouts.deal(weighing, chosen[:1], np.int64(0), group_of, room, weights_of, total)
        own = claim(chosen, claimed, _ROWS if over_classes else _INPUTS)
        while own.shape[0] > 0:
            for begin in range(0, own.shape[0], together):
                inputs = own[begin : begin + together]
                lanes = inputs.shape[0]
                layouts.locate_inputs(origin, steps[1], inputs, starts)
                unfit[:] = False
                for lane in range(LANES if weight_steps[0] != 0 or groups > 1 else 0):
                    b, rank = inputs[min(lane, lanes - 1)], 0
                    heaviest[lane], _ = layouts.find_heaviest(weights, weight_steps, count, b)
                    for member in range(count if groups > 1 else 0):
                        group_of[member, lane] = (ranks[b] + rank) % groups
                        rank += weight_of(weights, weight_steps, member, b) > 0.0
                if fresh:
                    set_first_reference(source, starts, classes, weighing, inputs, heaviest, box)
                else:
                    read_reference(references, inputs, classes, box)
                set_reference(box, classes, normaliser)
                if fresh and keeps:
                    write_reference(references, inputs, classes, box)
                for group in range(groups):
                    if not alike:
                        members = layouts.deal(weighing, inputs, group, group_of, room, weights_of, total)
                    add_members(
                        source, starts, classes, members, weights_of, tolerance, normaliser, work, lanes
                    )
                    if not keeps:
                        finish(box, classes, more, total, normaliser, found)
                    for lane in range(lanes):
                        b = inputs[lane]
                        if not keeps:
                            out[0, b] = entropy[lane] / total[lane]
                            out[1, b], out[2, b] = found[0, lane], found[1, lane]
                        elif not unfit[lane]:
                            entropies[group, b] += entropy[lane]
                            keep(box, classes, more, total[lane], b, lane, group, sums)
                for lane in range(lanes):
                    if unfit[lane]:
                        rejected[left] = inputs[lane]
                        left += 1
            own = claim(chosen, claimed, _ROWS if over_classes else _INPUTS)
        return rejected[:left]

    return cached(take, name=name)


over_classes, over_inputs = _build(over_classes=True), _build(over_classes=False)
