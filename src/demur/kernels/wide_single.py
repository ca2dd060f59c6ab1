"""The fused loop for many classes in float32: one input at a time, a slot of the box for sixteen classes.

The last slot may overlap the one before; a class that stands there again has ``q = 0`` and counts for
nothing. Inputs are taken by the arithmetic of ``brief`` first, or by that of ``quick`` where sums are kept,
then by that of ``careful``; what float32 cannot hold at all goes to ``wide``.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportOptionalCall=false
import math

import numpy as np
from numba import njit

from demur.kernels import brief, careful, exponentials, lanes, quick, tile, wide
from demur.kernels.arithmetic import COMPILED, INLINED, cached, claim, named, prefetch_near
from demur.kernels.kept import keep, room_for_one
from demur.kernels.lanes import LANES
from demur.kernels.tile import CHUNK, INFINITE, LOWEST, NOTHING, REFERENCE, TILE, Q
from demur.kernels.workers import in_turn

PART = 64  # slots whose numbers are added up in float32
CLAIM = 4  # inputs that a thread takes at a time


@njit(**INLINED)
def load(rows, places, first):
    """Return sixteen logits of each of four members."""
    return (
        lanes.load(rows, places[0] + first),
        lanes.load(rows, places[1] + first),
        lanes.load(rows, places[2] + first),
        lanes.load(rows, places[3] + first),
    )


@njit(**INLINED)
def first_class(slot, classes):
    """Return the first class of a slot."""
    return min(slot * LANES, classes - LANES)


@njit(**COMPILED)
def copy_rows(flat, places, class_step, copied):
    """Copy four members' logits, whose classes lie apart, one after the other; write where they are now."""
    classes = copied.shape[0] // TILE
    for k in range(TILE):
        for y in range(classes):
            copied[k * classes + y] = flat[places[k] + y * class_step]
        places[k] = k * classes


@njit(**COMPILED)
def set_reference(rows, places, classes, few, step, box):
    """Write the mean of a few members' logits as the reference, and its probabilities.

    Return the normaliser of its logits, in two parts, and whether it is for float32.
    """
    slots = box.shape[0] // step
    top, bottom = lanes.spread(-INFINITE), lanes.spread(-INFINITE)
    for slot in range(slots):
        reference = tile.mean(load(rows, places, first_class(slot, classes)), few)
        lanes.store(box, slot * step + REFERENCE, reference)
        top = lanes.larger(reference, top)
        bottom = lanes.larger(lanes.spread(NOTHING) - reference, bottom)
    highest = lanes.highest(top)
    below = highest + lanes.highest(bottom)
    if not below < LOWEST:
        return 0.0, 0.0, False
    top = lanes.spread(highest)
    for at in range(0, box.shape[0], step):
        lanes.store(box, at + Q, exponentials.full_exp(lanes.load(box, at + REFERENCE) - top))
    again = slots * LANES - classes
    box[(slots - 1) * step + Q : (slots - 1) * step + Q + again] = NOTHING
    tops, others = lanes.spread(0.0), lanes.spread(0.0)
    for at in range(0, box.shape[0], step):
        more = tile.odds_of(box, at, top)
        tops, others = tops + more[0], others + more[1]
    odds = (lanes.add_up(tops) - 1.0) + lanes.add_up(others)
    scale = lanes.spread(np.float32(1.0 / (1.0 + odds)))
    for at in range(0, box.shape[0], step):
        lanes.store(box, at + Q, lanes.load(box, at + Q) * scale)
    log_odds = math.log1p(odds)
    return np.float64(highest), log_odds, below + log_odds < LOWEST


@njit(**COMPILED)
def top_class(box, step, classes, highest):
    """Return the first class whose logit is the reference's highest."""
    for slot in range(box.shape[0] // step):
        at = slot * step + REFERENCE
        if lanes.highest(lanes.load(box, at)) == highest:
            for lane in range(LANES):
                if box[at + lane] == highest:
                    return first_class(slot, classes) + lane
    return 0


@njit(**INLINED)
def total_of(numbers):
    """Return the sum over classes of each of four members."""
    return (
        np.float64(lanes.add_up(numbers[0])),
        np.float64(lanes.add_up(numbers[1])),
        np.float64(lanes.add_up(numbers[2])),
        np.float64(lanes.add_up(numbers[3])),
    )


@njit(**INLINED)
def in_all_lanes(numbers):
    """Return one number for each of four members in all lanes."""
    return (
        lanes.spread(np.float32(numbers[0])),
        lanes.spread(np.float32(numbers[1])),
        lanes.spread(np.float32(numbers[2])),
        lanes.spread(np.float32(numbers[3])),
    )


def adding(arithmetic):
    """Return the loop over classes that adds four members."""
    step, aligned, limit = arithmetic.WIDE_STEP, arithmetic.ALIGNED, arithmetic.SHIFTED
    grow, terms_of, add_slot, farthest = arithmetic.grow, arithmetic.terms, arithmetic.add, arithmetic.MOVED
    tilted, far = arithmetic.TILTED, arithmetic.far

    @named(arithmetic.__name__)
    def add_tile(rows, places, classes, box, weights, flat, ahead, top, highest, log_odds, tolerance, means):
        """Add four members to the sums; False if float32 is not for them, or if they do not sum to 1.

        ``means`` are sums of what members have one of. Meanwhile fetch the next four members into the cache.
        """
        slots = box.shape[0] // step
        offset, normaliser = tile.zeros(), highest + log_odds
        if aligned:
            high = np.float32(highest)
            offset = in_all_lanes(
                (
                    rows[places[0] + top] - high,
                    rows[places[1] + top] - high,
                    rows[places[2] + top] - high,
                    rows[places[3] + top] - high,
                )
            )
            if not lanes.highest(tile.largest(offset)) < limit:
                return False
        totals, tilts = (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)
        w = in_all_lanes(weights)
        for begin in range(0, slots, PART):
            part, tilt = tile.zeros(), tile.zeros()
            for slot in range(begin, min(begin + PART, slots)):
                first = first_class(slot, classes)
                for k in range(TILE):
                    prefetch_near(flat, ahead[k] + first)
                grown = grow(load(rows, places, first), offset, w, box, slot * step)
                part = tile.sums(part, grown)
                if tilted:
                    tilt = tile.sums(tilt, grown[TILE:])
            totals = tile.sums(totals, total_of(part))
            if tilted:
                tilts = tile.sums(tilts, total_of(tilt))
        s = in_all_lanes(totals)
        terms = terms_of(s[0], w[0]), terms_of(s[1], w[1]), terms_of(s[2], w[2]), terms_of(s[3], w[3])
        logs = terms[0][0], terms[1][0], terms[2][0], terms[3][0]
        if not lanes.highest(far(logs)) < farthest:
            return False
        if tilted:
            scales = terms[0][1], terms[1][1], terms[2][1], terms[3][1]
            means[0] += lanes.highest(tile.product(scales, in_all_lanes(tilts)))
            means[1] += lanes.highest(tile.product(w, logs))
            means[2] += lanes.highest(tile.product(w, tile.magnitudes(logs)))
        if tolerance < np.inf:
            off = tile.sums(logs, offset)
            high = lanes.highest(lanes.larger(lanes.larger(off[0], off[1]), lanes.larger(off[2], off[3])))
            none = lanes.spread(NOTHING)
            off = none - off[0], none - off[1], none - off[2], none - off[3]
            low = -lanes.highest(lanes.larger(lanes.larger(off[0], off[1]), lanes.larger(off[2], off[3])))
            for log_total in (np.float64(low) + normaliser, np.float64(high) + normaliser):
                if not abs(math.expm1(log_total)) <= tolerance:
                    return False
        for slot in range(slots - 1, -1, -1):
            z = load(rows, places, first_class(slot, classes))
            add_slot(z, terms, w, box, slot * step)
        return True

    return add_tile


def comparing(arithmetic):
    """Return what compares the first four members."""
    step, disagreement = arithmetic.WIDE_STEP, arithmetic.disagreement

    @named(arithmetic.__name__)
    def agree(box, means):
        """Tell whether they agree; their weights are equal."""
        share, k = lanes.spread(np.float32(1.0 / TILE)), lanes.spread(NOTHING)
        for at in range(0, box.shape[0], step):
            k = k + disagreement(box, at, share)
        return not lanes.add_up(k) + means[0] / TILE > quick.ROUGH

    return agree


def finishing(arithmetic):
    """Return what makes figures of sums."""
    step, parts, figures = arithmetic.WIDE_STEP, arithmetic.PARTS, arithmetic.figures
    tilted = arithmetic.TILTED

    @named(arithmetic.__name__)
    def finish(box, sums, total, highest, log_odds, means):
        """Return entropy, K, I and E phi."""
        share, top, log_total = lanes.spread(1.0 / total), lanes.spread(highest), lanes.spread(log_odds)
        entropy, k, i, apart = lanes.spread(0.0), lanes.spread(0.0), lanes.spread(0.0), lanes.spread(0.0)
        place = 0
        for at in range(0, box.shape[0], step):
            log_q = (lanes.doubled(lanes.load(box, at + REFERENCE)) - top) - log_total
            more = figures(box, at, sums, place, share, log_q)
            entropy, k, i, apart = entropy + more[0], k + more[1], i + more[2], apart + more[3]
            place += parts * LANES
        found = lanes.add_up(entropy), lanes.add_up(k), lanes.add_up(i), lanes.add_up(apart)
        if tilted:
            t, net = means[0] / total, (means[0] - means[1]) / total
            return found[0] - net, found[1] + t, found[2] + net, found[3] + (net + 1.0)
        return found

    return finish


def taking(arithmetic, kept):
    """Return the loop over inputs; ``kept``: their sums are kept too."""
    name = f"{arithmetic.__name__}.{'kept' if kept else 'summarised'}"
    step, parts, is_careful = arithmetic.WIDE_STEP, arithmetic.PARTS, arithmetic is careful
    add_tile, finish, is_enough = adding(arithmetic), finishing(arithmetic), arithmetic.is_enough
    agree = None if is_careful else comparing(arithmetic)

    @named(name)
    def add_members(flat, start, steps, classes, members, heaviest, weights, weight, alike, tolerance, work):
        """Write sums over members of positive weight.

        Return the sum of their shares as float32 has them, the normaliser of the reference in two parts, and
        whether this arithmetic is for them.
        """
        box, sums, means, copied, places, ahead, shares = work
        in_a_line = steps[2] == 1
        rows = flat if in_a_line else copied
        count, total, highest, log_odds, fits, top = members.shape[0], 0.0, 0.0, 0.0, True, 0
        sums[:] = means[:] = 0.0
        tile.clear(box, step, parts)
        if not alike:
            places[:] = start + heaviest * steps[0]
            if not in_a_line:
                copy_rows(flat, places, steps[2], copied)
            highest, log_odds, fits = set_reference(rows, places, classes, 1, step, box)
        for first in range(0, count, TILE):
            if not fits:
                return total, highest, log_odds, False
            for k in range(TILE):  # the last member stands for those that are not there
                places[k] = start + members[min(first + k, count - 1)] * steps[0]
                # After the last members of this input come the first of the next one.
                later = first + TILE + k
                ahead[k] = start + (members[later] * steps[0] if later < count else steps[1] + k * steps[0])
            if not in_a_line:
                copy_rows(flat, places, steps[2], copied)
            if alike and first == 0:
                few = min(TILE, count)
                highest, log_odds, fits = set_reference(rows, places, classes, few, step, box)
            for k in range(TILE):
                there = first + k < count
                share = weights[members[first + k]] / weight if there else 0.0
                shares[k] = np.float32((1.0 if there else 0.0) if alike else share)
                total += np.float64(shares[k])
            if is_careful and first == 0:
                top = top_class(box, step, classes, highest)
            fits = fits and add_tile(
                rows, places, classes, box, shares, flat, ahead, top, highest, log_odds, tolerance, means
            )
            if not is_careful and alike and first == 0 and count > 2 * TILE:
                fits = fits and not agree(box, means)
            if (first + TILE) % CHUNK == 0:
                tile.flush(box, step, parts, sums)
        tile.flush(box, step, parts, sums)
        return total, highest, log_odds, fits

    @named(name)
    def take(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, state):
        """Write entropy, K and I of chosen inputs to ``out``; return those that this is not enough for."""
        count, classes = shape
        slots = -(-classes // LANES)
        box, sums = lanes.aligned_zeros(slots * step), np.empty(slots * parts * LANES)
        copied = np.empty(0 if steps[2] == 1 else TILE * classes, flat.dtype)
        places, ahead, shares = np.empty(TILE, np.int64), np.empty(TILE, np.int64), np.empty(TILE, np.float32)
        means = np.empty(3)
        work = (box, sums, means, copied, places, ahead, shares)
        room = room_for_one(classes if kept else 0)
        found, rejected, left = np.empty(count, np.int64), np.empty(chosen.shape[0], np.int64), 0
        alike = weights.strides[0] == 0 and weights.strides[1] == 0
        inputs = claim(chosen, claimed, CLAIM)
        while inputs.shape[0] > 0:
            for b in inputs:
                start, own = origin + b * steps[1], weights[:, b]
                members, heaviest = wide.chosen(own, 0, 1, found)
                tile.spread_out(members)
                weight = np.sum(own)
                total, highest, log_odds, fits = add_members(
                    flat, start, steps, classes, members, heaviest, own, weight, alike, tolerance, work
                )
                enough = False
                if fits and total > 0.0:
                    entropy, k, i, apart = finish(box, sums, total, highest, log_odds, means)
                    # Members that have moved too far were told before.
                    enough = is_enough(entropy, k, i, apart, 0.0, means[2] / total, total)
                    out[0, b], out[1, b], out[2, b] = entropy, k, i
                if not enough:
                    rejected[left] = b
                    left += 1
                elif kept:
                    keep(b, box, step, parts, sums, total, weight, out[0, b], is_careful, state, room)
            inputs = claim(chosen, claimed, CLAIM)
        return rejected[:left]

    return take


take, take_carefully = taking(brief, kept=False), taking(careful, kept=False)
add, add_carefully = taking(quick, kept=True), taking(careful, kept=True)


# One entry each, compiled when it is first needed: all at once, a first call would wait far longer.
@cached
def summarise_quickly(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out):
    """Call ``take`` without care."""
    return take(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, None)


@cached
def summarise_carefully(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out):
    """Call ``take`` with care."""
    return take_carefully(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, None)


@cached
def accumulate_quickly(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, state):
    """Call ``add`` without care."""
    return add(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, state)


@cached
def accumulate_carefully(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, state):
    """Call ``add`` with care."""
    return add_carefully(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, state)


def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out):
    """Write entropy, K and I of all inputs to ``out``; return the first bad input or -1."""
    given = (flat, origin, steps, shape, weights, tolerance)
    left = in_turn(summarise_quickly, summarise_carefully, given, None, out)
    if not left.size:
        return -1
    return wide.summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out, left)


def accumulate(
    flat, bits, origin, steps, shape, weights, limits, tolerance, agreeing, fresh, references, old, new,
    entropies, rejected,
):  # fmt: skip
    """Write the sums of ``old`` (inputs, classes) with members added to ``new``; mark inputs not for float32.

    ``agreeing``: inputs to take with care at once. ``fresh``: there are no sums, and each input's reference
    is set.
    """
    given = (flat, origin, steps, shape, weights, tolerance)
    to = np.empty((3, weights.shape[1])), (fresh, references, old, new, entropies)
    rejected[in_turn(accumulate_quickly, accumulate_carefully, given, agreeing, *to)] = True
    return -1
