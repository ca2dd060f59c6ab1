"""Entropy, K, I and M of tensors on an accelerator, in float32 and without leaving it.

With the average prediction ``m`` as the reference, and ``v = log p - log m`` of each member, every figure is
a sum of terms of one sign, so nothing cancels and float32 is enough:

    I = sum_y m E[e^v v - (e^v - 1)],    M = sum_y m E[(e^v - 1) - v],    K = I + M = sum_y m E[(e^v - 1) v].

What has to be exact is ``v`` where members agree. The average is therefore found twice: roughly, as float32
logits, which are then taken for the reference as they stand; and as what those are off by, from differences
of logits that keep what their rounding loses. Identical members have differences of exactly 0.
"""

from __future__ import annotations

from typing import Any

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.logarithms import exponential_excess, generalised_kl_term
from demur.core.plain_arrays import heaviest_of
from demur.core.probabilities import lost_in_difference
from demur.core.rules import BrierRule, Rule
from demur.predictions import Categorical, Members

_AT_ONCE = 1 << 22  # numbers worked on at a time; some ten arrays of that size are held


def takes(members: Members, rule: Rule) -> bool:
    """Tell whether members are tensors that stay where they are, in single precision and without gradients.

    Probabilities are not: their logarithms have lost digits that float32 cannot do without.
    """
    prediction = members.prediction
    if not members.stays or not isinstance(prediction, Categorical) or prediction.kind == "probs":
        return False
    given = [prediction.values] if members.weights is None else [prediction.values, members.weights]
    if any(arrays.library(each) != "torch" or each.requires_grad for each in given):
        return False
    return (rule.compiled or isinstance(rule, BrierRule)) and not arrays.is_double(prediction.values)


def summarise(members: Members, rule: Rule) -> Array:
    """Return mean entropy, K, I and M, (4, inputs), on the device; NaN and the like raise."""
    parts = [_summarise_part(members.part(*bounds), rule) for bounds in members.parts(_AT_ONCE)]
    return parts[0] if len(parts) == 1 else arrays.namespace(parts[0]).concat(parts, axis=1)


def _summarise_part(members: Members, rule: Rule) -> Array:
    logits = members.single_logits()
    xp = arrays.namespace(logits)
    shares = None
    if members.weights is not None:
        shares = xp.astype(members.weights / xp.sum(members.weights, axis=0), logits.dtype)

    def mean(values: Array) -> Array:
        """Return averages over members of what is 0, or alike for all, to the last digit where it is so."""
        if shares is None:
            return xp.mean(values, axis=0)
        own = shares if values.ndim == 2 else shares[..., None]
        return xp.sum(own * values, axis=0) / xp.sum(own, axis=0)

    used = None if shares is None else (shares > 0)[..., None]
    log_m, v, excluded, nobody = _compare_with_average(xp, logits, mean, used, shares)
    m = xp.exp(log_m)
    growth = xp.where(excluded, -xp.ones_like(v), xp.expm1(v))
    entropy = mean(rule.entropy(xp, logits))
    if isinstance(rule, BrierRule):
        variance = xp.sum(mean((m * growth) ** 2), axis=-1)
        return xp.stack([entropy, 2 * variance, variance, variance])
    i = xp.sum(m * mean(generalised_kl_term(xp, growth, v)), axis=-1)
    terms = m * mean(exponential_excess(xp, growth, v))
    # A class that one member excludes and another allows, however little.
    apart = (excluded if used is None else excluded & used).any(0) & ~nobody
    terms = xp.where(apart, xp.full_like(terms, float("inf")), terms)
    reverse = xp.sum(terms, axis=-1)
    return xp.stack([entropy, i + reverse, i, reverse])


def _compare_with_average(
    xp: Any, logits: Array, mean: Any, used: Array | None, weights: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Return ``log m``, ``v`` (0 where a member excludes a class), and which classes some and all exclude."""
    least = -float("inf")
    total = _log_sum(xp, logits)
    shift = total - heaviest_of(xp, total, weights)
    aligned = logits - shift
    if used is not None:
        aligned = xp.where(used, aligned, xp.full_like(aligned, least))
    highest = xp.max(aligned, axis=0)
    nobody = highest == least
    base = xp.where(nobody, xp.zeros_like(highest), highest)
    rough = xp.where(nobody, highest, base + xp.log(mean(xp.exp(aligned - base))))
    log_q = rough - _log_sum(xp, rough)
    reference = xp.where(nobody, base, rough)
    excluded = logits == least
    finite = xp.where(excluded, reference, logits)
    if used is not None:  # what has no weight may hold anything
        finite = xp.where(used, finite, reference)
        shift = xp.where(used, shift, xp.zeros_like(shift))
    apart, lost = finite - reference, lost_in_difference(xp, finite, reference)
    # Where a member agrees about the top class, differences are from there: beside a certain class they are
    # all that its own probability is known by.
    top = xp.broadcast_to(xp.argmax(reference, axis=-1)[None, :, None], shift.shape)
    at_top, lost_at_top = apart.gather(-1, top), lost.gather(-1, top)
    agrees = xp.abs(at_top - shift) < 0.5
    offset = xp.where(agrees, at_top, shift)
    d = (apart - offset) + (lost - xp.where(agrees, lost_at_top, xp.zeros_like(shift)))
    d = xp.where(excluded, xp.full_like(d, least), d)
    off = xp.sum(xp.exp(log_q) * xp.expm1(d), axis=-1, keepdims=True)
    near = xp.abs(off) < 0.5
    normaliser = xp.log1p(xp.where(near, off, xp.zeros_like(off)))
    u = d - xp.where(near, normaliser, _log_sum(xp, log_q + d))
    correction = xp.log1p(xp.where(nobody, xp.zeros_like(rough), mean(xp.expm1(u))))
    lowest = float(xp.finfo(u.dtype).min)  # of logits near the end of float32: not infinity, which is exact
    v = xp.where(excluded, xp.zeros_like(u), xp.clip(u - correction, min=lowest))
    return log_q + correction, v, excluded, nobody


def _log_sum(xp: Any, logits: Array) -> Array:
    """Return the logarithm of the sum of exponentials over classes, of which at least one is finite."""
    top = xp.max(logits, axis=-1, keepdims=True)
    return top + xp.log(xp.sum(xp.exp(logits - top), axis=-1, keepdims=True))
