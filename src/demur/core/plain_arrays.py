"""Figures and sums over members by plain array functions.

summarise    mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``float64``
state_of     sums with the functions of any array library: small inputs, gradients, accelerators
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from demur.core.class_terms import CLOSE, class_terms, mean_phi, phi_of_average
from demur.core.rules import Array, Rule, Terms, epsilon
from demur.core.state import State, pairs_of

_FARTHEST = 600.0  # exponents beyond this take the general way
_FEW = 4096  # numbers up to which one slow call beats three fast ones
_CLOSE_ALL = 1e-13  # of K: below, members are so close that I takes care
_CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member

_NOTHING = contextlib.nullcontext()

# As .max() and .any(), but at once.
_add, _largest, _least, _some = np.add.reduce, np.maximum.reduce, np.minimum.reduce, np.count_nonzero


def _expm1(d: np.ndarray) -> np.ndarray:
    """Return ``exp(d) - 1``; NumPy's own is slow, and needed only where ``d`` is small."""
    if d.size <= _FEW:
        return np.expm1(d)
    growth = np.exp(d)
    growth -= 1.0
    return np.expm1(d, out=growth, where=np.abs(d) < 0.5)


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the sum over the last axis of the product, as is fastest for how the left numbers lie."""
    if left.strides[-1] == left.itemsize:
        return np.vecdot(left, right)
    return np.einsum("...c,...c->...", left, right)


def summarise(logits: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """Return (3, inputs), or None if a number is not finite or digits would be lost.

    Parameters
    ----------
    logits
        Shape (members, inputs, classes), float64.
    weights
        Shape (members, inputs), or None where all weigh the same.
    """
    members, inputs, classes = logits.shape
    share = 1 / members if weights is None else (weights / _add(weights))[..., None]
    finite = _largest(logits, None) < np.inf and _least(logits, None) > -np.inf
    with _NOTHING if finite else np.errstate(invalid="ignore"):  # infinity less infinity: not for here
        below = logits - _largest(logits, 2, keepdims=True)
        chosen = below[0] if weights is None else below[weights.argmax(0), np.arange(inputs)]
        d = below - chosen
        if not (_least(d, None) >= -_FARTHEST and _largest(d, None) <= _FARTHEST):
            return None
    top = chosen.argmax(1)
    if inputs > 1:
        top += np.arange(0, inputs * classes, classes)  # places in the flattened array
    log_q = chosen.copy()
    q = np.exp(log_q)
    q.put(top, 0.0)  # its 1 would round away what log1p needs
    rest = _add(q, 1, keepdims=True)
    q.put(top, 1.0)
    q /= 1.0 + rest
    log_q -= np.log1p(rest)
    a, u = _expm1(d), d
    shift = _dot(a, q)[..., None]
    a -= shift
    a *= share / (1.0 + shift)
    u -= np.log1p(shift)
    au = a * u
    u = _add(u) * share if weights is None else _add(u * share)
    a, au = _add(a), _add(au)
    phi, of_average = au + (u - a), (1.0 + a) * np.log1p(a) - a
    found = np.vecdot(class_terms(a, u, au, phi, of_average, log_q), q)
    if _least(found[1]) < _CLOSE_ALL:
        phi, of_average = mean_phi(a, u, au, au < CLOSE, np.where), phi_of_average(a, np.log1p, np.where)
        found = np.vecdot(class_terms(a, u, au, phi, of_average, log_q), q)
    return None if _some(found[0] < _CANCELLED * found[1]) else found


def state_of(
    xp: Any,
    logits: Array,
    weights: Array | None,
    rule: Rule,
    groups: int,
    ranks: Array | None,
    probs: Array | None = None,
) -> State:
    """Return the state of members.

    Parameters
    ----------
    logits
        Shape (members, inputs, classes), checked, in the widest type of their library.
    weights
        Shape (members, inputs), or None where all weigh 1.
    groups
        Members are dealt to this many groups in turn.
    ranks
        Shape (inputs,): how many members came before, or None for none.
    probs
        The probabilities that the logits were taken from, if they were.
    """
    chosen = first_reference(xp, logits, weights, rule)
    reference = rule.reference(xp, chosen)
    if probs is None or epsilon(xp, logits) < 1e-10:
        terms = rule.terms(xp, logits, chosen)
    else:
        of_heaviest = (heaviest_of(xp, values, weights) for values in (logits, probs))
        lost = lost_in_log(xp, logits, probs, *of_heaviest)
        terms = rule.terms(xp, logits, chosen, lost)
    weights = xp.ones_like(logits[..., 0]) if weights is None else weights
    positive = weights > 0  # pyright: ignore[reportOptionalOperand]
    count = xp.sum(xp.astype(positive, xp.int32), axis=0)
    excluded = terms.excluded
    if excluded is not None and is_concrete(excluded) and not bool(xp.any(excluded)):
        excluded = None
    terms = terms._replace(excluded=excluded)
    entropy = rule.entropy(xp, logits)
    if groups == 1:
        sums = {
            name: None if value is None else value[None, ...]
            for name, value in summed(xp, terms, None, entropy, weights, rule.caps).items()
        }
    else:
        p = rule.likelihood(xp, terms, reference)
        rank = xp.cumsum(xp.astype(positive, xp.int32), axis=0) - 1
        group = (rank if ranks is None else rank + ranks) % groups
        dealt = [
            summed(xp, terms, p, entropy, xp.where(group == g, weights, xp.zeros_like(weights)), rule.caps)
            for g in range(groups)
        ]
        sums = {
            name: None if dealt[0][name] is None else xp.stack([d[name] for d in dealt]) for name in dealt[0]
        }
    heaviest = xp.max(weights, axis=0)
    return State(rule=rule, xp=xp, reference=reference, heaviest=heaviest, count=count, **sums)


def summed(
    xp: Any, terms: Terms, p: Array | None, entropy: Array, weights: Array, caps: bool = False
) -> dict[str, Array | None]:
    """Return the weighted sums over members, without the axis of groups; ``caps``: also of ``w log w``."""
    w = weights[..., None]
    weighted = w * terms.a
    excluded = terms.excluded
    allowed = None
    if excluded is not None:
        allowed = xp.sum(w * xp.astype(~excluded, w.dtype), axis=0)
        excluded = xp.sum(w * xp.astype(excluded, w.dtype), axis=0)
    return {
        "a": xp.sum(weighted, axis=0),
        "u": xp.sum(w * terms.u, axis=0),
        "au": xp.sum(weighted * terms.u, axis=0),
        "phi": xp.sum(w * terms.phi, axis=0),
        "excluded": excluded,
        "allowed": allowed,
        "p": None if p is None else xp.sum(w * p, axis=0),
        "entropy": xp.sum(weights * entropy, axis=0),
        "weight": xp.sum(weights, axis=0),
        "pair_weight": pairs_of(xp, weights),
        "weight_log": _sum_of_logs(xp, weights) if caps else None,
    }


def _sum_of_logs(xp: Any, weights: Array) -> Array:
    """Return the sum of ``w log w``, in which a weight of 0 counts as 0."""
    return xp.sum(weights * xp.log(xp.where(weights > 0, weights, xp.ones_like(weights))), axis=0)


def first_reference(xp: Any, logits: Array, weights: Array | None, rule: Rule) -> Array:
    """Return the heaviest member's logits; classes it excludes come from the first that allows them."""
    # Rounding is relative to the reference's share of the weight, so that share should be large.
    chosen = heaviest_of(xp, logits, weights)
    missing = chosen == -float("inf")
    if not rule.excludes or (is_concrete(missing) and not bool(xp.any(missing))):
        return chosen
    usable = logits - xp.max(logits, axis=-1, keepdims=True) + xp.max(chosen, axis=-1, keepdims=True)
    if weights is not None:
        usable = xp.where((weights > 0)[..., None], usable, xp.full_like(usable, -float("inf")))
    first = xp.argmax(xp.astype(usable > -float("inf"), xp.int32), axis=0)
    members = xp.reshape(xp.arange(logits.shape[0], dtype=first.dtype), (-1, 1, 1))
    allowing = xp.where(members == first[None, ...], usable, xp.full_like(usable, -float("inf")))
    return xp.where(missing, xp.max(allowing, axis=0), chosen)


def heaviest_of(xp: Any, values: Array, weights: Array | None) -> Array:
    """Return what the heaviest member has, the first of equals."""
    if weights is None:
        return values[0, ...]
    order = xp.argmax(weights, axis=0)
    members = xp.reshape(xp.arange(values.shape[0], dtype=order.dtype), (-1, 1))
    mask = (members == order[None, :])[..., None]
    return xp.max(xp.where(mask, values, xp.full_like(values, -float("inf"))), axis=0)


def lost_in_log(xp: Any, logits: Array, probs: Array, chosen: Array, likely: Array) -> Array:
    """Return what the difference of two float32 logarithms lacks of the logarithm of the quotient."""
    positive = likely > 0
    relative = (probs - likely) / xp.where(positive, likely, xp.ones_like(likely))
    near = positive & (xp.abs(relative) < 0.5)
    relative = xp.where(near, relative, xp.zeros_like(relative))
    return xp.where(near, xp.log1p(relative) - (logits - chosen), xp.zeros_like(relative))


def is_concrete(array: Array) -> bool:
    """Tell whether the values are known, so that a branch may depend on them."""
    return not type(array).__name__.endswith("Tracer")
