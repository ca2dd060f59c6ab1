"""Members that disagree: the least arithmetic that gives K, I and the entropy to about 1e-6 in float32.

With ``d = z - z_reference``, ``r = exp(d)`` and ``s = <q, r>``, a member has ``p / q = r / s`` and
``u = log p - log q = d - log s``. Means over members of ``p / q``, ``u`` and ``p u / q``, called R, U and X,
give ``K = <q, X - R U>``, ``I = <q, X - R log R>`` and the mean entropy ``-<q, X + R log q>``.

``1 / s`` is the exponential of the rounded ``-log s``, so that ``p`` stays the exponential of its logarithm:
what is wrong with both alike changes the measures in second order only. Where members agree or are certain,
the figures are differences of larger numbers: ``is_enough`` tells, and ``careful`` takes such inputs.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import exponentials, lanes
from demur.kernels.arithmetic import INLINED
from demur.kernels.lanes import LANES
from demur.kernels.tile import NOTHING, REFERENCE, SUMS, TILE, Q, four, largest, store_four

PARTS = 3
R, U, X = SUMS, SUMS + LANES, SUMS + 2 * LANES
GROWN = SUMS + PARTS * LANES
LOGIT = GROWN + TILE * LANES  # in a narrow box
WIDE_STEP, NARROW_STEP = LOGIT, LOGIT + TILE * LANES
ALIGNED, TILTED = False, False
ROUGH = 0.06  # of I and of M, to which float32 adds up to 2e-7
CANCELLED = 0.1  # of K or of E phi: I and M below that are differences of larger numbers,
CERTAIN = 0.05  # and so is an entropy below that
MOVED = SHIFTED = np.float32(16.0)  # how far all logits of a member may move without taking digits from u
far = largest  # of log s: how far they have moved


@njit(**INLINED)
def grow(z, offset, weights, box, at):
    """Write ``exp(d)`` of four members, and return it times ``q``; other arithmetics need the rest."""
    reference, q = lanes.load(box, at + REFERENCE), lanes.load(box, at + Q)
    r0, r1 = exponentials.exp(z[0] - reference), exponentials.exp(z[1] - reference)
    r2, r3 = exponentials.exp(z[2] - reference), exponentials.exp(z[3] - reference)
    store_four(box, at + GROWN, (r0, r1, r2, r3))
    return q * r0, q * r1, q * r2, q * r3


@njit(**INLINED)
def terms(total, weight):
    """Return ``log s`` and the weight over ``s``."""
    log_s = exponentials.log(total)
    return log_s, weight * exponentials.full_exp(lanes.spread(NOTHING) - log_s)


@njit(**INLINED)
def add(z, terms, weights, box, at):
    """Add four members to the sums of ``w p / q``, ``w u`` and ``w p u / q``."""
    reference, r = lanes.load(box, at + REFERENCE), four(box, at + GROWN)
    u0, u1 = (z[0] - reference) - terms[0][0], (z[1] - reference) - terms[1][0]
    u2, u3 = (z[2] - reference) - terms[2][0], (z[3] - reference) - terms[3][0]
    p0, p1, p2, p3 = r[0] * terms[0][1], r[1] * terms[1][1], r[2] * terms[2][1], r[3] * terms[3][1]
    of_u = (weights[0] * u0 + weights[1] * u1) + (weights[2] * u2 + weights[3] * u3)
    lanes.store(box, at + R, lanes.load(box, at + R) + ((p0 + p1) + (p2 + p3)))
    lanes.store(box, at + U, lanes.load(box, at + U) + of_u)
    lanes.store(box, at + X, lanes.load(box, at + X) + ((p0 * u0 + p1 * u1) + (p2 * u2 + p3 * u3)))


@njit(**INLINED)
def disagreement(box, at, share):
    """Return the terms of K from the sums so far; ``share`` is one over their weight."""
    r, u, x = lanes.load(box, at + R), lanes.load(box, at + U), lanes.load(box, at + X)
    return lanes.load(box, at + Q) * (share * (x - share * (r * u)))


@njit(**INLINED)
def figures(box, at, sums, place, share, log_q):
    """Return the terms of the entropy, K, I and ``E phi``."""
    q = lanes.doubled(lanes.load(box, at + Q))
    r, u = lanes.load(sums, place) * share, lanes.load(sums, place + LANES) * share
    x = lanes.load(sums, place + 2 * LANES) * share
    entropy, k, i = x + r * log_q, x - r * u, x - r * exponentials.log(r)
    return lanes.spread(0.0) - q * entropy, q * k, q * i, q * ((x - r) + lanes.spread(1.0))


@njit(**INLINED)
def is_enough(entropy, k, i, apart, moved, mean, total):
    """Tell whether float32 made these figures without cancelling.

    ``apart`` is ``E phi``, ``moved`` how far all logits of a member have moved; ``mean`` and ``total`` serve
    ``brief``.
    """
    largest = max(k, apart)
    fits = min(i, k - i) > max(ROUGH, CANCELLED * largest) and entropy > CERTAIN * largest
    return fits and moved < MOVED
