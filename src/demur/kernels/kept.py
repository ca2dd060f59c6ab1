"""Means over members, relative to a reference of theirs, as sums of a state, relative to its own.

The normalisers of both references are made anew, in float64: sums relative to one meet those of the other.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import narrow_reference, wide
from demur.kernels.arithmetic import COMPILED, INLINED, expm1
from demur.kernels.lanes import LANES
from demur.kernels.tile import REFERENCE


@njit(**INLINED)
def moved(sums, place, share, log_q, log_to, target, careful):
    """Return means of one class as those of ``careful`` or ``quick`` sums, relative to another reference.

    ``target`` is that reference's probability.
    """
    first, u, third = sums[place] * share, sums[place + LANES] * share, sums[place + 2 * LANES] * share
    m = log_q - log_to
    growth = expm1(m, m)
    apart = target * growth
    q = target + apart
    a = q * first if careful else q * (first - 1.0)
    au = q * third if careful else q * (third - u)
    phi = 0.5 * au + q * (sums[place + 3 * LANES] * share) if careful else au + q * u - a
    return (
        a + apart,
        u + m,
        au + m * a + apart * u + apart * m,
        phi + m * a + target * (m * growth - (growth - m)),
    )


@njit(**COMPILED)
def room_for_one(classes):
    """Allocate what ``keep`` needs."""
    rows = np.empty((5, classes))
    return rows[0], rows[1], rows[2], rows[3], rows[4]


@njit(**COMPILED)
def keep(b, box, step, parts, sums, total, weight, entropy, careful, state, room):
    """Write the sums of one input of many classes, with members added that are in slots of a box.

    What stands in two slots, as the last one may overlap the one before, is the same in both.
    """
    fresh, references, old, new, entropies = state
    own, aligned, log_q, log_to, q = room
    classes, share = own.shape[0], 1.0 / total
    for slot in range(-(-classes // LANES)):
        first, place = min(slot * LANES, classes - LANES), slot * step + REFERENCE
        for lane in range(LANES):
            own[first + lane] = box[place + lane]
    wide.set_reference(own, aligned, log_q, q)
    if fresh:
        references[b] = aligned
    wide.set_reference(references[b], aligned, log_to, q)
    entropies[b] += weight * entropy
    for slot in range(-(-classes // LANES)):
        first, place = min(slot * LANES, classes - LANES), slot * parts * LANES
        for lane in range(LANES):
            y = first + lane
            found = moved(sums, place + lane, share, log_q[y], log_to[y], q[y], careful)
            for part in range(4):
                new[part, b, y] = weight * found[part] + (0.0 if fresh else old[part][b, y])


@njit(**COMPILED)
def room_for_lanes(classes):
    """Allocate what ``keep_lanes`` needs."""
    planes = np.empty((5, classes, LANES))
    rest = np.empty((4, LANES)), np.empty(LANES, np.int64)
    return planes[0], planes[1], planes[2], planes[3], planes[4], *rest


@njit(**COMPILED)
def keep_lanes(inputs, fits, box, step, parts, sums, totals, weights, found, careful, state, room):
    """Do as ``keep`` for those of sixteen inputs that fit, with a slot of the box for each class."""
    fresh, references, old, new, entropies = state
    own, aligned, log_q, log_to, q, sums_of, top = room
    classes = own.shape[0]
    for y in range(classes):
        for lane in range(LANES):
            own[y, lane] = box[y * step + REFERENCE + lane]
    narrow_reference.set_reference(own, aligned, log_q, q, top)
    if fresh:
        for lane in range(inputs.shape[0]):
            if fits[lane]:
                references[inputs[lane]] = aligned[:, lane]
        log_to[:] = log_q
    else:
        for y in range(classes):
            for lane in range(LANES):
                own[y, lane] = references[inputs[min(lane, inputs.shape[0] - 1)], y]
        narrow_reference.set_reference(own, aligned, log_to, q, top)
    for lane in range(inputs.shape[0]):
        if fits[lane]:
            entropies[inputs[lane]] += weights[lane] * found[lane]
    for y in range(classes):
        for lane in range(LANES):
            place = y * parts * LANES + lane
            of = moved(sums, place, 1.0 / totals[lane], log_q[y, lane], log_to[y, lane], q[y, lane], careful)
            for part in range(4):
                sums_of[part, lane] = weights[lane] * of[part]
        for lane in range(inputs.shape[0]):
            b = inputs[lane]
            if fits[lane]:
                for part in range(4):
                    new[part, b, y] = sums_of[part, lane] + (0.0 if fresh else old[part][b, y])
