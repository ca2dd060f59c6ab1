"""The fused loop for many classes: one input at a time, vectorised over its classes.

Everything is relative to a reference distribution ``q``, as ``demur.core.state`` says. With a member's logits
``z`` and the reference's aligned at its top class, ``d = (z - z_top) - aligned`` and ``e = expm1(d)``; with
``shift = sum(q e)``: ``u = d - log1p(shift)`` and ``(p - q) / q = (e - shift) / (1 + shift)``. No step
subtracts nearly equal numbers where members agree, and identical members give exactly 0.

``source`` is one array seen three ways: flat numbers, their bits, and the steps between members and classes.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math

import numpy as np
from numba import njit

from demur.kernels.arithmetic import COMPILED, add_in_any_order, cached, clip, exp, expm1, log1p
from demur.kernels.average import add_probabilities, is_hidden
from demur.kernels.compiled_formulas import class_terms, mean_phi, phi_of_average, settled, where
from demur.kernels.formulas import CLOSE
from demur.kernels.workers import ROWS, find_bad

FLOOR = -690.0  # of the reference's log-probability below its top class: exp(d) then never overflows
FAR = 1e6  # a member this much likelier elsewhere than at the reference's top class is aligned at its own
TAME_REFERENCE = -340.0  # with a reference above this and logits within +-TAME_LOGIT no exponent needs
TAME_LOGIT = 165.0  # clipping: 2 * 165 + 340 < 700
HUGE_LOGIT = 1e5  # beyond, sums of u would swallow what phi is made of: members take the general way
CANCELLED = 1e-3  # of K: an entropy below that comes from members that are certain and contradict each other
TILE = 4  # members whose sums are kept in registers together
SHARE = ROWS


@njit(**COMPILED)
def row_of(source, start):
    """Return one member's logits for one input, and their bits; copied only if the classes lie apart."""
    flat, bits, class_step, row, row_bits = source
    classes = row.shape[0]
    if class_step == 1:
        return flat[start : start + classes], bits[start : start + classes]
    for y in range(classes):
        row[y] = flat[start + y * class_step]
    return row, row_bits


@njit(**COMPILED)
def peak(bits, mask):
    """Return the bits of a row's largest magnitude: as integers they sort like it, infinity and NaN last."""
    highest = bits[0] & mask
    for y in range(bits.shape[0]):
        magnitude = bits[y] & mask
        highest = magnitude if magnitude > highest else highest
    return highest


@njit(**COMPILED)
def first_reference(source, start, member_step, members, heaviest, logits):
    """Copy the heaviest member's logits; classes it excludes come from the first member that allows them."""
    row, _ = row_of(source, start + heaviest * member_step)
    missing = 0
    for y in range(logits.shape[0]):
        logits[y] = row[y]
        missing += logits[y] == -np.inf
    if missing == 0:
        return
    top = np.max(logits)
    for member in members:
        row, _ = row_of(source, start + member * member_step)
        own_top = np.float64(np.max(row))
        for y in range(logits.shape[0]):
            if logits[y] == -np.inf and row[y] > -np.inf:
                logits[y] = (row[y] - own_top) + top


@njit(**COMPILED)
def set_reference(logits, aligned, log_q, q):
    """Align and normalise ``logits`` (-inf: no member allows that class) and return the top class."""
    top = np.argmax(logits)
    highest = logits[top]
    rest = 0.0
    for y in range(logits.shape[0]):
        below = logits[y] - highest
        below = below if below > FLOOR else FLOOR
        aligned[y] = below
        q[y] = exp(below) if logits[y] > -np.inf else 0.0
    q[top] = 0.0
    for y in range(logits.shape[0]):
        rest = add_in_any_order(rest, q[y])
    q[top] = 1.0
    # log1p: where the reference is certain, its top class keeps a log-probability exact relative to itself.
    normaliser = math.log1p(rest)
    for y in range(logits.shape[0]):
        log_q[y] = aligned[y] - normaliser
        q[y] /= 1.0 + rest
    return top


@njit(**COMPILED)
def compare(row, aligned, q, offset, e, d):
    """Fill ``d`` and ``e = expm1(d)`` and return ``sum(q e)``, where all ``d`` are within +-700."""
    shift = 0.0
    for y in range(q.shape[0]):
        difference = (np.float64(row[y]) - offset) - aligned[y]
        growth = expm1(difference, row[y])
        d[y] = difference
        e[y] = growth
        shift = add_in_any_order(shift, q[y] * growth)
    return shift


@njit(**COMPILED)
def compare_far(row, aligned, q, offset, e, d):
    """Do as ``compare`` for any numbers."""
    shift = 0.0
    for y in range(q.shape[0]):
        difference = (np.float64(row[y]) - offset) - aligned[y]
        growth = expm1(clip(difference), row[y])
        d[y] = difference
        e[y] = growth
        shift = add_in_any_order(shift, q[y] * growth)
    return shift


@njit(**COMPILED)
def mark_excluded(row, log_scale, weight, d, sides):
    """Give classes at -inf their terms (``u`` counts as 0); False if the row is none for this loop."""
    allowed = False
    for y in range(row.shape[0]):
        if row[y] == -np.inf:
            d[y] = log_scale
            sides[0, y] += weight
        elif -HUGE_LOGIT <= row[y] <= HUGE_LOGIT:
            sides[1, y] += weight
            allowed = True
        else:
            return False
    return allowed


@njit(**COMPILED)
def entropy_of(row):
    """Return the entropy of one prediction, from the odds of its other classes against the top one."""
    top = np.argmax(row)
    highest = np.float64(row[top])
    rest = 0.0
    weighted = 0.0
    for y in range(row.shape[0]):
        below = clip(np.float64(row[y]) - highest)
        odds = 0.0 if y == top else exp(below)
        rest = add_in_any_order(rest, odds)
        weighted = add_in_any_order(weighted, odds * below)
    return math.log1p(rest) - weighted / (1.0 + rest)


@njit(**COMPILED)
def add_entropies(source, start, member_step, members, weights):
    """Return the weighted sum of members' entropies."""
    total = 0.0
    for member in members:
        row, _ = row_of(source, start + member * member_step)
        total += weights[member] * entropy_of(row)
    return total


@njit(**COMPILED)
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


@njit(**COMPILED)
def add_members(source, start, member_step, members, weights, limits, tolerance, reference, work):
    """Add members of one input to the sums, from 0; False if one of them is no prediction."""
    aligned, log_q, q, top, tame = reference
    e, d, terms, sums, sides = work
    mask, tame_bits, huge_bits, infinity_bits = limits
    sums[:] = 0.0
    sides[:] = 0.0
    everywhere = 0.0
    for begin in range(0, members.shape[0], TILE):
        for k in range(TILE):
            terms[:, k] = 0.0
            if begin + k >= members.shape[0]:
                continue
            member = members[begin + k]
            row, bits = row_of(source, start + member * member_step)
            highest = peak(bits, mask)
            if huge_bits < highest < infinity_bits:
                return False
            offset = np.float64(row[top])
            if tame and highest < tame_bits:
                shift = compare(row, aligned, q, offset, e[k], d[k])
            else:
                shift = compare_far(row, aligned, q, offset, e[k], d[k])
            if not shift < FAR:
                offset = np.float64(np.max(row))
                shift = compare_far(row, aligned, q, offset, e[k], d[k])
            log_total = offset - log_q[top] + math.log1p(shift)
            if tolerance < np.inf and not abs(math.expm1(log_total)) <= tolerance:
                return False
            weight = weights[member]
            terms[0, k] = weight / (1.0 + shift)
            terms[1, k] = terms[0, k] * shift
            terms[2, k] = math.log1p(shift)
            terms[3, k] = weight
            if highest < infinity_bits:
                everywhere += weight
            elif not mark_excluded(row, terms[2, k], weight, d[k], sides):
                return False
        add_tile(e, d, terms, sums, q.shape[0])
    for y in range(q.shape[0]):
        sides[1, y] += everywhere
    return True


@njit(**COMPILED)
def chosen(weights, begin, step, found):
    """List every ``step``-th member of positive weight, from the ``begin``-th on; and the heaviest of all."""
    count = rank = heaviest = 0
    for member in range(weights.shape[0]):
        if weights[member] > 0.0:
            if rank % step == begin:
                found[count] = member
                count += 1
            rank += 1
        if weights[member] > weights[heaviest]:
            heaviest = member
    return found[:count], heaviest


@njit(**COMPILED)
def workspace(flat, bits, class_step, classes):
    """Allocate what one thread needs; rows are kept off multiples of 4096 bytes, which share cache sets."""
    padded = (classes + 7) // 8 * 8 + 8
    row_bits = np.empty(classes, bits.dtype)
    source = (flat, bits, class_step, row_bits.view(flat.dtype), row_bits)
    e, d = np.zeros((TILE, padded)), np.zeros((TILE, padded))
    work = (e, d, np.zeros((4, TILE)), np.zeros((3, padded)), np.zeros((2, classes)))
    return source, work, np.empty((4, classes))


@cached
def first_bad(flat, bits, origin, steps, shape, weights, limits, begin, end):
    """Return the first input with a row that is no prediction or not for this loop, or -1."""
    member_step, input_step, class_step = steps
    source, work, scratch = workspace(flat, bits, class_step, shape[1])
    mask, _, huge_bits, infinity_bits = limits
    for b in range(begin, end):
        for member in range(shape[0]):
            if weights[member, b] > 0.0:
                row, row_bits = row_of(source, origin + b * input_step + member * member_step)
                highest = peak(row_bits, mask)
                if huge_bits < highest < infinity_bits:
                    return b
                if highest >= infinity_bits and not mark_excluded(row, 0.0, 0.0, scratch[0], work[4]):
                    return b
    return -1


@njit(**COMPILED)
def summarise_input(source, start, member_step, members, heaviest, weights, limits, tolerance, scratch, work):
    """Return entropy, K and I of one input, and whether all its members are predictions for this loop."""
    logits, aligned, log_q, q = scratch[0], scratch[1], scratch[2], scratch[3]
    sums, sides = work[3], work[4]
    first_reference(source, start, member_step, members, heaviest, logits)
    top = set_reference(logits, aligned, log_q, q)
    reference = (aligned, log_q, q, top, np.min(aligned) > TAME_REFERENCE)
    entropy, k, i = 0.0, 0.0, 0.0
    if not add_members(source, start, member_step, members, weights, limits, tolerance, reference, work):
        return entropy, k, i, False
    total = 0.0
    for member in members:
        total += weights[member]
    scale = 1.0 / total
    for y in range(q.shape[0]):
        share = q[y] if sides[1, y] > 0.0 else 0.0
        a, u, au = sums[0, y] * scale, sums[1, y] * scale, sums[2, y] * scale
        phi = mean_phi(a, u, au, au < CLOSE and not sides[0, y] > 0.0, where)
        entropy_y, k_y, i_y = class_terms(a, u, au, phi, phi_of_average(a, log1p, where), log_q[y])
        entropy = add_in_any_order(entropy, share * entropy_y)
        k = add_in_any_order(k, share * settled(k_y, au, where))
        i = add_in_any_order(i, share * settled(i_y, au, where))
    for y in range(q.shape[0]):
        if sides[0, y] > 0.0 and sides[1, y] > 0.0:
            k = np.inf
    if entropy < CANCELLED * k:
        entropy = add_entropies(source, start, member_step, members, weights) * scale
    return entropy, k, i, True


@cached
def summarise_inputs(flat, bits, origin, steps, shape, weights, limits, tolerance, inputs, out):
    """Write entropy, K and I of inputs to ``out``; return the first bad input or -1."""
    member_step, input_step, class_step = steps
    source, work, scratch = workspace(flat, bits, class_step, shape[1])
    found = np.empty(shape[0], np.int64)
    for b in inputs:
        own = weights[:, b]
        members, heaviest = chosen(own, 0, 1, found)
        start = origin + b * input_step
        entropy, k, i, good = summarise_input(
            source, start, member_step, members, heaviest, own, limits, tolerance, scratch, work
        )
        if not good:
            return b
        out[0, b], out[1, b], out[2, b] = entropy, k, i
    return -1


def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out, chosen=None):
    """Write entropy, K and I of all or of chosen inputs to ``out``; return the first bad input or -1."""
    given = (flat, bits, origin, steps, shape, weights, limits, tolerance)
    inputs = np.arange(weights.shape[1]) if chosen is None else chosen

    def share(bounds):
        return summarise_inputs(*given, inputs[slice(*bounds)], out)

    return find_bad(share, inputs.size, inputs.size * shape[0] * shape[1], SHARE)


@cached
def accumulate(
    flat,
    bits,
    origin,
    steps,
    shape,
    weights,
    limits,
    tolerance,
    begin,
    end,
    fresh,
    ranks,
    references,
    state,
    entropies,
):
    """Add members to the sums of ``state`` (groups, inputs, classes); return the first bad input or -1."""
    member_step, input_step, class_step = steps
    count, classes = shape
    source, work, scratch = workspace(flat, bits, class_step, classes)
    logits, aligned, log_q, q = scratch[0], scratch[1], scratch[2], scratch[3]
    sums, sides = work[3], work[4]
    found = np.empty(count, np.int64)
    state_a, state_u, state_au, state_phi, state_excluded, state_allowed, state_p = state
    groups = state_a.shape[0]
    for b in range(begin, end):
        start = origin + b * input_step
        own = weights[:, b]
        if fresh:
            members, heaviest = chosen(own, 0, 1, found)
            first_reference(source, start, member_step, members, heaviest, logits)
            top = set_reference(logits, aligned, log_q, q)
            references[b] = aligned
        else:
            top = set_reference(references[b], aligned, log_q, q)
        reference = (aligned, log_q, q, top, np.min(aligned) > TAME_REFERENCE)
        for group in range(groups):
            members, heaviest = chosen(own, (group - ranks[b]) % groups, groups, found)
            if not add_members(source, start, member_step, members, own, limits, tolerance, reference, work):
                return b
            entropies[group, b] += add_entropies(source, start, member_step, members, own)
            total = 0.0
            for member in members:
                total += own[member]
            if groups > 1 and is_hidden(sums[0, :classes], total):
                for member in members:
                    row, _ = row_of(source, start + member * member_step)
                    add_probabilities(row, own[member], state_p[group, b])
            elif groups > 1:
                for y in range(classes):
                    state_p[group, b, y] += q[y] * (total + sums[0, y])
            for y in range(classes):
                a, u, au = sums[0, y], sums[1, y], sums[2, y]
                close = au < CLOSE * total and not sides[0, y] > 0.0
                state_a[group, b, y] += q[y] * a
                state_u[group, b, y] += u
                state_au[group, b, y] += q[y] * au
                state_phi[group, b, y] += q[y] * mean_phi(a, u, au, close, where)
                state_excluded[group, b, y] += sides[0, y]
                state_allowed[group, b, y] += sides[1, y]
    return -1
