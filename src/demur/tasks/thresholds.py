"""Thresholds of a score: which there are, what each keeps, and how many of the kept are right."""

from __future__ import annotations

import math

import numpy as np


def find_ends(ranked: np.ndarray) -> np.ndarray:
    """Return the numbers of inputs that a threshold can keep: where no tie of sorted scores is torn apart.

    Examples
    --------
    >>> find_ends(np.array([0.1, 0.2, 0.2, 0.3]))
    array([1, 3, 4])
    """
    return np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, len(ranked))


def find_threshold(ranked: np.ndarray, kept: int) -> float | None:
    """Return the threshold that keeps this many of sorted scores: the largest number below the next score.

    Given that score, the inputs below it are independent draws of what the threshold keeps, which a
    threshold at the last score kept would not give. None keeps nothing.
    """
    if kept == 0:
        return None
    return math.inf if kept == len(ranked) else float(np.nextafter(ranked[kept], -math.inf))


def spread_numbers_kept(ranked: np.ndarray, count: int, also: list[int]) -> np.ndarray:
    """Return about `count` numbers of inputs kept, and `also` some others, that thresholds can keep.

    Half of them lie in the last tenth, where good models have their errors.
    """
    number, ends = len(ranked), find_ends(ranked)
    wanted = np.append(np.linspace(0.9 * 2 / count, 0.9, count // 2), np.linspace(0.9, 1, count // 2))
    places = np.searchsorted(ends, np.clip(np.ceil(number * wanted), 1, number))
    return np.unique([*ends[places], *also]).astype(int)


def count_kept(
    scores: np.ndarray, thresholds: np.ndarray, correct: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return how many scores each threshold keeps, and how many of these are right, where that is known.

    Examples
    --------
    >>> count_kept(np.array([0.3, 0.1, 0.2]), np.array([0.2, 0.5]), np.array([False, True, True]))
    (array([2, 3]), array([2, 2]))
    """
    order = np.argsort(scores, kind="stable")
    kept = np.searchsorted(scores[order], thresholds, side="right")
    right = None if correct is None else np.append(0, np.cumsum(correct[order]))[kept]
    return kept, right
