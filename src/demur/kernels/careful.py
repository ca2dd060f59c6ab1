"""Members that agree: float32 sums whose terms are each rounded relative to themselves.

As in ``wide``: ``d`` from differences of logits, taken as if never rounded and less that of the reference's
top class, ``e = expm1(d)``, ``shift = <q, e>``; then ``u = d - log1p(shift)`` and
``a = (p - q) / q = (e - shift) / (1 + shift)``. Only ``phi = (1 + a) u - a`` would lose digits where members
agree: in its place stands ``phi = a u / 2 + g(u)``, with ``g`` of third order, ``u**3 / 12 + u**4 / 24 ...``
What float32 cannot hold to about 1e-6 of K, I, M and the entropy goes to ``narrow`` or ``wide``.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import lanes
from demur.kernels.arithmetic import INLINED
from demur.kernels.exponentials import expm1, log1p
from demur.kernels.lanes import LANES
from demur.kernels.tile import REFERENCE, SUMS, TILE, Q, four, store_four

PARTS = 4
A, U, AU, G = SUMS, SUMS + LANES, SUMS + 2 * LANES, SUMS + 3 * LANES
GROWN = SUMS + PARTS * LANES
LOGIT = GROWN + TILE * LANES  # d takes the place of logits
TOP = LOGIT + TILE * LANES  # in a narrow box: 1 for the reference's top class, 0 for others
WIDE_STEP, NARROW_STEP = TOP, TOP + LANES
ALIGNED, TILTED = True, False
SMALLEST = 1e-20  # of K that float32 holds the terms of
CANCELLED = 0.1  # of K or of E phi: I and M below that are differences of larger numbers
CERTAIN = 0.05  # and so is an entropy below that
MOVED = np.float32(26.0)  # of log1p(shift): an exponent beyond 87 makes it 27 at least, as q >= exp(-60)
SHRUNK = np.float32(-13.0)  # below -2, 1 + shift is a difference without digits: -2 counts as 26
SHIFTED = np.float32(64.0)  # how far all logits of a member may move: d has no more digits than that leaves
NEAR = np.float32(0.06)  # of u**2
HALF, TWELFTH, FIFTH_ORDER = np.float32(1 / 2), np.float32(1 / 12), np.float32(-1 / 720)
ONE = np.float32(1.0)


@njit(**INLINED)
def offsets(z, box, at):
    """Return ``z - z_reference`` of four members for the top class, 0 for others."""
    one, top = lanes.load(box, at + REFERENCE), lanes.load(box, at + TOP)
    return top * (z[0] - one), top * (z[1] - one), top * (z[2] - one), top * (z[3] - one)


@njit(**INLINED)
def relative(logit, reference, offset):
    """Return ``(logit - reference) - offset``, the first difference as if never rounded."""
    apart = logit - reference
    back = apart - logit
    lost = (logit - (apart - back)) - (reference + back)
    return (apart - offset) + lost


@njit(**INLINED)
def grow(z, offset, weights, box, at):
    """Write ``d`` and ``e`` of four members, and return ``q e``."""
    reference, q = lanes.load(box, at + REFERENCE), lanes.load(box, at + Q)
    d0, d1 = relative(z[0], reference, offset[0]), relative(z[1], reference, offset[1])
    d2, d3 = relative(z[2], reference, offset[2]), relative(z[3], reference, offset[3])
    e0, e1, e2, e3 = expm1(d0), expm1(d1), expm1(d2), expm1(d3)
    store_four(box, at + LOGIT, (d0, d1, d2, d3))
    store_four(box, at + GROWN, (e0, e1, e2, e3))
    return q * e0, q * e1, q * e2, q * e3


@njit(**INLINED)
def terms(total, weight):
    """Return ``log(1 + shift)``, the weight over ``1 + shift``, and that times ``shift``."""
    scale = weight / (lanes.spread(ONE) + total)
    return log1p(total), scale, scale * total


@njit(**INLINED)
def smaller(left, right):
    """Return the smaller of two in each lane."""
    return lanes.where_less(left, right, left, right)


@njit(**INLINED)
def far(logs):
    """Return how far four members have moved at most, by ``log(1 + shift)``."""
    high = lanes.larger(lanes.larger(logs[0], logs[1]), lanes.larger(logs[2], logs[3]))
    low = smaller(smaller(logs[0], logs[1]), smaller(logs[2], logs[3]))
    return lanes.larger(high, lanes.spread(SHRUNK) * low)


@njit(**INLINED)
def third_order(a, u, weight):
    """Return the weight times ``g(u) = phi - a u / 2``; ``a`` carries the weight already."""
    square = u * u
    near = (a * square) * (square * lanes.spread(FIFTH_ORDER) + lanes.spread(TWELFTH))
    direct = (weight * u - a) + (a * u) * lanes.spread(HALF)
    return lanes.where_less(square, lanes.spread(NEAR), near, direct)


@njit(**INLINED)
def add(z, terms, weights, box, at):
    """Add four members to the sums of ``w a``, ``w u``, ``w a u`` and ``w g``."""
    d, e = four(box, at + LOGIT), four(box, at + GROWN)
    u0, u1, u2, u3 = d[0] - terms[0][0], d[1] - terms[1][0], d[2] - terms[2][0], d[3] - terms[3][0]
    a0, a1 = e[0] * terms[0][1] - terms[0][2], e[1] * terms[1][1] - terms[1][2]
    a2, a3 = e[2] * terms[2][1] - terms[2][2], e[3] * terms[3][1] - terms[3][2]
    of_u = (weights[0] * u0 + weights[1] * u1) + (weights[2] * u2 + weights[3] * u3)
    g0, g1 = third_order(a0, u0, weights[0]), third_order(a1, u1, weights[1])
    g2, g3 = third_order(a2, u2, weights[2]), third_order(a3, u3, weights[3])
    lanes.store(box, at + A, lanes.load(box, at + A) + ((a0 + a1) + (a2 + a3)))
    lanes.store(box, at + U, lanes.load(box, at + U) + of_u)
    lanes.store(box, at + AU, lanes.load(box, at + AU) + ((a0 * u0 + a1 * u1) + (a2 * u2 + a3 * u3)))
    lanes.store(box, at + G, lanes.load(box, at + G) + ((g0 + g1) + (g2 + g3)))


@njit(**INLINED)
def figures(box, at, sums, place, share, log_q):
    """Return the terms of the entropy, K, I and ``E phi``; as ``formulas.class_terms``, with ``g``."""
    q, half, one = lanes.doubled(lanes.load(box, at + Q)), lanes.spread(0.5), lanes.spread(1.0)
    a, u = lanes.load(sums, place) * share, lanes.load(sums, place + LANES) * share
    au, g = lanes.load(sums, place + 2 * LANES) * share, lanes.load(sums, place + 3 * LANES) * share
    of_average = log1p(a)
    k, phi = au - a * u, half * au + g
    i = half * (k - a * (of_average - u)) + (g - ((of_average - a) + half * (a * of_average)))
    return lanes.spread(0.0) - q * (phi + (one + a) * log_q), q * k, q * i, q * phi


@njit(**INLINED)
def is_enough(entropy, k, i, apart, moved, mean, total):
    """Do as ``quick.is_enough``."""
    largest = max(k, apart)
    fits = k > SMALLEST and min(i, k - i) > CANCELLED * largest and entropy > CERTAIN * largest
    return fits and moved < MOVED
