"""The fused loop for few classes in float32: lanes of inputs, with the arithmetic of ``wide_single``.

What belongs to a class stands in planes of LANES numbers, ``box[(class * PLANES + plane) * LANES + lane]``;
what belongs to an input alone in planes of ``alone``. Two arrays at fixed distances: the compiler then sees
that nothing overlaps. Each lane is judged by itself, so that no input's result hangs on its neighbours.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import narrow
from demur.kernels.arithmetic import (
    COMPILED,
    INLINED,
    ONE,
    cached,
    exp,
    expm1_single,
    larger_size,
    log1p,
    log1p_single,
)  # fmt: skip
from demur.kernels.wide import TILE
from demur.kernels.wide_single import CHUNK, FARTHEST, LOWEST, class_terms, is_enough, relative, third_order

LANES = 64
PLANES = 10
LOGIT, REFERENCE, Q, TOP, E, D, A, U, AU, G = (LANES * plane for plane in range(PLANES))
OFFSET, SHIFT, LOG_SCALE, SCALE, SCALED_SHIFT, WEIGHT = (LANES * plane for plane in range(6))
UNFIT = np.int32(0x7FFFFFFF)  # as bits of |d|: larger than any


@njit(**INLINED)
def load(flat, start, input_step, class_step, lanes, classes, box):
    """Copy one member's logits for some inputs; 0 for lanes without input."""
    for y in range(classes):
        at = np.uintp(y * PLANES * LANES + LOGIT)  # unsigned: no test for negative indices
        begin = start + y * class_step
        for lane in range(lanes):
            box[at + np.uintp(lane)] = flat[np.uintp(begin + lane * input_step)]
        for lane in range(lanes, LANES):
            box[at + np.uintp(lane)] = np.float32(0.0)


@njit(**COMPILED)
def load_reference(flat, start, steps, heaviest, alike, members, lanes, classes, box):
    """Write the mean of a few members' logits, or where weights differ the heaviest member's."""
    few = min(TILE, members) if alike else 1
    for y in range(classes):
        at = y * PLANES * LANES + REFERENCE
        for lane in range(lanes):
            begin = start + lane * steps[1] + y * steps[2] + (0 if alike else heaviest[lane] * steps[0])
            total = np.float32(0.0)
            for member in range(few):
                total += flat[begin + member * steps[0]]
            box[at + lane] = total / np.float32(few)
        for lane in range(lanes, LANES):
            box[at + lane] = np.float32(0.0)


@njit(**COMPILED)
def set_reference(box, log_q, classes, sizes):
    """Normalise the references and mark their top classes; mark the lanes that are not for float32."""
    highest, rest, best = np.empty(LANES), np.zeros(LANES), np.zeros(LANES, np.int64)
    for lane in range(LANES):
        for y in range(classes):
            if (
                box[y * PLANES * LANES + REFERENCE + lane]
                > box[best[lane] * PLANES * LANES + REFERENCE + lane]
            ):
                best[lane] = y
        highest[lane] = box[best[lane] * PLANES * LANES + REFERENCE + lane]
        sizes[lane] = 0
    for y in range(classes):
        for lane in range(LANES):
            below = np.float64(box[y * PLANES * LANES + REFERENCE + lane]) - highest[lane]
            if not LOWEST < below <= 0.0:
                sizes[lane] = UNFIT
            log_q[y, lane] = below
    for y in range(classes):
        for lane in range(LANES):
            odds = exp(log_q[y, lane])
            top = y == best[lane]
            rest[lane] += 0.0 if top else odds
            box[y * PLANES * LANES + Q + lane] = np.float32(odds)
            box[y * PLANES * LANES + TOP + lane] = np.float32(1.0 if top else 0.0)
    for lane in range(LANES):
        highest[lane] = log1p(rest[lane])
    for y in range(classes):
        for lane in range(LANES):
            log_q[y, lane] -= highest[lane]
            box[y * PLANES * LANES + Q + lane] *= np.float32(1.0 / (1.0 + rest[lane]))


@njit(**INLINED)
def align(box, alone, classes):
    """Write how far the logits of the references' top classes moved."""
    for lane in range(LANES):
        alone[OFFSET + lane] = np.float32(0.0)
    for y in range(classes):
        at = np.uintp(y * PLANES * LANES)
        for lane in range(LANES):
            i = at + np.uintp(lane)
            alone[OFFSET + lane] += box[i + TOP] * (box[i + LOGIT] - box[i + REFERENCE])


@njit(**COMPILED)
def compare(box, alone, classes, sizes):
    """Fill the planes of ``d`` and ``e`` and the shifts, and the bits of the largest ``|d|``."""
    for lane in range(LANES):
        alone[SHIFT + lane] = np.float32(0.0)
    for y in range(classes):
        at = np.uintp(y * PLANES * LANES)
        for lane in range(LANES):
            i = at + np.uintp(lane)
            difference = relative(box[i + LOGIT], box[i + REFERENCE], alone[OFFSET + lane], True)
            growth = expm1_single(difference)
            box[i + D] = difference
            box[i + E] = growth
            sizes[lane] = larger_size(sizes[lane], difference)
            alone[SHIFT + lane] += box[i + Q] * growth


@njit(**INLINED)
def set_terms(alone):
    """Write ``log(1 + shift)``, the weight over ``1 + shift``, and that times ``shift``."""
    for lane in range(LANES):
        shift = alone[SHIFT + lane]
        scale = alone[WEIGHT + lane] / (ONE + shift)
        alone[LOG_SCALE + lane] = log1p_single(shift)
        alone[SCALE + lane] = scale
        alone[SCALED_SHIFT + lane] = scale * shift


@njit(**COMPILED)
def add_member(box, alone, classes):
    """Add one member to the sums of ``w a / q``, ``w u``, ``w a u / q`` and ``w g``."""
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
            box[i + G] += third_order(a, u, weight)


@njit(**COMPILED)
def flush(box, means, classes):
    """Move the sums of a chunk of members to float64."""
    for y in range(classes):
        at = y * PLANES * LANES + A
        for i in range(4 * LANES):
            means[y * 4 * LANES + i] += np.float64(box[at + i])
            box[at + i] = np.float32(0.0)


@njit(**COMPILED)
def weigh(weights, b, lanes, heaviest, total):
    """Write the heaviest member of some inputs and their sum of weights."""
    heaviest[:] = 0
    total[:] = 1.0
    alike = weights.strides[1] == 0
    for lane in range(1 if alike else lanes):
        total[lane] = 0.0
        for member in range(weights.shape[0]):
            total[lane] += weights[member, b + lane]
            if weights[member, b + lane] > weights[heaviest[lane], b + lane]:
                heaviest[lane] = member
    if alike:
        heaviest[:lanes] = heaviest[0]
        total[:lanes] = total[0]


@njit(**INLINED)
def set_weights(weights, b, lanes, total, alone):
    """Write one member's shares of the weight; tell whether it has any."""
    heavy = False
    if weights.strides[0] == 0:
        share = np.float32(weights[b] / total[0])
        alone[WEIGHT : WEIGHT + lanes] = share
        return share > 0.0
    for lane in range(lanes):
        alone[WEIGHT + lane] = np.float32(weights[b + lane] / total[lane])
        heavy = heavy or alone[WEIGHT + lane] > 0.0
    return heavy


@njit(**COMPILED)
def check_sums(box, alone, log_q, classes, lanes, tolerance, sizes):
    """Mark lanes whose probabilities do not sum to 1."""
    for lane in range(lanes):
        for y in range(classes):
            at = y * PLANES * LANES + lane
            if box[at + TOP] > 0.0 and alone[WEIGHT + lane] > 0.0:
                log_total = np.float64(box[at + LOGIT]) - log_q[y, lane] + np.float64(alone[LOG_SCALE + lane])
                if not abs(np.expm1(log_total)) <= tolerance:
                    sizes[lane] = UNFIT


@njit(**COMPILED)
def add_members(flat, start, steps, weights, b, lanes, total, tolerance, classes, work):
    """Write means over members for some inputs, and mark the lanes that float32 cannot hold."""
    member_step, input_step, class_step = steps
    box, alone, log_q, means, sizes = work
    means[:] = 0.0
    for y in range(classes):
        at = y * PLANES * LANES + A
        box[at : at + 4 * LANES] = np.float32(0.0)
    waiting = 0
    for member in range(weights.shape[0]):
        if not set_weights(weights[member], b, lanes, total, alone):
            continue
        load(flat, start + member * member_step, input_step, class_step, lanes, classes, box)
        align(box, alone, classes)
        compare(box, alone, classes, sizes)
        set_terms(alone)
        if tolerance < np.inf:
            check_sums(box, alone, log_q, classes, lanes, tolerance, sizes)
        add_member(box, alone, classes)
        waiting += 1
        if waiting == CHUNK:
            flush(box, means, classes)
            waiting = 0
    flush(box, means, classes)


@njit(**COMPILED)
def finish(work, classes, lanes, parts, out, b, rejected, count):
    """Write entropy, K and I; add the inputs that float32 is not enough for to the rejected."""
    box, _, log_q, means, sizes = work
    parts[:] = 0.0
    for y in range(classes):
        for lane in range(LANES):
            q = np.float64(box[y * PLANES * LANES + Q + lane])
            at = y * 4 * LANES + lane
            a, u, au, g = means[at], means[at + LANES], means[at + 2 * LANES], means[at + 3 * LANES]
            k, i, entropy, apart = class_terms(q, a, u, au, g, log_q[y, lane], True)
            parts[0, lane] += entropy
            parts[1, lane] += k
            parts[2, lane] += i
            parts[3, lane] += apart
    for lane in range(lanes):
        entropy, k, i, apart = parts[0, lane], parts[1, lane], parts[2, lane], parts[3, lane]
        out[0, b + lane], out[1, b + lane], out[2, b + lane] = entropy, k, i
        if not (sizes[lane] < FARTHEST and is_enough(entropy, k, i, apart, True)):
            rejected[count] = b + lane
            count += 1
    return count


@cached
def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` to ``out``; return the first bad input or -1."""
    classes = shape[1]
    box, alone = np.zeros(classes * PLANES * LANES, np.float32), np.zeros(6 * LANES, np.float32)
    log_q, means, parts = np.empty((classes, LANES)), np.empty(classes * 4 * LANES), np.empty((4, LANES))
    sizes, heaviest, total = np.zeros(LANES, np.int32), np.zeros(LANES, np.int64), np.ones(LANES)
    work = (box, alone, log_q, means, sizes)
    rejected, count = np.empty(end - begin, np.int64), 0
    alike = weights.strides[0] == 0 and weights.strides[1] == 0
    for b in range(begin, end, LANES):
        lanes = min(LANES, end - b)
        start = origin + b * steps[1]
        weigh(weights, b, lanes, heaviest, total)
        load_reference(flat, start, steps, heaviest, alike, shape[0], lanes, classes, box)
        alone[WEIGHT : WEIGHT + LANES] = np.float32(0.0)
        set_reference(box, log_q, classes, sizes)
        if np.min(sizes[:lanes]) < UNFIT:
            add_members(flat, start, steps, weights, b, lanes, total, tolerance, classes, work)
        count = finish(work, classes, lanes, parts, out, b, rejected, count)
    return narrow.summarise_inputs(flat, origin, steps, classes, weights, tolerance, rejected[:count], out)
