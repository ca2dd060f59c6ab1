"""Entropy, K and I of two classes: sixteen inputs at a time, and one number for each member.

The class that the reference finds less likely has the probability ``q`` there. With ``d``, how far a member's
log-odds of it are from the reference's, and ``e = expm1(d)``, the member gives it ``q + a``, where
``a = q (1 - q) e / (1 + q e)``, and diverges from the reference by ``(q + a) d - log(1 + q e)``. K is the
covariance of ``a`` and ``d``. The arithmetic is float64; inputs that have a member which is far from the
reference or no prediction, or members that are certain and contradict each other, go to ``float64``.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.core import class_terms
from demur.core.class_terms import CLOSE
from demur.kernels import exp_log, layouts, vectors
from demur.kernels.compiling import COMPILED, INLINED, cached
from demur.kernels.layouts import claim, weight_of
from demur.kernels.vectors import LANES, where

_INPUTS = 4 * LANES  # that a thread claims at a time
_TOGETHER = 8  # ratios that are multiplied before a logarithm is taken
_FARTHEST = 80.0  # of d: up to here, the product of so many ratios is a finite number
_CANCELLED = 1e-3  # of K: an entropy below that comes from members that are certain and contradict each other

_mean_phi = njit(**INLINED)(class_terms.mean_phi)
_phi_of_average = njit(**INLINED)(class_terms.phi_of_average)


@njit(**INLINED)
def _log_odds(flat, at, class_step, is_probs):
    """Return a member's log-odds of the second class."""
    first, second = np.float64(flat[at]), np.float64(flat[at + class_step])
    if is_probs:
        # By the logarithm that members are taken by, so that identical ones give exactly 0.
        return exp_log.log(second / first) if first > 0.0 and second > 0.0 else np.nan
    return second - first


@njit(**COMPILED)
def _set_reference(source, starts, weighing, inputs, reference, total):
    """Write the heaviest member's log-odds, ``q``, ``q (1 - q)``, the sign of its log-odds and their size."""
    single, double, is_single, is_probs, steps = source
    weights, weight_steps, count = weighing
    alike = weight_steps[0] == 0 and weight_steps[1] == 0
    for lane in range(LANES):
        at, total[lane] = starts[lane], count
        if not alike:
            b = inputs[min(lane, inputs.shape[0] - 1)]
            heaviest, total[lane] = layouts.find_heaviest(weights, weight_steps, count, b)
            at += heaviest * steps[0]
        if is_single:
            odds = _log_odds(single, at, steps[2], is_probs)
        else:
            odds = _log_odds(double, at, steps[2], is_probs)
        size = abs(odds)
        ratio = exp_log.exp(-size if size < _FARTHEST else -_FARTHEST)
        reference[0, lane], reference[1, lane] = odds, ratio / (1.0 + ratio)
        reference[2, lane] = ratio / (1.0 + ratio) / (1.0 + ratio)
        reference[3, lane], reference[4, lane] = -1.0 if odds > 0.0 else 1.0, size


@njit(**INLINED)
def _load(flat, starts, shift, class_step, in_a_line, z):
    """Return one member's numbers of the first class, and of the second."""
    if in_a_line and class_step == 1:
        pair = vectors.load_pairs(flat, starts[0] + shift)
        return vectors.to_double(pair[0]), vectors.to_double(pair[1])
    for lane in range(LANES):
        at = starts[lane] + shift
        z[lane] = flat[np.uintp(at)]
        z[LANES + lane] = flat[np.uintp(at + class_step)]
    return vectors.load(z, 0), vectors.load(z, LANES)


@njit(**COMPILED)
def _add_members(source, starts, weighing, inputs, in_a_line, z, reference, sums):
    """Write sums of ``d``, ``a``, ``a d`` and ``log(1 + q e)``, the largest ``d``, and how far p is off 1."""
    single, double, is_single, is_probs, steps = source
    weights, weight_steps, count = weighing
    rows = reference.reshape(-1)
    odds, q = vectors.load(rows, 0), vectors.load(rows, LANES)
    spread, sign = vectors.load(rows, 2 * LANES), vectors.load(rows, 3 * LANES)
    none, one = vectors.spread(0.0), vectors.spread(1.0)
    of_d, of_a, of_ad, of_log, farthest, off, product, w = none, none, none, none, none, none, none, one
    alike = weight_steps[0] == 0 and weight_steps[1] == 0
    for member in range(count):
        if is_single:
            own = _load(single, starts, member * steps[0], steps[2], in_a_line, z)
        else:
            own = _load(double, starts, member * steps[0], steps[2], in_a_line, z)
        if is_probs:
            sum_off = (own[0] + own[1]) - one
            d = (exp_log.log(own[1] / own[0]) - odds) * sign
            # Of 0 and of negative numbers this logarithm knows nothing.
            d = vectors.where_less(none, vectors.smaller(own[0], own[1]), d, vectors.spread(np.inf))
        else:
            sum_off = none
            d = ((own[1] - own[0]) - odds) * sign  # in which a constant, added to both, has no part
        if not alike:
            for lane in range(LANES):
                b = inputs[min(lane, inputs.shape[0] - 1)]
                z[lane] = weight_of(weights, weight_steps, member, b)
            w = vectors.load(z, 0)
            d = vectors.where_less(none, w, d, none)  # without weight a member may hold anything
            sum_off = vectors.where_less(none, w, sum_off, none)
        off = vectors.larger(vectors.larger(sum_off, none - sum_off), off)
        e = exp_log.expm1(d)
        more = q * e
        a = w * ((spread * e) / (one + more))
        of_d, of_a, of_ad = of_d + w * d, of_a + a, of_ad + a * d
        farthest = vectors.larger(vectors.larger(d, none - d), farthest)
        if alike:
            product = product + (more + product * more)  # less 1
            if member % _TOGETHER == _TOGETHER - 1:
                of_log, product = of_log + exp_log.log1p(product), none
        else:
            of_log = of_log + w * exp_log.log1p(more)
    vectors.store(sums, 0, of_d)
    vectors.store(sums, LANES, of_a)
    vectors.store(sums, 2 * LANES, of_ad)
    vectors.store(sums, 3 * LANES, of_log + exp_log.log1p(product))
    vectors.store(sums, 4 * LANES, farthest)
    vectors.store(sums, 5 * LANES, off)


@njit(**COMPILED)
def _finish(reference, sums, total, lane, tolerance):
    """Return entropy, K and I of a lane, and whether the sums are good for them."""
    q, spread, size, share = reference[1, lane], reference[2, lane], reference[4, lane], 1.0 / total
    d, a = sums[lane] * share, sums[LANES + lane] * share
    ad, log = sums[2 * LANES + lane] * share, sums[3 * LANES + lane] * share
    # Over both classes the sum of q E a u is E a d, and that of q E (u - a) is q E d - E log(1 + q e).
    k, phi = ad - a * d, _mean_phi(log, q * d, ad, ad < CLOSE * spread, where)
    below = _phi_of_average(a / q, exp_log.log1p, where)
    above = _phi_of_average(-a / (1.0 - q), exp_log.log1p, where)
    entropy = ((q + a) * size + exp_log.log1p(exp_log.exp(-size))) - phi
    tame = sums[4 * LANES + lane] < _FARTHEST and size < _FARTHEST and sums[5 * LANES + lane] <= tolerance
    good = tame and entropy >= _CANCELLED * max(k, phi)
    return entropy, k, phi - (q * below + (1.0 - q) * above), good


@cached
def over_inputs(
    single, double, is_single, is_probs, origin, steps, shape, weights, weight_steps, tolerance, chosen,
    claimed, out,
):  # fmt: skip
    """Write entropy, K and I of chosen inputs to ``out``; return those that are not for this loop."""
    starts, z, total = np.empty(LANES, np.int64), np.empty(2 * LANES), np.empty(LANES)
    reference, sums = np.empty((5, LANES)), np.empty(6 * LANES)
    rejected, left = np.empty(chosen.shape[0], np.int64), 0
    source, weighing = (single, double, is_single, is_probs, steps), (weights, weight_steps, shape[0])
    own = claim(chosen, claimed, _INPUTS)
    while own.shape[0] > 0:
        for begin in range(0, own.shape[0], LANES):
            inputs = own[begin : begin + LANES]
            in_a_line = layouts.locate_inputs(origin, steps[1], inputs, starts) and steps[1] == 2
            _set_reference(source, starts, weighing, inputs, reference, total)
            _add_members(source, starts, weighing, inputs, in_a_line, z, reference, sums)
            for lane in range(inputs.shape[0]):
                b = inputs[lane]
                entropy, k, i, good = _finish(reference, sums, total[lane], lane, tolerance)
                if good:
                    out[0, b], out[1, b], out[2, b] = entropy, k, i
                else:
                    rejected[left] = b
                    left += 1
        own = claim(chosen, claimed, _INPUTS)
    return rejected[:left]
