"""Bounds of mutual information from the distances of all pairs of members (Kolchinsky and Tracey, 2017)."""

from __future__ import annotations

from typing import Any

from demur.core.arrays import Array
from demur.core.logarithms import log_ratio
from demur.families import Family


def bounds_of(xp: Any, parameters: Array, shares: Array, family: Family) -> tuple[Array, Array]:
    """Return lower and upper bound, (inputs,).

    Parameters
    ----------
    parameters
        Shape (members, inputs, ...).
    shares
        Weights, shape (members, inputs), that sum to 1.
    """
    sums = [xp.zeros_like(shares) for _ in range(4)]
    for j in range(parameters.shape[0]):
        other = parameters[j : j + 1]
        for place, distance in (
            (0, _bhattacharyya(xp, family, parameters, other)),
            (2, family.terms(xp, parameters, other).phi[..., 0]),
        ):
            sums[place] = sums[place] + shares[j] * xp.exp(-distance)
            sums[place + 1] = sums[place + 1] + shares[j] * xp.expm1(-distance)
    one = xp.ones_like(shares)
    lower, upper = (0 - xp.sum(shares * log_ratio(xp, sums[k], one, sums[k + 1]), axis=0) for k in (0, 2))
    return lower, family.tighten_upper_bound(xp, upper, parameters, shares)


def _bhattacharyya(xp: Any, family: Family, p: Array, q: Array) -> Array:
    """Return ``-log`` of the integral of ``sqrt(p q)``.

    In an exponential family it is the mean divergence of the member halfway from both.
    """
    halfway = family.halfway(xp, p, q)
    return (family.terms(xp, halfway, p).phi + family.terms(xp, halfway, q).phi)[..., 0] / 2
