"""Areas under curves over the share of inputs kept, the most certain first: what each is, and its influence.

Counts are of right and wrong predictions per level of the score, from the most certain level on; levels are
last. Tied inputs are equally likely to be kept first, so nothing depends on their order.
"""

from __future__ import annotations

import math

import numpy as np

from demur.tasks.levels import curve_influence

_TABULATED = 1 << 22  # numbers up to which sums of reciprocals are looked up
_AT_ONCE = 1 << 16  # levels whose reciprocals are summed together
_SMALL = 1 << 12  # and from which on their series needs three terms


def _harmonic(number: int) -> np.ndarray:
    """Return the harmonic numbers from 0 to `number`."""
    found = np.arange(number + 1, dtype=float)
    np.divide(1, found[1:], out=found[1:])
    return np.cumsum(found, out=found)


def sum_reciprocals(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return ``1 / (start + 1) + ... + 1 / (start + size)``, of numbers that may be in the billions.

    Examples
    --------
    >>> sum_reciprocals(np.array([0, 1, 10**9]), np.array([2, 0, 10**9]))
    array([1.5       , 0.        , 0.69314718])
    """
    most = int(np.max(start + size))
    table = _harmonic(most if most <= _TABULATED else _SMALL)
    if np.ndim(start) != 1:
        return _sum_between(start, start + size, table)
    # A piece at a time: there may be millions of levels, and the series has a dozen terms.
    parts = [slice(begin, begin + _AT_ONCE) for begin in range(0, len(start), _AT_ONCE)]
    return np.concatenate([_sum_between(start[k], start[k] + size[k], table) for k in parts])


def _sum_between(start: np.ndarray, end: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return differences of harmonic numbers, from a table of all of them or of the small ones."""
    if int(np.max(end)) < len(table):
        return table[end] - table[start]
    low, high = (np.minimum(each, _SMALL) for each in (start, end))
    first, last = (np.maximum(each, _SMALL).astype(float) for each in (start, end))
    # Euler and Maclaurin's: no difference of logarithms, which would leave a level of a few inputs no digits.
    further = np.log1p((last - first) / first) + (1 / last - 1 / first) / 2 - (last**-2 - first**-2) / 12
    return table[high] - table[low] + further


def count_before_levels(
    right: np.ndarray, wrong: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return per level how many inputs it has, their accuracy, and inputs and right ones before it."""
    size = right + wrong
    rate = right / np.maximum(size, 1)
    return size, rate, np.cumsum(size, axis=-1) - size, np.cumsum(right, axis=-1) - right


def area_of(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the mean accuracy over 1, ..., n inputs kept; levels are last.

    With c right among the a inputs before a level of accuracy r, k inputs kept have the accuracy
    ``r + (c - a r) / k``: its sum over the level takes harmonic numbers only.
    """
    size, rate, start, hits = count_before_levels(right, wrong)
    number = np.sum(size, axis=-1)  # resamples of clusters differ in it
    return np.sum(right + (hits - start * rate) * sum_reciprocals(start, size), axis=-1) / number


def excess_of(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return by how much the area is short of that of a ranking with all errors last."""
    hits, number = np.sum(right, axis=-1), np.sum(right + wrong, axis=-1)
    best = (hits + hits * sum_reciprocals(hits, number - hits)) / number
    return best - area_of(right, wrong)


def accuracy_curve(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the expected accuracy of 1, ..., n inputs kept."""
    size, rate, start, hits = count_before_levels(right, wrong)
    kept = np.arange(1, int(size.sum()) + 1)
    return (np.repeat(hits, size) + (kept - np.repeat(start, size)) * np.repeat(rate, size)) / kept


def area_influence(right: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of the area by the weight of a right and of a wrong input, per level."""
    size, _, start, _ = count_before_levels(right, wrong)
    accuracy = accuracy_curve(right, wrong)
    of_wrong, of_right = curve_influence(accuracy, accuracy, np.ones_like(accuracy), start, size)
    return of_wrong + of_right, of_wrong


def excess_influence(right: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of the excess: that of the best area, a - a log a, less the area's."""
    hits, number = int(right.sum()), int(np.sum(right + wrong))
    slope = math.log(number / hits) / number
    of_right, of_wrong = area_influence(right, wrong)
    return slope * (1 - hits / number) - of_right, -slope * hits / number - of_wrong


def generalized_risk_of(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the area under the share of inputs that are kept and wrong, over the share kept.

    The share is linear within a level. So each wrong input adds 1 / n for the share of inputs behind it,
    with half of its own level.
    """
    size, _, start, _ = count_before_levels(right, wrong)
    number = np.sum(size, axis=-1)
    behind = number[..., None] - start - size / 2
    return np.sum(wrong * behind, axis=-1) / np.square(number, dtype=float)


def generalized_risk_influence(right: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of that area by the weight of a right and of a wrong input, per level."""
    size, _, start, _ = count_before_levels(right, wrong)
    number = int(size.sum())
    ahead = np.cumsum(wrong) - wrong / 2  # wrong inputs that one more input of the level is behind
    of_right = ahead / number**2 - 2 * generalized_risk_of(right, wrong) / number
    return of_right, of_right + (number - start - size / 2) / number**2
