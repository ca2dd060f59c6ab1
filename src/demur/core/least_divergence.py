r"""The least K, I and M of members whose probabilities are known only to lie between bounds.

Each of the three is a sum over classes of a function that is convex in all members' probabilities together,
so a minimum has no rivals. For one class, with shares ``w`` and means over members,

    dK / dp_i = w_i (log p_i + 1 - mean log p - mean p / p_i)
    dM / dp_i = w_i (log mean p + 1 - mean log p - mean p / p_i)
    dI / dp_i = w_i (log p_i - log mean p)

Given the means, each bracket grows with ``p_i`` and is the same function for every member: one common value
``c`` makes it 0, so at the minimum every member is at ``c``, or at its own bound that is nearest to ``c``.
With all members there, the bracket at ``c`` grows with ``c``, and bisection finds where it is 0. Where all
bounds overlap, the minimum is 0.

Two classes share one unknown, ``p`` and ``1 - p``; both brackets together behave in the same way, and the
minimum is exact. With more classes the search drops the condition that a member's probabilities sum to 1,
which can only lower the minimum: it bounds the figure of all members that fit from below.

A probability is its logarithm here, or its logit where it has a complement, so that neither end loses digits.
"""

from __future__ import annotations

from typing import Any

from demur.core.arrays import Array, repeat
from demur.core.logarithms import generalised_kl_term

_HALVINGS = 45
"""Of the interval in which ``c`` lies. The error of a minimum is of second order in that of ``c``."""


def least_terms(xp: Any, low: Array, high: Array, shares: Array, figure: str, *, paired: bool) -> Array:
    """Return the terms of the least K, I or M: (1, ...), or (2, ...) for a class and its complement.

    Parameters
    ----------
    low, high
        Bounds of each member's log-probability, or of its logit if ``paired``; members are first. ``low`` may
        be -inf, and ``high`` inf; some number above -inf and below inf lies between them.
    shares
        Weights that sum to 1 over members, in the same shape. Members of weight 0 have no effect.
    figure
        "K", "I" or "M".
    """
    nobody, infinite = shares == 0, xp.full_like(low, float("inf"))
    low, high = xp.where(nobody, -infinite, low), xp.where(nobody, infinite, high)
    left, right = xp.min(high, axis=0), xp.max(low, axis=0)
    apart = left < right  # else something fits all members, and they need not differ
    left, right = (xp.where(apart, end, xp.zeros_like(end)) for end in (left, right))
    low, high = xp.where(apart, low, -infinite), xp.where(apart, high, infinite)

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = ends
        middle = left + (right - left) / 2
        too_low = _slope(xp, middle, low, high, shares, figure, paired) < 0
        return xp.where(too_low, middle, left), xp.where(too_low, right, middle)

    left, right = repeat(halve, _HALVINGS, (left, right))
    terms = _evaluate(xp, left + (right - left) / 2, low, high, shares, figure, paired)
    return xp.where(apart, terms, xp.zeros_like(terms))


def _slope(
    xp: Any, at: Array, low: Array, high: Array, shares: Array, figure: str, paired: bool
) -> Array:  # fmt: skip
    """Return a number of the sign of the bracket at ``c``, with members as near to it as they can be."""
    u = _nearest(xp, at, low, high) - at
    p, rest = _probabilities(xp, at, paired)
    change = xp.sum(shares * _change(xp, at, u, p, rest, paired), axis=0)
    if figure == "I":
        return -change
    grown = change / p
    shrunk = -change / rest if paired else xp.zeros_like(change)
    slope = -xp.sum(shares * u, axis=0) - (grown - shrunk)
    return slope if figure == "K" else slope + xp.log1p(grown) - xp.log1p(shrunk)


def _evaluate(
    xp: Any, at: Array, low: Array, high: Array, shares: Array, figure: str, paired: bool
) -> Array:  # fmt: skip
    """Return K, I or M of members as near to ``c`` as they can be; differences are taken from ``c``."""
    u = _nearest(xp, at, low, high) - at
    p, rest = _probabilities(xp, at, paired)
    change = _change(xp, at, u, p, rest, paired)
    if not paired:
        sides = [(p, change, u)]
    else:
        # The logarithm that grows is exact; the other is what is left of the logit.
        rises, zero = change > 0, xp.zeros_like(change)
        up = xp.log1p(xp.where(rises, change / p, zero))
        down = xp.log1p(xp.where(rises, zero, -change / rest))
        sides = [(p, change, xp.where(rises, up, u + down)), (rest, -change, xp.where(rises, up - u, down))]
    found = []
    for q, a, log in sides:
        mean, terms = xp.sum(shares * a, axis=0), 0.0
        if figure != "I":
            terms = xp.sum(shares * a * log, axis=0) - mean * xp.sum(shares * log, axis=0)
        if figure != "K":
            phi = xp.sum(shares * generalised_kl_term(xp, a / q, log), axis=0)
            mutual = q * (phi - generalised_kl_term(xp, mean / q, xp.log1p(mean / q)))
            terms = mutual if figure == "I" else terms - mutual
        found.append(terms)
    return xp.stack(found)


def _nearest(xp: Any, at: Array, low: Array, high: Array) -> Array:
    """Return what is nearest to ``c`` within each member's bounds."""
    return xp.minimum(xp.maximum(at[None, ...], low), high)


def _probabilities(xp: Any, at: Array, paired: bool) -> tuple[Array, Array]:
    """Return a probability and its complement, which is 1 where there is none."""
    if not paired:
        return xp.exp(at), xp.ones_like(at)
    return _sigmoid(xp, at), _sigmoid(xp, -at)


def _change(xp: Any, at: Array, u: Array, p: Array, rest: Array, paired: bool) -> Array:
    """Return how far probabilities are from ``c``, given how far their logarithms or logits are."""
    if not paired:
        return p * xp.expm1(u)
    # sigmoid(y) - sigmoid(x) = sigmoid(y) sigmoid(-x) (1 - exp(x - y)) for y above x.
    size, there = -xp.expm1(-xp.abs(u)), at + u
    return xp.where(u > 0, _sigmoid(xp, there) * rest * size, -_sigmoid(xp, -there) * p * size)


def _sigmoid(xp: Any, logit: Array) -> Array:
    """Return ``1 / (1 + exp(-logit))`` without an overflow."""
    odds = xp.exp(-xp.abs(logit))
    return xp.where(logit < 0, odds, xp.ones_like(odds)) / (1 + odds)
