"""Four members at a time, relative to a reference, in planes of sixteen numbers.

A slot holds what belongs to one class of sixteen inputs (``narrow_single``) or to sixteen classes of one
input (``wide_single``): ``box[slot * step + plane + lane]``. First come the reference's logits and
probabilities, then sums over members; what else there is, ``brief``, ``quick`` and ``careful`` say.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import lanes
from demur.kernels.arithmetic import COMPILED, INLINED
from demur.kernels.lanes import LANES

TILE = 4
CHUNK = 32  # members added up in float32 before their sums go to float64
REFERENCE, Q, SUMS = 0, LANES, 2 * LANES
LOWEST = np.float32(60.0)  # of -log q: below exp(-60), no class of the reference is for float32
NOTHING = np.float32(0.0)
INFINITE = np.float32(np.inf)


@njit(**INLINED)
def four(array, place):
    """Return sixteen numbers of each of four members, which stand one after the other."""
    return (
        lanes.load(array, place),
        lanes.load(array, place + LANES),
        lanes.load(array, place + 2 * LANES),
        lanes.load(array, place + 3 * LANES),
    )


@njit(**INLINED)
def store_four(array, place, numbers):
    """Write sixteen numbers of each of four members, one after the other."""
    lanes.store(array, place, numbers[0])
    lanes.store(array, place + LANES, numbers[1])
    lanes.store(array, place + 2 * LANES, numbers[2])
    lanes.store(array, place + 3 * LANES, numbers[3])


@njit(**INLINED)
def zeros():
    """Return four times nothing."""
    none = lanes.spread(NOTHING)
    return none, none, none, none


@njit(**INLINED)
def sums(left, right):
    """Add what four members have."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3]


@njit(**INLINED)
def product(left, right):
    """Return the sum over four members of a product."""
    return (left[0] * right[0] + left[1] * right[1]) + (left[2] * right[2] + left[3] * right[3])


@njit(**INLINED)
def magnitudes(numbers):
    """Return the magnitudes of what four members have."""
    return (
        lanes.magnitude(numbers[0]),
        lanes.magnitude(numbers[1]),
        lanes.magnitude(numbers[2]),
        lanes.magnitude(numbers[3]),
    )


@njit(**INLINED)
def largest(numbers):
    """Return the largest magnitude that one of four members has in each lane, none of which may be NaN."""
    each = magnitudes(numbers)
    return lanes.larger(lanes.larger(each[0], each[1]), lanes.larger(each[2], each[3]))


@njit(**INLINED)
def mean(z, few):
    """Return the mean of the first one to four members."""
    total = z[0]
    if few > 1:
        total = total + z[1]
    if few > 2:
        total = total + z[2]
    if few > 3:
        total = total + z[3]
    return total * lanes.spread(np.float32(1.0 / few))


@njit(**COMPILED)
def spread_out(members):
    """Bring four members from all over to the front, in place: those of a chain are like their neighbours."""
    count = members.shape[0]
    if count > 2 * TILE:
        for k in range(1, TILE):
            other = k * count // TILE
            members[k], members[other] = members[other], members[k]


@njit(**INLINED)
def odds_of(box, at, top):
    """Return the odds of the reference's classes: of those with the ``top`` logit, and of others.

    By themselves the others keep their digits, also where the reference is certain.
    """
    odds, reference, none = lanes.load(box, at + Q), lanes.load(box, at + REFERENCE), lanes.spread(NOTHING)
    others = lanes.where_less(reference, top, odds, none)
    return lanes.doubled(odds - others), lanes.doubled(others)


@njit(**COMPILED)
def clear(box, step, parts):
    """Set the sums to 0."""
    for at in range(SUMS, box.shape[0], step):
        for part in range(parts):
            lanes.store(box, at + part * LANES, lanes.spread(NOTHING))


@njit(**COMPILED)
def flush(box, step, parts, sums):
    """Move the sums of a chunk of members to float64."""
    to = 0
    for at in range(SUMS, box.shape[0], step):
        for part in range(parts):
            more = lanes.doubled(lanes.load(box, at + part * LANES))
            lanes.store(sums, to, lanes.load(sums, to) + more)
            lanes.store(box, at + part * LANES, lanes.spread(NOTHING))
            to += LANES
