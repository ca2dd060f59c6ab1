"""Members that disagree, where no sums are kept: the least arithmetic that gives K, I and the entropy.

With ``d = z - z_reference``, ``r = exp(d)``, ``s = <q, r>`` and ``t = <q r, d>``, a member has
``p = q r / s``, ``log p = log q + d - log s`` and so ``<p, log p - log q> = t / s - log s``. Means over
members of ``p / q``, ``d``, ``t / s`` and ``log s``, called R, D, T and L, give ``K = T - <q R, D>``,
``I = T - L - <q R, log R>`` and the mean entropy ``L - T - <q R, log q>``. Only R and D are sums for each
class; ``quick`` has one more, and more work for each.

T, L and D hold how far all logits of a member have moved together, which cancels: ``is_enough`` tells where
that takes digits.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
from numba import njit

from demur.kernels import exponentials, lanes, quick
from demur.kernels.arithmetic import INLINED
from demur.kernels.compiled_formulas import noise
from demur.kernels.lanes import LANES
from demur.kernels.tile import NOTHING, REFERENCE, SUMS, TILE, Q, four, store_four

PARTS = 2
R, D = SUMS, SUMS + LANES
GROWN = SUMS + PARTS * LANES
LOGIT = GROWN  # in a narrow box: logits are not needed any more when what grew from them is written
WIDE_STEP = NARROW_STEP = GROWN + TILE * LANES
ALIGNED, TILTED = False, True
MOVED, SHIFTED, far = quick.MOVED, quick.SHIFTED, quick.far


@njit(**INLINED)
def grow(z, offset, weights, box, at):
    """Write ``exp(d)`` of four members and add ``w d``; return ``q r`` and ``q r d``."""
    reference, q = lanes.load(box, at + REFERENCE), lanes.load(box, at + Q)
    d0, d1, d2, d3 = z[0] - reference, z[1] - reference, z[2] - reference, z[3] - reference
    r0, r1, r2, r3 = exponentials.exp(d0), exponentials.exp(d1), exponentials.exp(d2), exponentials.exp(d3)
    store_four(box, at + GROWN, (r0, r1, r2, r3))
    of_d = (weights[0] * d0 + weights[1] * d1) + (weights[2] * d2 + weights[3] * d3)
    lanes.store(box, at + D, lanes.load(box, at + D) + of_d)
    p0, p1, p2, p3 = q * r0, q * r1, q * r2, q * r3
    return p0, p1, p2, p3, p0 * d0, p1 * d1, p2 * d2, p3 * d3


@njit(**INLINED)
def terms(total, weight):
    """Return ``log s`` and the weight over ``s``."""
    return exponentials.log(total), weight / total


@njit(**INLINED)
def add(z, terms, weights, box, at):
    """Add four members to the sum of ``w p / q``."""
    r = four(box, at + GROWN)
    of_r = (r[0] * terms[0][1] + r[1] * terms[1][1]) + (r[2] * terms[2][1] + r[3] * terms[3][1])
    lanes.store(box, at + R, lanes.load(box, at + R) + of_r)


@njit(**INLINED)
def disagreement(box, at, share):
    """Return the terms of K from the sums so far, but for T; ``share`` is one over their weight."""
    return lanes.spread(NOTHING) - lanes.load(box, at + Q) * (
        (share * lanes.load(box, at + R)) * (share * lanes.load(box, at + D))
    )


@njit(**INLINED)
def figures(box, at, sums, place, share, log_q):
    """Return the terms of the entropy, K, I and ``E phi``, but for T and L."""
    r, d = lanes.load(sums, place) * share, lanes.load(sums, place + LANES) * share
    p = lanes.spread(0.0) - lanes.doubled(lanes.load(box, at + Q)) * r
    return p * log_q, p * d, p * exponentials.log(r), p


@njit(**INLINED)
def is_enough(entropy, k, i, apart, moved, mean, total):
    """Do as ``quick.is_enough``.

    ``mean`` is that over members of how far logits have moved, ``total`` the weight of all, which is their
    number where they weigh the same.
    """
    fits = quick.is_enough(entropy, k, i, apart, moved, mean, total)
    return fits and min(i, k - i, entropy) > noise(mean, total)
