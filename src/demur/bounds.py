"""Bounds of mutual information from the distances of all pairs of members (Kolchinsky and Tracey, 2017)."""

from __future__ import annotations

from typing import Any

from demur.families import Family
from demur.rules import Array


def bounds_of(
    xp: Any, parameters: Array, weights: Array | None, family: Family
) -> tuple[Array, Array]:  # fmt: skip
    """Return lower and upper bound, (inputs,), from parameters (members, inputs, ...)."""
    weights = xp.ones_like(parameters[..., 0]) if weights is None else weights
    shares = weights / xp.sum(weights, axis=0)
    near = xp.zeros_like(shares)
    far = xp.zeros_like(shares)
    for j in range(parameters.shape[0]):
        other = parameters[j : j + 1]
        # Sums of share (exp(-distance) - 1): small where members nearly agree, and exactly 0 at 0.
        far = far + shares[j] * xp.expm1(-family.terms(xp, parameters, other).phi[..., 0])
        near = near + shares[j] * xp.expm1(-bhattacharyya(xp, family, parameters, other))
    lower, upper = (0 - xp.sum(shares * xp.log1p(sums), axis=0) for sums in (near, far))
    return lower, family.tightened(xp, upper, parameters, shares)


def bhattacharyya(xp: Any, family: Family, p: Array, q: Array) -> Array:
    """Return ``-log`` of the integral of ``sqrt(p q)``.

    In an exponential family it is the mean divergence of the member halfway from both.
    """
    halfway = family.halfway(xp, p, q)
    return (family.terms(xp, halfway, p).phi + family.terms(xp, halfway, q).phi)[..., 0] / 2
