"""The fused loop for few classes: many inputs at a time, vectorised over the inputs.

The same arithmetic as ``wide``, with lanes of inputs where that has classes: arrays are (classes, LANES).
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels.arithmetic import COMPILED, INLINED, cached, clip, expm1, log1p
from demur.kernels.average import add_probabilities, is_hidden
from demur.kernels.compiled_formulas import class_terms, mean_phi, phi_of_average, settled, where
from demur.kernels.formulas import CLOSE
from demur.kernels.narrow_reference import LANES, first_reference, load, set_reference
from demur.kernels.wide import CANCELLED, FAR, HUGE_LOGIT, TAME_LOGIT, TAME_REFERENCE, entropy_of
from demur.kernels.workers import find_bad

SHARE = LANES


@njit(**COMPILED)
def compare(z, aligned, q, offset, like, e, d, shift):
    """Fill ``d``, ``e = expm1(d)`` and ``shift = sum(q e)``, where all ``d`` are within +-700."""
    shift[:] = 0.0
    for y in range(z.shape[0]):
        for lane in range(LANES):
            difference = (z[y, lane] - offset[lane]) - aligned[y, lane]
            growth = expm1(difference, like)
            d[y, lane] = difference
            e[y, lane] = growth
            shift[lane] += q[y, lane] * growth


@njit(**COMPILED)
def compare_far(z, aligned, q, offset, like, e, d, shift):
    """Do as ``compare`` for any numbers."""
    shift[:] = 0.0
    for y in range(z.shape[0]):
        for lane in range(LANES):
            difference = (z[y, lane] - offset[lane]) - aligned[y, lane]
            growth = expm1(clip(difference), like)
            d[y, lane] = difference
            e[y, lane] = growth
            shift[lane] += q[y, lane] * growth


@njit(**COMPILED)
def realign(z, offset, shift):
    """Align at their own top class the lanes whose member is far from the reference; tell if any is."""
    moved = False
    for lane in range(LANES):
        if not shift[lane] < FAR:
            offset[lane] = np.max(z[:, lane])
            moved = True
    return moved


@njit(**COMPILED)
def mark_excluded(z, lanes, log_scale, weight, d, sides):
    """Give classes at -inf their terms; return the first lane that is none for this loop, or -1."""
    for lane in range(lanes):
        allowed = False
        for y in range(z.shape[0]):
            if z[y, lane] == -np.inf:
                d[y, lane] = log_scale[lane]
                sides[0, y, lane] += weight[lane]
            elif -HUGE_LOGIT <= z[y, lane] <= HUGE_LOGIT:
                sides[1, y, lane] += weight[lane]
                allowed = True
            elif weight[lane] > 0.0:
                return lane
        if not allowed and weight[lane] > 0.0:
            return lane
    return -1


@njit(**COMPILED)
def set_terms(shift, weight, terms):
    """Write ``log(1 + shift)``, the weight over ``1 + shift``, and that times ``shift``."""
    for lane in range(LANES):
        terms[0, lane] = log1p(shift[lane])
        terms[1, lane] = weight[lane] / (1.0 + shift[lane])
        terms[2, lane] = terms[1, lane] * shift[lane]


@njit(**COMPILED)
def add_member(e, d, terms, weight, sums):
    """Add one member to the sums of ``w a / q``, ``w u`` and ``w a u / q``."""
    for y in range(e.shape[0]):
        for lane in range(LANES):
            u = d[y, lane] - terms[0, lane]
            a = e[y, lane] * terms[1, lane] - terms[2, lane]
            sums[0, y, lane] += a
            sums[1, y, lane] += weight[lane] * u
            sums[2, y, lane] += a * u


@njit(**COMPILED)
def add_members(
    flat, starts, steps, weights, inputs, lanes, begin, step, tolerance, reference, work, sums, sides
):
    """Add every ``step``-th member of positive weight to the sums; return the first bad lane, or -1."""
    member_step, _, class_step = steps
    aligned, log_q, q, top = reference
    tame = np.min(aligned) > TAME_REFERENCE
    z, e, d, terms, offset, shift, weight, everywhere, total = work
    in_a_row = z.reshape(-1)
    sums[:] = 0.0
    sides[:] = 0.0
    everywhere[:] = 0.0
    total[:] = 0.0
    offset[lanes:] = 0.0
    weight[lanes:] = 0.0
    rank = 0
    for member in range(weights.shape[0]):
        if step > 1:  # then weights are the same for all inputs
            if not weights[member, inputs[0]] > 0.0:
                continue
            rank += 1
            if (rank - 1) % step != begin:
                continue
        if weights.strides[1] == 0:
            weight[:lanes] = weights[member, inputs[0]]
        else:
            for lane in range(lanes):
                weight[lane] = weights[member, inputs[lane]]
        squares = load(flat, starts, member * member_step, class_step, lanes, z)
        for lane in range(lanes):
            if (
                not weight[lane] > 0.0
            ):  # as the reference, it adds nothing; as it is, perhaps 0 times infinity
                z[:, lane] = aligned[:, lane]
            offset[lane] = in_a_row[np.uintp(top[lane] * LANES + lane)]
        if tame and squares < TAME_LOGIT**2:
            compare(z, aligned, q, offset, flat[0], e, d, shift)
        else:
            compare_far(z, aligned, q, offset, flat[0], e, d, shift)
        if realign(z, offset, shift):
            compare_far(z, aligned, q, offset, flat[0], e, d, shift)
        set_terms(shift, weight, terms)
        if tolerance < np.inf:
            for lane in range(lanes):
                log_total = offset[lane] - log_q[top[lane], lane] + terms[0, lane]
                if weight[lane] > 0.0 and not abs(np.expm1(log_total)) <= tolerance:
                    return lane
        if squares < HUGE_LOGIT**2:
            for lane in range(lanes):
                everywhere[lane] += weight[lane]
        else:
            bad = mark_excluded(z, lanes, terms[0], weight, d, sides)
            if bad >= 0:
                return bad
        add_member(e, d, terms, weight, sums)
        for lane in range(LANES):
            total[lane] += weight[lane]
    for y in range(z.shape[0]):
        for lane in range(lanes):
            sides[1, y, lane] += everywhere[lane]
    return -1


@njit(**COMPILED)
def add_one_by_one(flat, start, steps, weights, begin, step, row, p):
    """Return the weighted sum of entropies over every ``step``-th member of positive weight, of one input.

    Their probabilities are added to ``p``, if it has room for them.
    """
    member_step, _, class_step = steps
    total = 0.0
    rank = 0
    for member in range(weights.shape[0]):
        if weights[member] > 0.0:
            if rank % step == begin:
                for y in range(row.shape[0]):
                    row[y] = flat[start + member * member_step + y * class_step]
                total += weights[member] * entropy_of(row)
                if p.shape[0] > 0:
                    add_probabilities(row, weights[member], p)
            rank += 1
    return total


@njit(**COMPILED)
def workspace(classes):
    """Allocate what one thread needs."""
    box = (classes, LANES)
    work = (
        np.zeros(box), np.zeros(box), np.zeros(box), np.zeros((3, LANES)),
        np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES),
    )  # fmt: skip
    return work, np.zeros((3, classes, LANES)), np.zeros((2, classes, LANES)), np.zeros(LANES, np.int64)


@njit(**COMPILED)
def locate(origin, input_step, inputs, starts):
    """Write where the numbers of each input start."""
    for lane in range(inputs.shape[0]):
        starts[lane] = origin + inputs[lane] * input_step


@njit(**COMPILED)
def set_parts(sums, sides, total, lanes, log_q, q, parts):
    """Write entropy, K, I and E phi from sums; where only some members exclude a class, K is infinite."""
    parts[:] = 0.0
    for y in range(q.shape[0]):
        for lane in range(LANES):
            scale = 1.0 / total[lane] if total[lane] > 0.0 else 1.0
            share = q[y, lane] if lane >= lanes or sides[1, y, lane] > 0.0 else 0.0
            a, u, au = sums[0, y, lane] * scale, sums[1, y, lane] * scale, sums[2, y, lane] * scale
            phi = mean_phi(a, u, au, au < CLOSE and not sides[0, y, lane] > 0.0, where)
            entropy, k, i = class_terms(a, u, au, phi, phi_of_average(a, log1p, where), log_q[y, lane])
            # A class that only members added before allow has no p here, but the reference's q in these two.
            parts[0, lane] += q[y, lane] * entropy
            parts[3, lane] += q[y, lane] * phi
            parts[1, lane] += share * settled(k, au, where)
            parts[2, lane] += share * settled(i, au, where)
    for y in range(q.shape[0]):
        for lane in range(lanes):
            if sides[0, y, lane] > 0.0 and sides[1, y, lane] > 0.0:
                parts[1, lane] = np.inf


@njit(**INLINED)
def cancels(parts, lane):
    """Tell whether the entropy is what is left of larger numbers."""
    return not parts[0, lane] >= CANCELLED * max(parts[1, lane], parts[3, lane])


@cached
def summarise_inputs(flat, origin, steps, classes, weights, tolerance, chosen, out):
    """Write entropy, K and I of chosen inputs to ``out``; return the first bad input or -1."""
    work, sums, sides, top = workspace(classes)
    box = (classes, LANES)
    logits, aligned, log_q, q = np.empty(box), np.empty(box), np.empty(box), np.empty(box)
    parts, row, total = np.empty((4, LANES)), np.empty(classes, flat.dtype), work[-1]
    starts, nowhere = np.empty(LANES, np.int64), np.empty(0)
    for b in range(0, chosen.shape[0], LANES):
        inputs = chosen[b : b + LANES]
        lanes = inputs.shape[0]
        locate(origin, steps[1], inputs, starts)
        first_reference(flat, starts, steps, weights, inputs, lanes, logits, work[0])
        set_reference(logits, aligned, log_q, q, top)
        reference = (aligned, log_q, q, top)
        bad = add_members(
            flat, starts, steps, weights, inputs, lanes, 0, 1, tolerance, reference, work, sums, sides
        )
        if bad >= 0:
            return inputs[bad]
        set_parts(sums, sides, total, lanes, log_q, q, parts)
        for lane in range(lanes):
            if cancels(parts, lane):
                own = weights[:, inputs[lane]]
                entropy = add_one_by_one(flat, starts[lane], steps, own, 0, 1, row, nowhere)
                parts[0, lane] = entropy / total[lane]
            for part in range(3):
                out[part, inputs[lane]] = parts[part, lane]
    return -1


def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out, chosen=None):
    """Write entropy, K and I of all or of chosen inputs to ``out``; return the first bad input or -1."""
    given = (flat, origin, steps, shape[1], weights, tolerance)
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
    classes = shape[1]
    work, sums, sides, top = workspace(classes)
    box = (classes, LANES)
    logits, aligned, log_q, q = np.zeros(box), np.empty(box), np.empty(box), np.empty(box)
    parts, row, total = np.empty((4, LANES)), np.empty(classes, flat.dtype), work[-1]
    state_a, state_u, state_au, state_phi, state_excluded, state_allowed, state_p = state
    groups = state_a.shape[0]
    starts, nowhere = np.empty(LANES, np.int64), np.empty(0)
    for b in range(begin, end, LANES):
        inputs = np.arange(b, min(b + LANES, end))
        lanes = inputs.shape[0]
        locate(origin, steps[1], inputs, starts)
        if fresh:
            first_reference(flat, starts, steps, weights, inputs, lanes, logits, work[0])
            set_reference(logits, aligned, log_q, q, top)
            for lane in range(lanes):
                for y in range(classes):
                    references[b + lane, y] = aligned[y, lane]
        else:
            for lane in range(lanes):
                for y in range(classes):
                    logits[y, lane] = references[b + lane, y]
            set_reference(logits, aligned, log_q, q, top)
        reference = (aligned, log_q, q, top)
        for group in range(groups):
            dealt = (group - ranks[b]) % groups
            bad = add_members(
                flat, starts, steps, weights, inputs, lanes, dealt, groups, tolerance, reference, work, sums,
                sides,
            )  # fmt: skip
            if bad >= 0:
                return b + bad
            set_parts(sums, sides, total, lanes, log_q, q, parts)
            for lane in range(lanes):
                entropy = total[lane] * parts[0, lane]
                own = weights[:, b + lane]
                if groups > 1 and is_hidden(sums[0, :, lane], total[lane]):
                    p = state_p[group, b + lane]
                    entropy = add_one_by_one(flat, starts[lane], steps, own, dealt, groups, row, p)
                else:
                    if cancels(parts, lane):
                        entropy = add_one_by_one(flat, starts[lane], steps, own, dealt, groups, row, nowhere)
                    for y in range(classes if groups > 1 else 0):
                        state_p[group, b + lane, y] += q[y, lane] * (total[lane] + sums[0, y, lane])
                entropies[group, b + lane] += entropy
                for y in range(classes):
                    a, u, au = sums[0, y, lane], sums[1, y, lane], sums[2, y, lane]
                    close = au < CLOSE * total[lane] and not sides[0, y, lane] > 0.0
                    state_a[group, b + lane, y] += q[y, lane] * a
                    state_u[group, b + lane, y] += u
                    state_au[group, b + lane, y] += q[y, lane] * au
                    state_phi[group, b + lane, y] += q[y, lane] * mean_phi(a, u, au, close, where)
                    state_excluded[group, b + lane, y] += sides[0, y, lane]
                    state_allowed[group, b + lane, y] += sides[1, y, lane]
    return -1
