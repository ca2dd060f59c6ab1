"""The fused loop for few classes in float32: sixteen inputs at a time, with a slot of the box for each class.

Inputs are first taken by the arithmetic of ``brief``, or by that of ``quick`` where sums are kept; those for
which it is not enough are collected and taken again by that of ``careful``, and what float32 cannot hold at
all goes to ``narrow``. Each lane is judged by itself, so that no input's result hangs on its neighbours.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportOptionalCall=false
import numpy as np
from numba import njit

from demur.kernels import brief, careful, exponentials, lanes, narrow, quick, tile, wide
from demur.kernels.arithmetic import COMPILED, INLINED, cached, claim, named, prefetch
from demur.kernels.kept import keep_lanes, room_for_lanes
from demur.kernels.lanes import FOUR, LANES
from demur.kernels.tile import CHUNK, INFINITE, LOWEST, NOTHING, REFERENCE, TILE, Q
from demur.kernels.workers import in_turn

CLAIM = 2 * LANES  # inputs that a thread takes at a time
FEW = 8  # classes below which most inputs need the care


@njit(**INLINED)
def load(flat, starts, shift, steps, evenly, classes, step, box, plane):
    """Copy one member's logits for sixteen inputs, which may lie ``evenly``, into a plane of each class."""
    if steps[2] == 1 and classes >= FOUR:
        for y in range(0, classes, FOUR):
            first = min(y, classes - FOUR)  # the last four classes may overlap those before
            lanes.turn_four(flat, starts, shift + first, box, first * step + plane, step)
    elif steps[1] == 1 and evenly:  # as networks that label every pixel have them
        for y in range(classes):
            lanes.store(box, y * step + plane, lanes.load(flat, starts[0] + shift + y * steps[2]))
    elif steps[2] == 1 and classes == 2 and steps[1] == 2 and evenly:
        pair = lanes.load_pairs(flat, starts[0] + shift)
        lanes.store(box, plane, pair[0])
        lanes.store(box, step + plane, pair[1])
    else:
        for y in range(classes):
            at, here = y * step + plane, shift + y * steps[2]
            for lane in range(LANES):
                box[np.uintp(at + lane)] = flat[np.uintp(starts[lane] + here)]


@njit(**COMPILED)
def spread_inputs(origin, input_step, inputs, starts):
    """Write where inputs begin, for lanes without one the last; tell whether they fill all lanes evenly."""
    count = inputs.shape[0]
    for lane in range(LANES):
        starts[lane] = origin + inputs[min(lane, count - 1)] * input_step
    return count == LANES and inputs[count - 1] - inputs[0] == count - 1


@njit(**COMPILED)
def members_of(weights):
    """List the members to add: all, but for those that no input has any weight for."""
    found = np.arange(weights.shape[0])
    return wide.chosen(weights[:, 0], 0, 1, found)[0] if weights.strides[1] == 0 else found


@njit(**COMPILED)
def weigh(weights, inputs, total, rounded, heaviest):
    """Write each lane's sum of weights, that of shares as float32 has them, and its heaviest member."""
    for lane in range(LANES):
        own = weights[:, inputs[min(lane, inputs.shape[0] - 1)]]
        total[lane], rounded[lane], heaviest[lane] = np.sum(own), 0.0, np.argmax(own)
        for member in range(own.shape[0]):
            rounded[lane] += np.float64(np.float32(own[member] / total[lane]))


@njit(**COMPILED)
def set_weights(weights, inputs, members, first, total, shares):
    """Write the shares that four members have of the weight; 0 for a member that is not there."""
    for k in range(TILE):
        for lane in range(LANES):
            share = 0.0
            if first + k < members.shape[0]:
                share = weights[members[first + k], inputs[min(lane, inputs.shape[0] - 1)]] / total[lane]
            shares[k * LANES + lane] = np.float32(share)


@njit(**COMPILED)
def set_reference(box, step, plane, few, normaliser, moved):
    """Write the mean of a few members' logits as the reference, and its probabilities.

    ``normaliser`` is that of its logits, in two parts; ``moved`` is infinite where they are not for float32.
    """
    top, bottom = lanes.spread(-INFINITE), lanes.spread(-INFINITE)
    for at in range(0, box.shape[0], step):
        reference = tile.mean(tile.four(box, at + plane), few)
        lanes.store(box, at + REFERENCE, reference)
        top = lanes.larger(reference, top)
        bottom = lanes.larger(lanes.spread(NOTHING) - reference, bottom)
    tops, others, one = lanes.spread(0.0), lanes.spread(0.0), lanes.spread(1.0)
    for at in range(0, box.shape[0], step):
        lanes.store(box, at + Q, exponentials.full_exp(lanes.load(box, at + REFERENCE) - top))
        more = tile.odds_of(box, at, top)
        tops, others = tops + more[0], others + more[1]
    scale = lanes.rounded(one / (tops + others))
    for at in range(0, box.shape[0], step):
        lanes.store(box, at + Q, lanes.load(box, at + Q) * scale)
    log_odds = exponentials.log1p((tops - one) + others)
    lanes.store(normaliser, 0, lanes.doubled(top))
    lanes.store(normaliser, LANES, log_odds)
    below = (top + bottom) + lanes.rounded(log_odds)
    far = lanes.where_less(below, lanes.spread(LOWEST), lanes.spread(NOTHING), lanes.spread(INFINITE))
    lanes.store(moved, 0, far)


@njit(**COMPILED)
def mark_top(box, step):
    """Write 1 for the reference's top class, the first of equals, and 0 for others."""
    top, found, one = lanes.spread(-INFINITE), lanes.spread(NOTHING), lanes.spread(careful.ONE)
    for at in range(0, box.shape[0], step):
        top = lanes.larger(lanes.load(box, at + REFERENCE), top)
    for at in range(0, box.shape[0], step):
        reference = lanes.load(box, at + REFERENCE)
        is_top = lanes.where_less(reference, top, lanes.spread(NOTHING), one - found)
        lanes.store(box, at + careful.TOP, is_top)
        found = found + is_top


@njit(**COMPILED)
def check_sums(log_totals, normaliser, tolerance, moved):
    """Mark lanes in which the probabilities of one of four members do not sum to 1."""
    for k in range(TILE):
        for lane in range(LANES):
            log_total = normaliser[lane] + normaliser[LANES + lane]
            log_total += np.float64(log_totals[k * LANES + lane])
            if not abs(np.expm1(log_total)) <= tolerance:
                moved[lane] = INFINITE


def adding(arithmetic):
    """Return the loop over classes that adds four members."""
    step, logit, tilted = arithmetic.NARROW_STEP, arithmetic.LOGIT, arithmetic.TILTED
    aligned, limit = arithmetic.ALIGNED, arithmetic.SHIFTED
    grow, terms_of, add_slot, far = arithmetic.grow, arithmetic.terms, arithmetic.add, arithmetic.far

    @named(arithmetic.__name__)
    def add_tile(box, weights, flat, ahead, member_step, moved, log_totals, means):
        """Add four members to the sums; ``moved`` and ``log_totals`` say how far their logits were off.

        ``means`` are sums of what members have one of. Meanwhile fetch into the cache what comes next: for a
        class a line of each member, as many as it has.
        """
        offset = tile.zeros()
        if aligned:
            for at in range(0, box.shape[0], step):
                offset = tile.sums(offset, careful.offsets(tile.four(box, at + logit), box, at))
            shifted = tile.largest(offset)
            before = lanes.load(moved, 0)
            lanes.store(
                moved, 0, lanes.where_less(shifted, lanes.spread(limit), before, lanes.spread(INFINITE))
            )
        w = tile.four(weights, 0)
        totals, tilts = tile.zeros(), tile.zeros()
        for at in range(0, box.shape[0], step):
            for k in range(TILE):
                prefetch(flat, ahead + k * member_step)
            ahead += LANES
            grown = grow(tile.four(box, at + logit), offset, w, box, at)
            totals = tile.sums(totals, grown)
            if tilted:
                tilts = tile.sums(tilts, grown[TILE:])
        terms = (
            terms_of(totals[0], w[0]),
            terms_of(totals[1], w[1]),
            terms_of(totals[2], w[2]),
            terms_of(totals[3], w[3]),
        )
        logs = terms[0][0], terms[1][0], terms[2][0], terms[3][0]
        lanes.store(moved, 0, lanes.larger(far(logs), lanes.load(moved, 0)))
        tile.store_four(log_totals, 0, tile.sums(logs, offset))
        if tilted:
            scales = terms[0][1], terms[1][1], terms[2][1], terms[3][1]
            add_lanes(means, 0, tile.product(scales, tilts))
            add_lanes(means, LANES, tile.product(w, logs))
            add_lanes(means, 2 * LANES, tile.product(w, tile.magnitudes(logs)))
        for at in range(0, box.shape[0], step):
            add_slot(tile.four(box, at + logit), terms, w, box, at)

    return add_tile


@njit(**INLINED)
def add_lanes(sums, place, numbers):
    """Add float32 lanes to float64 ones."""
    lanes.store(sums, place, lanes.load(sums, place) + lanes.doubled(numbers))


def marking(arithmetic):
    """Return what marks lanes in which the first four members agree."""
    step, disagreement = arithmetic.NARROW_STEP, arithmetic.disagreement

    @named(arithmetic.__name__)
    def mark_agreeing(box, weights, means, moved):
        """Mark them as infinitely far moved."""
        w = tile.four(weights, 0)
        share = lanes.spread(np.float32(1.0)) / ((w[0] + w[1]) + (w[2] + w[3]))
        k = lanes.rounded(lanes.load(means, 0)) * share
        for at in range(0, box.shape[0], step):
            k = k + disagreement(box, at, share)
        rough = lanes.spread(np.float32(quick.ROUGH))
        lanes.store(moved, 0, lanes.where_less(rough, k, lanes.load(moved, 0), lanes.spread(INFINITE)))

    return mark_agreeing


def finishing(arithmetic):
    """Return what makes figures of sums."""
    step, parts, figures = arithmetic.NARROW_STEP, arithmetic.PARTS, arithmetic.figures
    tilted = arithmetic.TILTED

    @named(arithmetic.__name__)
    def finish(box, sums, total, normaliser, means, found):
        """Write entropy, K, I and E phi of each lane."""
        share = lanes.spread(1.0) / lanes.load(total, 0)
        top, log_total = lanes.load(normaliser, 0), lanes.load(normaliser, LANES)
        entropy, k, i, apart = lanes.spread(0.0), lanes.spread(0.0), lanes.spread(0.0), lanes.spread(0.0)
        place = 0
        for at in range(0, box.shape[0], step):
            log_q = (lanes.doubled(lanes.load(box, at + REFERENCE)) - top) - log_total
            more = figures(box, at, sums, place, share, log_q)
            entropy, k, i, apart = entropy + more[0], k + more[1], i + more[2], apart + more[3]
            place += parts * LANES
        if tilted:
            t = lanes.load(means, 0) * share
            net = t - lanes.load(means, LANES) * share
            entropy, k, i, apart = entropy - net, k + t, i + net, apart + (net + lanes.spread(1.0))
        tile.store_four(found, 0, (entropy, k, i, apart))

    return finish


def taking(arithmetic, kept):
    """Return the loop over inputs; ``kept``: their sums are kept too."""
    name = f"{arithmetic.__name__}.{'kept' if kept else 'summarised'}"
    step, logit, parts = arithmetic.NARROW_STEP, arithmetic.LOGIT, arithmetic.PARTS
    is_enough, is_careful = arithmetic.is_enough, arithmetic is careful
    add_tile, finish = adding(arithmetic), finishing(arithmetic)
    mark_agreeing = None if is_careful else marking(arithmetic)

    @named(name)
    def add_members(flat, starts, steps, evenly, classes, members, weights, alike, inputs, tolerance, work):
        """Write sums over members for sixteen inputs; False if this arithmetic is for none of them."""
        box, shares, moved, log_totals, means, sums, total, rounded, heaviest, normaliser = work
        count = members.shape[0]
        sums[:] = means[:] = 0.0
        tile.clear(box, step, parts)
        if alike:
            total[:] = count * weights[0, 0]
            rounded[:] = count
            shares[:] = np.float32(1.0)
        else:
            weigh(weights, inputs, total, rounded, heaviest)
            load(flat, starts + heaviest * steps[0], 0, steps, False, classes, step, box, logit)
            set_reference(box, step, logit, 1, normaliser, moved)
            if is_careful:
                mark_top(box, step)
        for first in range(0, count, TILE):
            for k in range(TILE):  # the last member stands for those that are not there
                shift = members[min(first + k, count - 1)] * steps[0]
                load(flat, starts, shift, steps, evenly, classes, step, box, logit + k * LANES)
            if alike and first == 0:
                set_reference(box, step, logit, min(TILE, count), normaliser, moved)
                if is_careful:
                    mark_top(box, step)
            if alike and first + TILE > count:
                shares[(count - first) * LANES :] = NOTHING
            elif not alike:
                set_weights(weights, inputs, members, first, total, shares)
            # After the last members of these inputs come the first of the next ones.
            ahead = LANES * steps[1] if first + TILE >= count else members[first + TILE] * steps[0]
            add_tile(box, shares, flat, starts[0] + ahead, steps[0], moved, log_totals, means)
            if tolerance < np.inf:
                check_sums(log_totals, normaliser, tolerance, moved)
            if not is_careful and alike and first == 0 and count > 2 * TILE:
                mark_agreeing(box, shares, means, moved)
                if np.min(moved) == np.inf:
                    return False
            if (first + TILE) % CHUNK == 0:
                tile.flush(box, step, parts, sums)
        tile.flush(box, step, parts, sums)
        return True

    @named(name)
    def take(flat, origin, steps, shape, weights, tolerance, chosen, claimed, out, state):
        """Write entropy, K and I of chosen inputs to ``out``; return those that this is not enough for."""
        classes = shape[1]
        box, shares = lanes.aligned_zeros(classes * step), lanes.aligned_zeros(TILE * LANES)
        moved, log_totals = lanes.aligned_zeros(LANES), lanes.aligned_zeros(TILE * LANES)
        sums, total, rounded = np.empty(classes * parts * LANES), np.empty(LANES), np.empty(LANES)
        heaviest, starts = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
        means, normaliser, found = np.empty(3 * LANES), np.empty(2 * LANES), np.zeros(4 * LANES)
        work = (box, shares, moved, log_totals, means, sums, total, rounded, heaviest, normaliser)
        room, fits = room_for_lanes(classes if kept else 0), np.empty(LANES, np.bool_)
        rejected, count = np.empty(chosen.shape[0], np.int64), 0
        members, alike = members_of(weights), weights.strides[0] == 0 and weights.strides[1] == 0
        tile.spread_out(members)
        own = claim(chosen, claimed, CLAIM)
        while own.shape[0] > 0:
            for first in range(0, own.shape[0], LANES):
                inputs = own[first : first + LANES]
                evenly = spread_inputs(origin, steps[1], inputs, starts)
                if add_members(
                    flat, starts, steps, evenly, classes, members, weights, alike, inputs, tolerance, work
                ):
                    finish(box, sums, rounded, normaliser, means, found)
                for lane in range(inputs.shape[0]):
                    b, entropy, k = inputs[lane], found[lane], found[LANES + lane]
                    i, apart = found[2 * LANES + lane], found[3 * LANES + lane]
                    mean = means[2 * LANES + lane] / rounded[lane]
                    fits[lane] = is_enough(entropy, k, i, apart, moved[lane], mean, rounded[lane])
                    if fits[lane]:
                        out[0, b], out[1, b], out[2, b] = entropy, k, i
                    else:
                        rejected[count] = b
                        count += 1
                if kept and np.any(fits[: inputs.shape[0]]):
                    given = (box, step, parts, sums, rounded, total, found, is_careful)
                    keep_lanes(inputs, fits, *given, state, room)
            own = claim(chosen, claimed, CLAIM)
        return rejected[:count]

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
    """Do as ``wide_single.summarise``."""
    given = (flat, origin, steps, shape, weights, tolerance)
    agreeing = np.ones(weights.shape[1], bool) if shape[1] < FEW else None
    left = in_turn(summarise_quickly, summarise_carefully, given, agreeing, out)
    if not left.size:
        return -1
    return narrow.summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out, left)


def accumulate(
    flat, bits, origin, steps, shape, weights, limits, tolerance, agreeing, fresh, references, old, new,
    entropies, rejected,
):  # fmt: skip
    """Do as ``wide_single.accumulate``."""
    given, agreeing = (flat, origin, steps, shape, weights, tolerance), agreeing | (shape[1] < FEW)
    to = np.empty((3, weights.shape[1])), (fresh, references, old, new, entropies)
    rejected[in_turn(accumulate_quickly, accumulate_carefully, given, agreeing, *to)] = True
    return -1
