"""Moments made of others, for a measure: divergences scaled, or a given model seen from the members."""

from __future__ import annotations

from typing import Any

from demur.core.arrays import Array
from demur.core.given import given_side, refer_side
from demur.moments import Moments, share_sums


def scale_divergences(moments: Moments, factors: tuple[Array, Array]) -> Moments:
    """Return the same sums, with K, I and M multiplied by factors; see ``jackknife.Estimates``."""
    found = share_sums(moments)
    found._factors = factors
    return found


def sums_of_given(given: Any, moments: Moments) -> Moments:
    """Return a given model's sums relative to the members of ``moments``, to use in several measures."""
    inputs, classes = moments.shape
    side = given_side("given", given, moments.rule, (inputs,), classes)
    found = Moments()
    found.rule = moments.rule
    if side is not None:
        found.state = refer_side(side, moments.rule, moments._filled().reference)
    return found
