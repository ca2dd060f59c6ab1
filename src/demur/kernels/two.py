"""The fused loop for two classes: sixteen inputs at a time, and one number for each member.

The class that the reference finds less likely has the probability ``q`` there. With ``d``, how far a member's
log-odds of it are from the reference's, and ``e = expm1(d)``, the member gives it ``q + a``, where
``a = q (1 - q) e / (1 + q e)``, and diverges from the reference by ``(q + a) d - log(1 + q e)``. K is the
covariance of ``a`` and ``d``. The arithmetic is float64; inputs that have a member which is far from the
reference or no number, or members that are certain and contradict each other, go to ``narrow``.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels import exponentials, lanes, narrow
from demur.kernels.arithmetic import COMPILED, INLINED, cached, claim, exp, log1p
from demur.kernels.compiled_formulas import mean_phi, phi_of_average, where
from demur.kernels.formulas import CLOSE
from demur.kernels.lanes import LANES
from demur.kernels.wide import CANCELLED
from demur.kernels.workers import taken

CLAIM = 4 * LANES  # inputs that a thread takes at a time
FARTHEST = 80.0  # of d: the product of so many
TOGETHER = 8  # ratios as are multiplied before a logarithm is taken is a finite number


@njit(**COMPILED)
def locate(origin, input_step, inputs, starts):
    """Write where inputs begin, for lanes without one the last; tell whether they lie in a line."""
    count = inputs.shape[0]
    for lane in range(LANES):
        starts[lane] = origin + inputs[min(lane, count - 1)] * input_step
    return count == LANES and input_step == 2 and inputs[count - 1] - inputs[0] == count - 1


@njit(**COMPILED)
def set_reference(flat, starts, steps, weights, inputs, reference, total):
    """Write the heaviest member's logits, ``q``, ``q (1 - q)``, the sign of its log-odds and their size."""
    for lane in range(LANES):
        own, at = weights[:, inputs[min(lane, inputs.shape[0] - 1)]], starts[lane]
        total[lane] = own.shape[0]
        if weights.strides[0] != 0 or weights.strides[1] != 0:
            at += np.argmax(own) * steps[0]
            total[lane] = np.sum(own)
        first, second = np.float64(flat[at]), np.float64(flat[at + steps[2]])
        size = abs(second - first)
        ratio = exp(-size if size < FARTHEST else -FARTHEST)
        reference[0, lane], reference[1, lane] = first, second
        reference[2, lane], reference[3, lane] = ratio / (1.0 + ratio), ratio / (1.0 + ratio) / (1.0 + ratio)
        reference[4, lane], reference[5, lane] = -1.0 if second > first else 1.0, size


@njit(**INLINED)
def load(flat, starts, shift, class_step, in_a_line, z):
    """Return one member's logits of the first class, and of the second."""
    if in_a_line and class_step == 1:
        pair = lanes.load_pairs(flat, starts[0] + shift)
        return lanes.doubled(pair[0]), lanes.doubled(pair[1])
    for lane in range(LANES):
        at = starts[lane] + shift
        z[lane] = flat[np.uintp(at)]
        z[LANES + lane] = flat[np.uintp(at + class_step)]
    return lanes.load(z, 0), lanes.load(z, LANES)


@njit(**COMPILED)
def add_members(flat, starts, steps, weights, inputs, in_a_line, z, weight, reference, sums):
    """Write the sums over members of ``d``, ``a``, ``a d`` and ``log(1 + q e)``, and how large a ``d`` is."""
    rows = reference.reshape(-1)
    first, second, q = lanes.load(rows, 0), lanes.load(rows, LANES), lanes.load(rows, 2 * LANES)
    spread, sign = lanes.load(rows, 3 * LANES), lanes.load(rows, 4 * LANES)
    none, one = lanes.spread(0.0), lanes.spread(1.0)
    of_d, of_a, of_ad, of_log, farthest, product, w = none, none, none, none, none, none, one
    alike = weights.strides[0] == 0 and weights.strides[1] == 0
    for member in range(weights.shape[0]):
        own = load(flat, starts, member * steps[0], steps[2], in_a_line, z)
        d = ((own[1] - second) - (own[0] - first)) * sign
        if not alike:
            for lane in range(LANES):
                weight[lane] = weights[member, inputs[min(lane, inputs.shape[0] - 1)]]
            w = lanes.load(weight, 0)
            d = lanes.where_less(none, w, d, none)  # without weight a member may hold anything
        e = exponentials.expm1_double(d)
        more = q * e
        a = w * ((spread * e) / (one + more))
        of_d, of_a, of_ad = of_d + w * d, of_a + a, of_ad + a * d
        farthest = lanes.larger(lanes.larger(d, none - d), farthest)
        if alike:
            product = product + (more + product * more)  # less 1
            if member % TOGETHER == TOGETHER - 1:
                of_log, product = of_log + exponentials.log1p(product), none
        else:
            of_log = of_log + w * exponentials.log1p(more)
    lanes.store(sums, 0, of_d)
    lanes.store(sums, LANES, of_a)
    lanes.store(sums, 2 * LANES, of_ad)
    lanes.store(sums, 3 * LANES, of_log + exponentials.log1p(product))
    lanes.store(sums, 4 * LANES, farthest)


@njit(**COMPILED)
def figures(reference, sums, total, lane):
    """Return entropy, K and I of a lane, and whether the sums are good for them."""
    q, spread, size, share = reference[2, lane], reference[3, lane], reference[5, lane], 1.0 / total
    d, a = sums[lane] * share, sums[LANES + lane] * share
    ad, log = sums[2 * LANES + lane] * share, sums[3 * LANES + lane] * share
    # Over both classes the sum of q E a u is E a d, and that of q E (u - a) is q E d - E log(1 + q e).
    k, phi = ad - a * d, mean_phi(log, q * d, ad, ad < CLOSE * spread, where)
    below, above = phi_of_average(a / q, log1p, where), phi_of_average(-a / (1.0 - q), log1p, where)
    entropy = ((q + a) * size + log1p(exp(-size))) - phi
    tame = sums[4 * LANES + lane] < FARTHEST and size < FARTHEST
    good = tame and entropy >= CANCELLED * max(k, phi)
    return entropy, k, phi - (q * below + (1.0 - q) * above), good


@cached
def summarise_inputs(flat, origin, steps, shape, weights, chosen, claimed, out):
    """Write entropy, K and I of chosen inputs to ``out``; return those that go to ``narrow``."""
    starts, z, weight, total = (
        np.empty(LANES, np.int64),
        np.empty(2 * LANES),
        np.empty(LANES),
        np.empty(LANES),
    )
    reference, sums = np.empty((6, LANES)), np.empty(5 * LANES)
    rejected, count = np.empty(chosen.shape[0], np.int64), 0
    own = claim(chosen, claimed, CLAIM)
    while own.shape[0] > 0:
        for begin in range(0, own.shape[0], LANES):
            inputs = own[begin : begin + LANES]
            in_a_line = locate(origin, steps[1], inputs, starts)
            set_reference(flat, starts, steps, weights, inputs, reference, total)
            add_members(flat, starts, steps, weights, inputs, in_a_line, z, weight, reference, sums)
            for lane in range(inputs.shape[0]):
                b = inputs[lane]
                out[0, b], out[1, b], out[2, b], good = figures(reference, sums, total[lane], lane)
                if not good:
                    rejected[count] = b
                    count += 1
        own = claim(chosen, claimed, CLAIM)
    return rejected[:count]


def summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out):
    """Write entropy, K and I of all inputs to ``out``; return the first bad input or -1."""
    given = (flat, origin, steps, shape, weights)
    left = taken(summarise_inputs, given, np.arange(weights.shape[1]), out)
    if not left.size:
        return -1
    return narrow.summarise(flat, bits, origin, steps, shape, weights, limits, tolerance, out, left)
