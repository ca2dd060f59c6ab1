"""Probabilities of logits, and what rules make of them: class by class, and exact beside a certain class."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.arrays import Array
from demur.core.logarithms import epsilon


def softmax(xp: Any, logits: Array) -> Array:
    """Return probabilities."""
    e = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def odds_beside_top(xp: Any, logits: Array) -> Array:
    """Return the odds of each class against the top one, with 0 for the top itself.

    Sums over these keep what is left beside a nearly certain class, which rounding takes from ``1 - p``.
    """
    odds = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    top = one_hot(xp, xp.argmax(logits, axis=-1), logits.shape[-1])
    return xp.where(top, xp.zeros_like(odds), odds)


def own_variance(xp: Any, logits: Array) -> Array:
    """Return ``p (1 - p)`` of each class, exact relative to itself also where ``p`` is next to 1."""
    odds = odds_beside_top(xp, logits)
    rest = xp.sum(odds, axis=-1, keepdims=True)
    top = one_hot(xp, xp.argmax(logits, axis=-1), logits.shape[-1])
    return xp.where(top, rest, odds * ((1 - odds) + rest)) / (1 + rest) ** 2


def vote(xp: Any, p: Array) -> Array:
    """Return 1 for the most probable class, shared among those that tie."""
    # Sums of the same numbers in another order differ in the last digits: that is still a tie.
    top = xp.astype(p >= xp.max(p, axis=-1, keepdims=True) * (1 - 8 * epsilon(xp, p)), p.dtype)
    return top / xp.sum(top, axis=-1, keepdims=True)


def one_hot(xp: Any, index: Array, classes: int) -> Array:
    """Return True at the index and False elsewhere, along a new last axis."""
    places = xp.arange(classes, dtype=index.dtype)
    device = getattr(index, "device", None)
    if hasattr(places, "to") and device is not None:
        places = places.to(device)
    return index[..., None] == places


def sum_classes(numbers: Array) -> Array:
    """Return NumPy sums over the last axis; as a product where that is short, which is faster."""
    if numbers.shape[-1] >= 64:
        return np.add.reduce(numbers, axis=-1)
    return numbers @ np.ones(numbers.shape[-1], numbers.dtype)


def lost_in_difference(xp: Any, left: Array, right: Array) -> Array:
    """Return, exactly, what rounding takes from ``left - right`` (Knuth's sum of two numbers)."""
    rounded = left - right
    of_right = rounded - left
    lost = (left - (rounded - of_right)) - (right + of_right)
    return xp.where(xp.isfinite(lost), lost, 0.0)
