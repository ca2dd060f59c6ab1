"""Certified limits of entropy, K, I and M where members list only their likeliest tokens.

Arrays are (steps, members, columns): a column is a token that some member lists at that step. What a member
does not list there lies between 0 and the smallest of its likeliest ones. All tokens that nobody lists
make one more column, the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_DESCENTS = 60
"""Steps towards the least value that fits. Any number gives a valid limit; more make it tighter."""


@dataclass(frozen=True)
class Lists:
    """What members list at each step.

    Attributes
    ----------
    probs
        Listed probabilities, (steps, members, columns); 0 where a member does not list a token.
    listed
        True where it does.
    real
        True where there is a column, (steps, columns): steps have different numbers of them.
    largest
        The largest probability that a token may have which a member does not list, (steps, members).
    weights
        Of members, (members,), summing to 1.
    vocabulary
        The number of tokens; infinity where it is not known.
    rounding
        How far the sum of a member's listed probabilities may be off.
    """

    probs: np.ndarray
    listed: np.ndarray
    real: np.ndarray
    largest: np.ndarray
    weights: np.ndarray
    vocabulary: float
    rounding: float

    @property
    def tail(self) -> np.ndarray:
        """The probability of all that a member does not list, (steps, members)."""
        return np.maximum(0.0, 1.0 - self.probs.sum(axis=-1))

    @property
    def whole(self) -> np.ndarray:
        """True where a member lists the whole vocabulary, (steps, members)."""
        return self.listed.sum(axis=-1) >= self.vocabulary


def bound_entropies(lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest mean entropy of the members, (steps,).

    The tail's entropy is least where its probability is in as few tokens as possible, none above the smallest
    listed one, and largest where it is spread evenly.
    """
    least, most = _bound_tail_entropies(lists)
    listed = -_times_log(lists.probs).sum(axis=-1)
    return (listed + least) @ lists.weights, (listed + most) @ lists.weights


def _bound_tail_entropies(lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    tail, top = lists.tail, lists.largest
    low, high = np.maximum(0.0, tail - lists.rounding), tail + lists.rounding
    low, high = (np.where(lists.whole, 0.0, each) for each in (low, high))
    number = np.maximum(1.0, lists.vocabulary - lists.listed.sum(axis=-1))
    # Both are concave in the tail's probability, the first between whole numbers of tokens of ``top``.
    edges = low, high, np.minimum(high, np.ceil(low / _avoid_zero(top)) * top)
    least = np.minimum.reduce([_concentrate(each, top) for each in edges])
    most = np.maximum(_spread_evenly(low, number), _spread_evenly(high, number))
    return least, most + lists.rounding**2


def _concentrate(mass: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Return the entropy of a probability that is in as few tokens as possible, each at most ``top``."""
    full = np.where(top > 0, np.floor(mass / _avoid_zero(top)), 0.0)
    return -full * _times_log(top) - _times_log(np.maximum(0.0, mass - full * top))


def _avoid_zero(top: np.ndarray) -> np.ndarray:
    """Return a divisor: where a member listed a token that it excludes, nothing is left for others."""
    return np.where(top > 0, top, 1.0)


def _spread_evenly(mass: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return the entropy of a probability that is spread evenly over a number of tokens."""
    with np.errstate(invalid="ignore"):
        return np.where(mass > 0, mass * np.log(number), 0.0) - _times_log(mass)


def bound_information(lists: Lists) -> np.ndarray:
    """Return an upper limit of I, (steps,).

    Tokens that all members list, and one class for the others, say what I is up to the tail. Within the
    tail it is at most the entropy of who is there, and at most the logarithm of how many tokens there are.
    """
    common = lists.listed.all(axis=1) & lists.real
    probs = np.where(common[:, None], lists.probs, 0.0)
    tail = np.maximum(0.0, 1.0 - probs.sum(axis=-1))
    everything = np.concatenate([probs, tail[..., None]], axis=-1)
    mean = np.einsum("m,smc->sc", lists.weights, everything)
    merged = np.einsum("m,smc->s", lists.weights, _times_log(everything)) - _times_log(mean).sum(axis=-1)
    average = tail @ lists.weights
    shares = tail * lists.weights / np.where(average > 0, average, 1.0)[:, None]
    within = -_times_log(shares).sum(axis=-1)
    number = np.maximum(1.0, lists.vocabulary - common.sum(axis=-1))
    slack = lists.rounding * (2 + np.log(1 / max(lists.rounding, 1e-300))) if lists.rounding else 0.0
    found = merged + average * np.minimum(within, np.log(number)) + slack
    most = -_times_log(lists.weights).sum()
    return np.minimum(np.maximum(0.0, found), most)


def bound_divergences(lists: Lists) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lower limits of K, I and M, (steps,).

    Each is convex in the members' probabilities. So the tangent at any point is below it everywhere, and the
    tangent's least value over all probabilities that fit the lists, found exactly, is a valid limit, however
    good the point. A few steps of descent make it a good one.
    """
    cells, low, high = _make_cells(lists)
    k, i, m = (_bound_one(which, cells, low, high, lists) for which in ("K", "I", "M"))
    return np.maximum(k, i + m), i, m


def _make_cells(lists: Lists) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a point that fits the lists, and the least and largest value of each of its numbers.

    The last column is the rest. Each member's numbers sum to 1, up to rounding, at every point that fits.
    """
    steps, members, columns = lists.probs.shape
    top, tail = lists.largest, lists.tail
    missing = ~lists.listed & lists.real[:, None]
    limit = np.minimum(top, tail + lists.rounding)
    low = np.zeros((steps, members, columns + 1))
    high = np.zeros_like(low)
    low[..., :-1] = lists.probs
    high[..., :-1] = np.where(missing, limit[..., None], lists.probs)
    unlisted = np.maximum(0.0, lists.vocabulary - lists.real.sum(axis=-1))[:, None]
    with np.errstate(invalid="ignore"):
        many = np.where(unlisted == 0, 0.0, top * unlisted)
    high[..., -1] = np.minimum(tail + lists.rounding, many)
    # Start from what the members that list a token say of it on average, as far as that fits.
    weight = lists.weights[None, :, None] * lists.listed
    said = (weight * lists.probs).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
    cells = low.copy()
    guess = np.where(missing, np.minimum(said[:, None], high[..., :-1]), 0.0)
    sum_of = guess.sum(axis=-1, keepdims=True)
    room = np.where(
        sum_of > 0, np.minimum(1.0, 0.5 * tail[..., None] / np.where(sum_of > 0, sum_of, 1.0)), 0.0
    )
    cells[..., :-1] += guess * room
    cells[..., -1] = np.maximum(0.0, tail - (guess * room).sum(axis=-1))
    # No free number starts at 0, where slopes are infinite.
    return np.clip(np.maximum(cells, low + 1e-3 * (high - low)), low, high), low, high


def _bound_one(which: str, cells: np.ndarray, low: np.ndarray, high: np.ndarray, lists: Lists) -> np.ndarray:
    """Return the best tangent's least value, after steps towards the point where each tangent is least."""
    best = np.zeros(len(cells))
    free = high > low
    for step in range(_DESCENTS):
        value, slope = _value_and_slope(which, cells, lists.weights)
        corner = _least_corner(slope, low, high, free, lists)
        with np.errstate(invalid="ignore"):
            change = np.where(corner == cells, 0.0, slope * (corner - cells)).sum(axis=(1, 2))
            tangent = value + change  # NaN where a listed probability is 0
        best = np.maximum(best, np.where(np.isnan(tangent), 0.0, tangent))
        cells = cells + 2.0 / (step + 3.0) * (corner - cells)
    return best


def _value_and_slope(which: str, cells: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return K, I or M of numbers that need not sum to 1, and its gradient; NaN where nobody has any."""
    own = weights[None, :, None]
    mean = (own * cells).sum(axis=1, keepdims=True)
    value, slope = np.zeros(len(cells)), np.zeros_like(cells)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs, log_mean = np.log(cells), np.log(mean)
        mean_log = (own * logs).sum(axis=1, keepdims=True)
        if which in ("K", "I"):
            value += np.where(cells > 0, own * cells * (logs - log_mean), 0.0).sum(axis=(1, 2))
            slope += own * (logs - log_mean)
        if which in ("K", "M"):
            value += np.where(mean > 0, mean * (log_mean - mean_log), 0.0).sum(axis=(1, 2))
            ratio = np.where(cells > 0, mean / cells, np.where(mean > 0, np.inf, 1.0))
            slope += own * (log_mean - mean_log + 1.0 - ratio)
    return value, slope


def _least_corner(
    slope: np.ndarray, low: np.ndarray, high: np.ndarray, free: np.ndarray, lists: Lists
) -> np.ndarray:
    """Return where a linear function is least: each member's tail goes to its lowest slopes first."""
    steep = np.where(free, slope, np.inf)
    order = np.argsort(steep, axis=-1, kind="stable")
    room = np.take_along_axis(high - low, order, axis=-1)
    before = np.cumsum(room, axis=-1) - room
    falls = np.take_along_axis(steep, order, axis=-1) < 0  # more of it is better still
    tail = lists.tail[..., None] + np.where(falls, lists.rounding, -lists.rounding)
    given = np.clip(tail - before, 0.0, room)
    corner = low.copy()
    np.put_along_axis(corner, order, np.take_along_axis(low, order, axis=-1) + given, axis=-1)
    return corner


def _times_log(values: np.ndarray) -> np.ndarray:
    """Return ``p log p``, 0 where p is 0."""
    return np.where(values > 0, values * np.log(np.where(values > 0, values, 1.0)), 0.0)
