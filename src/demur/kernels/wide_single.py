"""The fused loop for many classes in float32: twice as many numbers in a register as ``wide`` has.

The same sums relative to a reference, ``d`` from differences of logits, ``e = expm1(d)``, so that float32
rounds each term relative to itself. Only ``phi = (1 + a) u - a`` would lose digits where members agree: there
``phi = a u / 2 + g(u)`` with ``g`` of third order, ``u**3 / 12 + u**4 / 24 + ...``, takes its place. What
float32 cannot hold to about 1e-6 of K, I, M and the entropy goes to ``wide``, input by input.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math

import numpy as np
from numba import njit

from demur.kernels import wide
from demur.kernels.arithmetic import (
    COMPILED,
    INLINED,
    add_in_any_order,
    add_single_in_any_order,
    cached,
    exp,
    expm1,
    expm1_single,
    larger_size,
    log1p,
    prefetch,
)  # fmt: skip
from demur.kernels.wide import TILE, chosen, row_of

LOWEST = -60.0  # of the reference's log-probability below its top class
FARTHEST = np.float32(80.0).view(np.int32)  # bits of the largest |d| whose exponential is a float32
MOVED = np.float32(4.0).view(np.int32)  # bits of how far all logits may move without taking digits from d
ROUGH = 0.03  # of K, from which phi needs no third order
CANCELLED = 0.1  # of K or of E phi: I and M below that are differences of larger numbers
CERTAIN = 0.05  # and so is an entropy below that
LINE = 16  # numbers in a line of the cache
CHUNK = 32  # members added up in float32 before their sums go to float64

HALF = np.float32(1 / 2)
TWELFTH = np.float32(1 / 12)
FIFTH_ORDER = np.float32(-1 / 720)
NEAR = np.float32(0.06)  # of u**2


def comparison(exactly):
    """Return the loop over classes; ``exactly`` puts back what rounding takes from a difference of logits."""

    @njit(**INLINED)
    def compare(row, reference, q, offset, e, d):
        """Fill ``d`` and ``e = expm1(d)``; return ``sum(q e)`` and the bits of the largest ``|d|``."""
        shift = np.float32(0.0)
        farthest = np.int32(0)
        for y in range(q.shape[0]):
            difference = relative(row[y], reference[y], offset, exactly)
            growth = expm1_single(difference)
            d[y] = difference
            e[y] = growth
            farthest = larger_size(farthest, difference)
            shift = add_single_in_any_order(shift, q[y] * growth)
        return shift, farthest

    return compare


@njit(**INLINED)
def relative(logit, reference, offset, exactly):
    """Return ``(logit - reference) - offset``; ``exactly``: the first difference as if never rounded."""
    apart = logit - reference
    if exactly:
        back = apart - logit
        lost = (logit - (apart - back)) - (reference + back)
        return (apart - offset) + lost
    return apart - offset


compare, compare_exactly = comparison(exactly=False), comparison(exactly=True)


@njit(**INLINED)
def third_order(a, u, weight):
    """Return the weight times ``g(u) = phi - a u / 2``; ``a`` carries the weight already."""
    square = u * u
    near = (a * square) * (square * FIFTH_ORDER + TWELFTH)
    direct = (weight * u - a) + (a * u) * HALF
    return near if square < NEAR else direct


@njit(**INLINED)
def add_tile(e, d, terms, sums, classes):
    """Add four members to the sums of ``w a / q``, ``w u`` and ``w a u / q``."""
    s0, s1, s2, s3 = terms[0, 0], terms[0, 1], terms[0, 2], terms[0, 3]
    c0, c1, c2, c3 = terms[1, 0], terms[1, 1], terms[1, 2], terms[1, 3]
    l0, l1, l2, l3 = terms[2, 0], terms[2, 1], terms[2, 2], terms[2, 3]
    w0, w1, w2, w3 = terms[3, 0], terms[3, 1], terms[3, 2], terms[3, 3]
    for y in range(classes):
        u0 = d[0, y] - l0
        u1 = d[1, y] - l1
        u2 = d[2, y] - l2
        u3 = d[3, y] - l3
        a0 = e[0, y] * s0 - c0
        a1 = e[1, y] * s1 - c1
        a2 = e[2, y] * s2 - c2
        a3 = e[3, y] * s3 - c3
        sums[0, y] += (a0 + a1) + (a2 + a3)
        sums[1, y] += (w0 * u0 + w1 * u1) + (w2 * u2 + w3 * u3)
        sums[2, y] += (a0 * u0 + a1 * u1) + (a2 * u2 + a3 * u3)


@njit(**INLINED)
def add_third_order(e, d, terms, sums, classes):
    """Add four members to the sum of ``w g``."""
    s0, s1, s2, s3 = terms[0, 0], terms[0, 1], terms[0, 2], terms[0, 3]
    c0, c1, c2, c3 = terms[1, 0], terms[1, 1], terms[1, 2], terms[1, 3]
    l0, l1, l2, l3 = terms[2, 0], terms[2, 1], terms[2, 2], terms[2, 3]
    w0, w1, w2, w3 = terms[3, 0], terms[3, 1], terms[3, 2], terms[3, 3]
    for y in range(classes):
        g0 = third_order(e[0, y] * s0 - c0, d[0, y] - l0, w0)
        g1 = third_order(e[1, y] * s1 - c1, d[1, y] - l1, w1)
        g2 = third_order(e[2, y] * s2 - c2, d[2, y] - l2, w2)
        g3 = third_order(e[3, y] * s3 - c3, d[3, y] - l3, w3)
        sums[3, y] += (g0 + g1) + (g2 + g3)


@njit(**INLINED)
def flush(sums, means):
    """Move the sums of a chunk of members to float64."""
    for i in range(means.shape[0]):
        means[i] += np.float64(sums[i])
        sums[i] = np.float32(0.0)


@njit(**INLINED)
def fetch_row(source, start):
    """Bring a row into the cache before it is read: rows lie apart, and each would be waited for."""
    flat, _, class_step, row, _ = source
    if class_step == 1:
        for y in range(0, row.shape[0], LINE):
            prefetch(flat, start + y)


@njit(**COMPILED)
def load_reference(source, start, member_step, heaviest, alike, members, reference):
    """Write the mean of a few members' logits, or where weights differ the heaviest member's.

    A reference in their midst keeps the terms small that sums are made of.
    """
    row, _ = row_of(source, start + (0 if alike else heaviest) * member_step)
    for y in range(reference.shape[0]):
        reference[y] = row[y]
    if not alike:
        return
    few = min(TILE, members)
    for member in range(1, few):
        row, _ = row_of(source, start + member * member_step)
        for y in range(reference.shape[0]):
            reference[y] += row[y]
    share = np.float32(few)
    for y in range(reference.shape[0]):
        reference[y] /= share


@njit(**COMPILED)
def set_reference(reference, log_q, q):
    """Normalise the reference; return its top class, or -1 if it is not for float32."""
    top = np.argmax(reference)
    highest = np.float64(reference[top])
    rest = 0.0
    lowest = 0.0
    for y in range(q.shape[0]):
        below = np.float64(reference[y]) - highest
        lowest = below if not below >= lowest else lowest
        log_q[y] = below
    if not lowest > LOWEST:
        return -1
    for y in range(q.shape[0]):
        q[y] = np.float32(exp(log_q[y]))
    q[top] = np.float32(0.0)
    for y in range(q.shape[0]):
        rest = add_in_any_order(rest, np.float64(q[y]))
    q[top] = np.float32(1.0)
    normaliser = math.log1p(rest)
    scale = np.float32(1.0 / (1.0 + rest))
    for y in range(q.shape[0]):
        log_q[y] -= normaliser
        q[y] *= scale
    return top


@njit(**COMPILED)
def mean_square(d, log_scale, q):
    """Return the mean of ``u**2`` under the reference: of the order of K, for one of its members."""
    square = 0.0
    for y in range(q.shape[0]):
        u = np.float64(d[y] - log_scale)
        square = add_in_any_order(square, np.float64(q[y]) * (u * u))
    return square


@njit(**COMPILED)
def add_members(source, start, member_step, members, weights, total, tolerance, prepared, work, careful):
    """Write means over the members of one input.

    Return whether float32 can hold them all, and whether ``g`` was needed: ``careful`` asks for it, and the
    first few members do where they agree.
    """
    reference, log_q, q, top = prepared
    e, d, terms, sums, means = work
    in_a_row, in_double = sums.reshape(-1), means.reshape(-1)
    in_a_row[:] = np.float32(0.0)
    in_double[:] = 0.0
    for begin in range(0, members.shape[0], TILE):
        spread = 0.0
        for k in range(TILE):
            if begin + k >= members.shape[0]:
                terms[:, k] = np.float32(0.0)
                continue
            member = members[begin + k]
            fetch_row(source, start + (member + 1) * member_step)
            row, _ = row_of(source, start + member * member_step)
            offset = row[top] - reference[top]
            if careful or begin == 0 or larger_size(np.int32(0), offset) >= MOVED:
                single_shift, farthest = compare_exactly(row, reference, q, offset, e[k], d[k])
            else:
                single_shift, farthest = compare(row, reference, q, offset, e[k], d[k])
            if not farthest < FARTHEST:
                return False, careful
            shift = np.float64(single_shift)
            log_scale = log1p(shift)
            log_total = np.float64(row[top]) - log_q[top] + log_scale
            if tolerance < np.inf and not abs(math.expm1(log_total)) <= tolerance:
                return False, careful
            weight = weights[member] / total
            scale = weight / (1.0 + shift)
            terms[0, k] = np.float32(scale)
            terms[1, k] = np.float32(scale * shift)
            terms[2, k] = np.float32(log_scale)
            terms[3, k] = np.float32(weight)
            if begin == 0:
                spread = max(spread, mean_square(d[k], terms[2, k], q))
        if begin == 0:
            careful = careful or spread < 3.0 * ROUGH
        add_tile(e, d, terms, sums, q.shape[0])
        if careful:
            add_third_order(e, d, terms, sums, q.shape[0])
        if (begin + TILE) % CHUNK == 0:
            flush(in_a_row, in_double)
    flush(in_a_row, in_double)
    return True, careful


@njit(**INLINED)
def class_terms(q, a, u, au, g, log_q, careful):
    """Return one class's terms of the entropy, K, I and E phi; as ``formulas.class_terms``, with ``g``."""
    k = q * (au - a * u)
    of_average = log1p(a)
    phi = au * 0.5 + g if careful else au + u - a
    i = q * (phi - ((1.0 + a) * of_average - a))
    if careful:
        i = 0.5 * (k - q * a * (of_average - u)) + q * (g - (of_average - a + 0.5 * a * of_average))
    return -q * (phi + (1.0 + a) * log_q), k, i, q * phi


@njit(**INLINED)
def is_enough(entropy, k, i, apart, careful):
    """Tell whether float32 sums made these figures without cancelling; ``apart`` is ``E phi``."""
    smallest = 1e-20 if careful else ROUGH
    largest = max(k, apart)
    return k > smallest and min(i, k - i) > CANCELLED * largest and entropy > CERTAIN * largest


@njit(**COMPILED)
def finish(q, log_q, means, careful):
    """Return entropy, K and I from means over members, and whether float32 was enough for them."""
    k, i, entropy, apart = 0.0, 0.0, 0.0, 0.0
    for y in range(q.shape[0]):
        entropy_y, k_y, i_y, apart_y = class_terms(
            np.float64(q[y]), means[0, y], means[1, y], means[2, y], means[3, y], log_q[y], careful
        )
        k = add_in_any_order(k, k_y)
        i = add_in_any_order(i, i_y)
        entropy = add_in_any_order(entropy, entropy_y)
        apart = add_in_any_order(apart, apart_y)
    return entropy, k, i, is_enough(entropy, k, i, apart, careful)


@njit(**COMPILED)
def mean_over_members(source, start, member_step, weights, alike, tolerance, scratch, work):
    """Write the means over one input's members of positive weight, relative to a reference in their midst.

    Return their total weight, entropy, K and I, whether float32 was enough for these, and whether ``g`` was
    needed.
    """
    reference, q, log_q, found = scratch
    members, heaviest = chosen(weights, 0, 1, found)
    total = 0.0
    for member in members:
        total += weights[member]
    entropy, k, i, enough, careful = 0.0, 0.0, 0.0, False, False
    if total == 0.0:
        return total, entropy, k, i, enough, careful
    load_reference(source, start, member_step, heaviest, alike, weights.shape[0], reference)
    top = set_reference(reference, log_q, q)
    prepared = (reference, log_q, q, top)
    while top >= 0 and not enough:
        held, carefully = add_members(
            source, start, member_step, members, weights, total, tolerance, prepared, work, careful
        )
        if held:
            entropy, k, i, enough = finish(q, log_q, work[4], carefully)
        if carefully or not held:
            return total, entropy, k, i, enough, carefully
        careful = True
    return total, entropy, k, i, enough, False


@njit(**COMPILED)
def workspace(count, classes):
    """Allocate what one thread needs; rows are kept off multiples of 4096 bytes, which share cache sets."""
    padded = (classes + 15) // 16 * 16 + 16
    e, d = np.zeros((TILE, padded), np.float32), np.zeros((TILE, padded), np.float32)
    sums, means = np.zeros((4, padded), np.float32), np.zeros((4, padded))
    reference, q, log_q = np.empty(classes, np.float32), np.empty(classes, np.float32), np.empty(classes)
    work = (e, d, np.zeros((4, TILE), np.float32), sums, means)
    return (reference, q, log_q, np.empty(count, np.int64)), work


@njit(**COMPILED)
def moved(means, total, log_q, log_to, careful, sums):
    """Write the sums of members, whose means are relative to one reference, relative to another one."""
    for y in range(log_q.shape[0]):
        m = log_q[y] - log_to[y]
        target = exp(log_to[y])
        growth = expm1(m, m)
        apart = target * growth
        q = target + apart
        a, u, au = q * means[0, y], means[1, y], q * means[2, y]
        phi = 0.5 * au + q * means[3, y] if careful else au + q * u - a
        sums[0, y] = total * (a + apart)
        sums[1, y] = total * (u + m)
        sums[2, y] = total * (au + m * a + apart * u + apart * m)
        sums[3, y] = total * (phi + m * a + target * (m * growth - (growth - m)))


@njit(**COMPILED)
def room_to_keep(classes):
    """Allocate what ``keep`` needs."""
    return np.empty((4, classes)), np.empty(classes), np.empty(classes), np.empty(classes)


@njit(**COMPILED)
def keep(b, means, log_q, total, entropy, careful, state, room):
    """Write the sums of one input, with members added whose means are relative to ``log_q``."""
    fresh, references, old, new, entropies = state
    added, log_to, aligned, to = room
    if fresh:
        top = np.argmax(log_q)
        for y in range(log_q.shape[0]):
            references[b, y] = log_q[y] - log_q[top]
    wide.set_reference(references[b], aligned, log_to, to)
    moved(means, total, log_q, log_to, careful, added)
    entropies[b] += total * entropy
    for part in range(4):
        for y in range(log_q.shape[0]):
            new[part, b, y] = added[part, y] + (0.0 if fresh else old[part][b, y])


@cached
def accumulate(
    flat, bits, origin, steps, shape, weights, limits, tolerance, begin, end, fresh, references, old, new,
    entropies, rejected,
):  # fmt: skip
    """Write the sums of ``old`` (inputs, classes) with members added to ``new``; mark inputs not for float32.

    ``fresh``: there are no sums yet, and each input's reference is set.
    """
    member_step, input_step, class_step = steps
    count, classes = shape
    source, _, _ = wide.workspace(flat, bits, class_step, classes)
    scratch, work = workspace(count, classes)
    state, room = (fresh, references, old, new, entropies), room_to_keep(classes)
    alike = weights.strides[0] == 0 and weights.strides[1] == 0
    for b in range(begin, end):
        start = origin + b * input_step
        total, entropy, _, _, enough, careful = mean_over_members(
            source, start, member_step, weights[:, b], alike, tolerance, scratch, work
        )
        rejected[b] = not enough
        if enough:
            keep(b, work[4], scratch[2], total, entropy, careful, state, room)
    return -1


@cached
def summarise_inputs(flat, bits, origin, steps, shape, weights, tolerance, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` to ``out``; return those not for float32."""
    member_step, input_step, class_step = steps
    count, classes = shape
    source, _, _ = wide.workspace(flat, bits, class_step, classes)
    scratch, work = workspace(count, classes)
    alike = weights.strides[0] == 0 and weights.strides[1] == 0
    rejected, left = np.empty(end - begin, np.int64), 0
    for b in range(begin, end):
        start = origin + b * input_step
        _, out[0, b], out[1, b], out[2, b], enough, _ = mean_over_members(
            source, start, member_step, weights[:, b], alike, tolerance, scratch, work
        )
        if not enough:
            rejected[left] = b
            left += 1
    return rejected[:left]


def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` to ``out``; return the first bad input or -1."""
    left = summarise_inputs(flat, bits, origin, steps, shape, weights, tolerance, begin, end, out)
    # Compiled only when it is needed: that takes seconds.
    given = (flat, bits, origin, steps, shape, weights, limits, tolerance)
    return wide.summarise_inputs(*given, left, out) if left.size else -1
