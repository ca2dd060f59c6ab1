"""The fused loop for few classes in float32: lanes of inputs, with the arithmetic of ``wide_single``.

What belongs to a class stands in planes of LANES numbers, ``box[(class * PLANES + plane) * LANES + lane]``;
what belongs to an input alone in planes of ``alone``. Two arrays at fixed distances: the compiler then sees
that nothing overlaps.

Two classes have one exponential between them, as the reference's top class has ``d = 0``.

With eight classes or more, inputs are first taken without care for what only matters where members agree;
those that need it are collected and taken again, with care, and what float32 cannot hold at all goes to
``narrow``. Each lane is judged by itself, so that no input's result hangs on its neighbours.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import narrow
from demur.kernels.arithmetic import (
    COMPILED,
    EIGHT,
    INLINED,
    ONE,
    cached,
    exp,
    expm1_single,
    larger_size,
    log1p,
    log1p_single,
    prefetch,
    turn_eight,
)  # fmt: skip
from demur.kernels.wide import TILE
from demur.kernels.wide_single import (
    CHUNK,
    FARTHEST,
    LINE,
    LOWEST,
    ROUGH,
    class_terms,
    is_enough,
    keep,
    relative,
    room_to_keep,
    third_order,
)

LANES = 64
PLANES = 9
LOGIT, REFERENCE, Q, E, D, A, U, AU, G = (LANES * plane for plane in range(PLANES))
OFFSET, SHIFT, LOG_SCALE, SCALE, SCALED_SHIFT, WEIGHT, TOP = (LANES * plane for plane in range(7))
UNFIT = np.int32(0x7FFFFFFF)  # as bits of |d|: larger than any
MOVED = np.float32(16.0).view(np.int32)  # bits of how far all logits may move without care
UNSURE = 0.08  # of K or of E phi: an entropy below that is taken with care, where few classes make it up
NOTHING = np.float32(0.0)
FEW = 4  # members that tell whether all agree


@njit(**INLINED)
def load(flat, starts, shift, steps, evenly, lanes, classes, box):
    """Copy one member's logits for some inputs; ``evenly``: these lie one after the other.

    Lanes without input get some of another input, or keep what they had: they have no weight.
    """
    member_step, input_step, class_step = steps
    if class_step == 1 and classes >= EIGHT:
        for lane in range(0, LANES, EIGHT):
            for y in range(0, classes, EIGHT):
                first = min(y, classes - EIGHT)  # the last eight classes may overlap those before
                at = first * PLANES * LANES + LOGIT + lane
                turn_eight(flat, starts, lane, shift + first, member_step, box, at, PLANES * LANES)
        return
    begin = np.uintp(starts[0] + shift)
    whole = lanes == LANES or begin + np.uintp(2 * LANES) <= np.uintp(flat.size)
    if evenly and classes == 2 and class_step == 1 and input_step == 2 and whole:
        second = np.uintp(PLANES * LANES + LOGIT)
        for ahead in range(0, 2 * LANES, LINE):
            prefetch(flat, starts[0] + shift + member_step + ahead)
        for lane in range(LANES):  # a known step: whole registers are loaded and taken apart
            i = begin + np.uintp(2) * np.uintp(lane)
            box[np.uintp(LOGIT) + np.uintp(lane)] = flat[i]
            box[second + np.uintp(lane)] = flat[i + np.uintp(1)]
        return
    for y in range(classes):
        at = np.uintp(y * PLANES * LANES + LOGIT)  # unsigned: no test for negative indices
        if evenly:
            here = starts[0] + shift + y * class_step
            for lane in range(lanes):
                box[at + np.uintp(lane)] = flat[np.uintp(here + lane * input_step)]
        else:
            for lane in range(lanes):
                box[at + np.uintp(lane)] = flat[np.uintp(starts[lane] + shift + y * class_step)]


@njit(**COMPILED)
def load_reference(flat, starts, steps, heaviest, alike, evenly, lanes, members, classes, box):
    """Write the mean of a few members' logits, or where weights differ the heaviest member's."""
    if not alike:
        for y in range(classes):
            at = y * PLANES * LANES + REFERENCE
            for lane in range(LANES):
                box[at + lane] = flat[starts[lane] + y * steps[2] + heaviest[lane] * steps[0]]
        return
    few = min(TILE, members)
    for member in range(few):
        load(flat, starts, member * steps[0], steps, evenly, lanes, classes, box)
        for y in range(classes):
            at = np.uintp(y * PLANES * LANES)
            for lane in range(LANES):
                i = at + np.uintp(lane)
                box[i + REFERENCE] = box[i + LOGIT] + (box[i + REFERENCE] if member else NOTHING)
    for y in range(classes):
        at = np.uintp(y * PLANES * LANES + REFERENCE)
        for lane in range(LANES):
            box[at + np.uintp(lane)] /= np.float32(few)


@njit(**COMPILED)
def set_reference(box, log_q, alone, classes, sizes):
    """Normalise the references and write which their top classes are; mark lanes not for float32."""
    highest, rest, best = np.empty(LANES, np.float32), np.zeros(LANES), np.zeros(LANES, np.int64)
    for lane in range(LANES):
        highest[lane] = box[REFERENCE + lane]
        sizes[lane] = 0
    for y in range(1, classes):
        at = y * PLANES * LANES + REFERENCE
        for lane in range(LANES):
            better = box[at + lane] > highest[lane]
            highest[lane] = box[at + lane] if better else highest[lane]
            best[lane] = y if better else best[lane]
    for y in range(classes):
        at = y * PLANES * LANES
        for lane in range(LANES):
            below = np.float64(box[at + REFERENCE + lane]) - np.float64(highest[lane])
            sizes[lane] = sizes[lane] if LOWEST < below <= 0.0 else UNFIT
            log_q[y, lane] = below
    for y in range(classes):
        at = y * PLANES * LANES
        for lane in range(LANES):
            odds = exp(log_q[y, lane])
            rest[lane] += 0.0 if y == best[lane] else odds
            box[at + Q + lane] = np.float32(odds)
    for lane in range(LANES):
        alone[TOP + lane] = np.float32(best[lane])
        highest[lane] = np.float32(1.0 / (1.0 + rest[lane]))
        rest[lane] = log1p(rest[lane])
    for y in range(classes):
        at = y * PLANES * LANES
        for lane in range(LANES):
            log_q[y, lane] -= rest[lane]
            box[at + Q + lane] *= highest[lane]


@njit(**INLINED)
def align(box, alone, classes, sizes, careful):
    """Write how far the logits of the references' top classes moved."""
    if classes < EIGHT:  # so few that looking at all of them is faster than at one in memory
        for y in range(classes):
            at, number = np.uintp(y * PLANES * LANES), np.float32(y)
            for lane in range(LANES):
                i = at + np.uintp(lane)
                moved = box[i + LOGIT] - box[i + REFERENCE]
                alone[OFFSET + lane] = moved if alone[TOP + lane] == number else alone[OFFSET + lane]
    else:
        for lane in range(LANES):
            at = np.uintp(int(alone[TOP + lane]) * PLANES * LANES + lane)
            alone[OFFSET + lane] = box[at + np.uintp(LOGIT)] - box[at + np.uintp(REFERENCE)]
    if not careful:
        for lane in range(LANES):
            far = larger_size(np.int32(0), alone[OFFSET + lane]) >= MOVED
            sizes[lane] = UNFIT if far else sizes[lane]


def comparison(careful):
    """Return the loop over classes of one member, with or without care."""

    @njit(**COMPILED)
    def compare(box, alone, classes, sizes):
        """Fill the planes of ``d`` and ``e`` and the shifts, and the bits of the largest ``|d|``."""
        for lane in range(LANES):
            alone[SHIFT + lane] = np.float32(0.0)
        for y in range(classes):
            at = np.uintp(y * PLANES * LANES)
            for lane in range(LANES):
                i = at + np.uintp(lane)
                difference = relative(box[i + LOGIT], box[i + REFERENCE], alone[OFFSET + lane], careful)
                growth = expm1_single(difference)
                box[i + D] = difference
                box[i + E] = growth
                sizes[lane] = larger_size(sizes[lane], difference)
                alone[SHIFT + lane] += box[i + Q] * growth

    return compare


@njit(**COMPILED)
def turn_two(box, log_q, alone):
    """Bring the top one of two classes first, and write how far the other is below it, in two parts."""
    second = PLANES * LANES
    for lane in range(LANES):
        if alone[TOP + lane] > 0.0:
            for at in (REFERENCE + lane, Q + lane):
                box[at], box[second + at] = box[second + at], box[at]
            log_q[0, lane], log_q[1, lane] = log_q[1, lane], log_q[0, lane]
        apart = np.float64(box[second + REFERENCE + lane]) - np.float64(box[REFERENCE + lane])
        box[REFERENCE + lane] = np.float32(apart)
        box[second + REFERENCE + lane] = np.float32(apart - np.float64(np.float32(apart)))
        alone[OFFSET + lane], alone[TOP + lane] = alone[TOP + lane], np.float32(0.0)


@njit(**COMPILED)
def compare_two(box, alone, sizes):
    """Do with two classes, carefully, what ``align`` and ``compare`` do with more; the first one has no d."""
    second, none = np.uintp(PLANES * LANES), np.float32(0.0)
    for lane in range(LANES):
        i = np.uintp(lane)
        j = second + i
        # Read first, then chosen: a choice of what to read would not vectorise.
        z_i, z_j = box[i + LOGIT], box[j + LOGIT]
        turned = alone[OFFSET + lane] > none
        top, other = z_j if turned else z_i, z_i if turned else z_j
        # Their difference, and what rounding takes from it.
        apart = other - top
        back = apart - other
        lost = (other - (apart - back)) - (top + back)
        difference = (apart - box[i + REFERENCE]) + (lost - box[j + REFERENCE])
        growth = expm1_single(difference)
        box[j + D] = difference
        box[j + E] = growth
        sizes[lane] = larger_size(sizes[lane], difference)
        alone[SHIFT + lane] = box[j + Q] * growth


@njit(**INLINED)
def set_terms(alone):
    """Write ``log(1 + shift)``, the weight over ``1 + shift``, and that times ``shift``."""
    for lane in range(LANES):
        shift = alone[SHIFT + lane]
        inverse = ONE / (ONE + shift)
        scale = alone[WEIGHT + lane] * inverse
        alone[LOG_SCALE + lane] = log1p_single(shift, inverse)
        alone[SCALE + lane] = scale
        alone[SCALED_SHIFT + lane] = scale * shift


def addition(careful):
    """Return the loop that adds one member, with or without care."""

    @njit(**COMPILED)
    def add_member(box, alone, classes):
        """Add one member to the sums of ``w a / q``, ``w u``, ``w a u / q`` and, with care, ``w g``."""
        for y in range(classes):
            at = np.uintp(y * PLANES * LANES)
            for lane in range(LANES):
                i = at + np.uintp(lane)
                weight = alone[WEIGHT + lane]
                u = box[i + D] - alone[LOG_SCALE + lane]
                a = box[i + E] * alone[SCALE + lane] - alone[SCALED_SHIFT + lane]
                box[i + A] += a
                box[i + U] += weight * u
                box[i + AU] += a * u
                if careful:
                    box[i + G] += third_order(a, u, weight)

    return add_member


@njit(**COMPILED)
def widest(box, alone, classes, square, spread):
    """Keep the largest mean of ``u**2`` under the reference of each lane: of the order of K."""
    square[:] = np.float32(0.0)
    for y in range(classes):
        at = np.uintp(y * PLANES * LANES)
        for lane in range(LANES):
            i = at + np.uintp(lane)
            u = box[i + D] - alone[LOG_SCALE + lane]
            square[lane] += box[i + Q] * (u * u)
    for lane in range(LANES):
        spread[lane] = square[lane] if square[lane] > spread[lane] else spread[lane]


@njit(**COMPILED)
def flush(box, means, classes):
    """Move the sums of a chunk of members to float64."""
    for y in range(classes):
        at = y * PLANES * LANES + A
        for i in range(4 * LANES):
            means[y * 4 * LANES + i] += np.float64(box[at + i])
            box[at + i] = np.float32(0.0)


@njit(**COMPILED)
def weigh(weights, inputs, heaviest, total):
    """Write the heaviest member of some inputs and their sum of weights."""
    heaviest[:] = 0
    total[:] = 1.0
    alike = weights.strides[1] == 0
    for lane in range(1 if alike else inputs.shape[0]):
        total[lane] = 0.0
        for member in range(weights.shape[0]):
            total[lane] += weights[member, inputs[lane]]
            if weights[member, inputs[lane]] > weights[heaviest[lane], inputs[lane]]:
                heaviest[lane] = member
    if alike:
        heaviest[: inputs.shape[0]] = heaviest[0]
        total[: inputs.shape[0]] = total[0]


@njit(**INLINED)
def set_weights(weights, inputs, total, alone):
    """Write one member's shares of the weight; tell whether it has any."""
    heavy = False
    if weights.strides[0] == 0:
        share = np.float32(weights[0] / total[0])
        alone[WEIGHT : WEIGHT + inputs.shape[0]] = share
        return share > 0.0
    for lane in range(inputs.shape[0]):
        alone[WEIGHT + lane] = np.float32(weights[inputs[lane]] / total[lane])
        heavy = heavy or alone[WEIGHT + lane] > 0.0
    return heavy


@njit(**COMPILED)
def check_sums(box, alone, log_q, lanes, tolerance, sizes, turned):
    """Mark lanes whose probabilities do not sum to 1; ``turned``: see ``turn_two``."""
    for lane in range(lanes):
        if alone[WEIGHT + lane] > 0.0:
            y = int(alone[TOP + lane])
            at = (int(alone[OFFSET + lane]) if turned else y) * PLANES * LANES
            log_total = np.float64(box[at + LOGIT + lane]) - log_q[y, lane]
            log_total += np.float64(alone[LOG_SCALE + lane])
            if not abs(np.expm1(log_total)) <= tolerance:
                sizes[lane] = UNFIT


def adding(careful):
    """Return the loop over members, with or without care for what only matters where they agree."""
    compare, add_member = comparison(careful), addition(careful)

    @njit(inline="always", **COMPILED)
    def add_members(flat, starts, steps, evenly, weights, inputs, total, tolerance, classes, work):
        """Write means over members for some inputs, and mark the lanes that this loop cannot hold."""
        box, alone, log_q, means, sizes, square, spread = work
        lanes = inputs.shape[0]
        means[:] = 0.0
        spread[:] = np.float32(0.0)
        alone[WEIGHT : WEIGHT + LANES] = np.float32(0.0)
        for y in range(classes):
            at = y * PLANES * LANES + A
            box[at : at + 4 * LANES] = np.float32(0.0)
        waiting, seen = 0, 0
        alike = weights.strides[0] == 0 and weights.strides[1] == 0
        for member in range(weights.shape[0]):
            if (member == 0 or not alike) and not set_weights(weights[member], inputs, total, alone):
                continue
            load(flat, starts, member * steps[0], steps, evenly, lanes, classes, box)
            two = careful and classes == 2
            if two:
                compare_two(box, alone, sizes)
            else:
                align(box, alone, classes, sizes, careful)
                compare(box, alone, classes, sizes)
            set_terms(alone)
            if tolerance < np.inf:
                check_sums(box, alone, log_q, lanes, tolerance, sizes, two)
            if not careful and seen < FEW:
                widest(box, alone, classes, square, spread)
                seen += 1
                if seen == FEW:
                    for lane in range(lanes):
                        sizes[lane] = UNFIT if spread[lane] < 3.0 * ROUGH else sizes[lane]
                    if np.min(sizes[:lanes]) == UNFIT:
                        return
            add_member(box, alone, classes)
            waiting += 1
            if waiting == CHUNK:
                flush(box, means, classes)
                waiting = 0
        flush(box, means, classes)

    return add_members


@njit(**COMPILED)
def finish(work, classes, inputs, careful, parts, out, rejected, count):
    """Write entropy, K and I; mark the lanes that this was not enough for, and add them to the rejected."""
    box, _, log_q, means, sizes, _, _ = work
    parts[:] = 0.0
    for y in range(classes):
        for lane in range(LANES):
            q = np.float64(box[y * PLANES * LANES + Q + lane])
            at = y * 4 * LANES + lane
            a, u, au, g = means[at], means[at + LANES], means[at + 2 * LANES], means[at + 3 * LANES]
            entropy, k, i, apart = class_terms(q, a, u, au, g, log_q[y, lane], careful)
            parts[0, lane] += entropy
            parts[1, lane] += k
            parts[2, lane] += i
            parts[3, lane] += apart
    for lane in range(inputs.shape[0]):
        entropy, k, i, apart = parts[0, lane], parts[1, lane], parts[2, lane], parts[3, lane]
        b = inputs[lane]
        out[0, b], out[1, b], out[2, b] = entropy, k, i
        sure = careful or entropy > UNSURE * max(k, apart)
        if not (sizes[lane] < FARTHEST and sure and is_enough(entropy, k, i, apart, careful)):
            rejected[count] = b
            count += 1
            sizes[lane] = UNFIT
    return count


@njit(**COMPILED)
def keep_all(work, classes, inputs, total, careful, entropy, state):
    """Write the sums of all inputs that are not marked."""
    room = room_to_keep(classes)
    _, alone, log_q, means, sizes, _, _ = work
    own, own_log_q = np.empty((4, classes)), np.empty(classes)
    two = careful and classes == 2
    for lane in range(inputs.shape[0]):
        if sizes[lane] == UNFIT:
            continue
        turned = two and alone[OFFSET + lane] > 0.0  # see ``turn_two``
        for y in range(classes):
            to = 1 - y if turned else y
            own_log_q[to] = log_q[y, lane]
            for part in range(4):
                own[part, to] = means[(y * 4 + part) * LANES + lane]
        keep(inputs[lane], own, own_log_q, total[lane], entropy[lane], careful, state, room)


def taking(careful, kept):
    """Return the loop over inputs, with or without care; ``kept``: their sums are kept too."""
    add_all = adding(careful)

    @njit(inline="always", **COMPILED)
    def take(flat, origin, steps, shape, weights, tolerance, chosen, out, state):
        """Write entropy, K and I of chosen inputs to ``out``; return those that this is not enough for."""
        members, classes = shape
        box, alone = np.zeros(classes * PLANES * LANES, np.float32), np.zeros(7 * LANES, np.float32)
        log_q, means, parts = np.empty((classes, LANES)), np.empty(classes * 4 * LANES), np.empty((4, LANES))
        sizes, heaviest, total = np.zeros(LANES, np.int32), np.zeros(LANES, np.int64), np.ones(LANES)
        starts = np.zeros(LANES, np.int64)
        square, spread = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
        work = (box, alone, log_q, means, sizes, square, spread)
        rejected, count = np.empty(chosen.shape[0], np.int64), 0
        alike = weights.strides[0] == 0 and weights.strides[1] == 0
        for first in range(0, chosen.shape[0], LANES):
            inputs = chosen[first : first + LANES]
            lanes = inputs.shape[0]
            narrow.locate(origin, steps[1], inputs, starts)
            starts[lanes:] = starts[0]
            weigh(weights, inputs, heaviest, total)
            evenly = inputs[lanes - 1] - inputs[0] == lanes - 1
            load_reference(flat, starts, steps, heaviest, alike, evenly, lanes, members, classes, box)
            set_reference(box, log_q, alone, classes, sizes)
            if careful and classes == 2:
                turn_two(box, log_q, alone)
            if np.min(sizes[:lanes]) < UNFIT:
                add_all(flat, starts, steps, evenly, weights, inputs, total, tolerance, classes, work)
            count = finish(work, classes, inputs, careful, parts, out, rejected, count)
            if kept:
                keep_all(work, classes, inputs, total, careful, parts[0], state)
        return rejected[:count]

    return take


take, take_carefully = taking(careful=False, kept=False), taking(careful=True, kept=False)
add, add_carefully = taking(careful=False, kept=True), taking(careful=True, kept=True)


# One entry each, compiled when it is first needed: all at once, a first call would wait far longer.
@cached
def summarise_quickly(flat, origin, steps, shape, weights, tolerance, chosen, out):
    """Call ``take`` without care."""
    return take(flat, origin, steps, shape, weights, tolerance, chosen, out, None)


@cached
def summarise_carefully(flat, origin, steps, shape, weights, tolerance, chosen, out):
    """Call ``take`` with care."""
    return take_carefully(flat, origin, steps, shape, weights, tolerance, chosen, out, None)


@cached
def accumulate_quickly(flat, origin, steps, shape, weights, tolerance, chosen, out, state):
    """Call ``add`` without care."""
    return add(flat, origin, steps, shape, weights, tolerance, chosen, out, state)


@cached
def accumulate_carefully(flat, origin, steps, shape, weights, tolerance, chosen, out, state):
    """Call ``add`` with care."""
    return add_carefully(flat, origin, steps, shape, weights, tolerance, chosen, out, state)


def in_turn(quickly, carefully, given, begin, end, *to):
    """Take inputs ``begin`` to ``end``, without care and then with it; return those left over."""
    chosen = np.arange(begin, end)
    if given[3][1] >= EIGHT:  # with fewer classes most inputs need the care
        chosen = quickly(*given, chosen, *to)
    return carefully(*given, chosen, *to) if chosen.size else chosen


def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` to ``out``; return the first bad input or -1."""
    given = (flat, origin, steps, shape, weights, tolerance)
    left = in_turn(summarise_quickly, summarise_carefully, given, begin, end, out)
    if not left.size:
        return -1
    return narrow.summarise_inputs(flat, origin, steps, shape[1], weights, tolerance, left, out)


def accumulate(
    flat, bits, origin, steps, shape, weights, limits, tolerance, begin, end, fresh, references, old, new,
    entropies, rejected,
):  # fmt: skip
    """Do as ``wide_single.accumulate``."""
    given = (flat, origin, steps, shape, weights, tolerance)
    to = np.empty((3, references.shape[0])), (fresh, references, old, new, entropies)
    rejected[in_turn(accumulate_quickly, accumulate_carefully, given, begin, end, *to)] = True
    return -1
