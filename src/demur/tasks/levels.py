"""Inputs of two kinds counted per level of their score: all that a ranking knows, ties included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Levels:
    """Distinct scores from the highest to the lowest, and how many inputs of each kind have them."""

    scores: np.ndarray  # (levels,)
    positive: np.ndarray  # (levels,) int64
    negative: np.ndarray  # (levels,) int64


def count_levels(scores: np.ndarray, positive: np.ndarray) -> Levels:
    """Return the levels of scores that may be infinite, with positives marked."""
    ranked = np.sort(scores)
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    values = ranked[ends]
    hits = np.searchsorted(np.sort(scores[positive]), values, side="right")
    upward = values, np.diff(hits, prepend=0), np.diff(ends + 1 - hits, prepend=0)
    return Levels(*(part[::-1] for part in upward))


def average_precision(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return the average precision, ``sum (recall_l - recall_(l-1)) precision_l``; levels are last."""
    hits = np.cumsum(positive, axis=-1)
    taken = hits + np.cumsum(negative, axis=-1)
    precision = hits / np.maximum(taken, 1)  # a resample may take nothing of the first levels
    return np.sum(positive * precision, axis=-1) / hits[..., -1]


def average_precision_influence(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of the average precision by the weight of one positive, one negative."""
    hits = np.cumsum(positive)
    taken = hits + np.cumsum(negative)
    value = average_precision(positive, negative)
    later = np.cumsum((positive * (taken - hits) / taken**2.0)[::-1])[::-1]
    of_positive = (hits / taken - value + later) / hits[-1]
    of_negative = -np.cumsum((positive * hits / taken**2.0)[::-1])[::-1] / hits[-1]
    return of_positive, of_negative


def _first_reaching(positive: np.ndarray, share: float) -> np.ndarray:
    """Return the first level down to which at least this share of the positives is taken."""
    hits = np.cumsum(positive, axis=-1)
    return np.argmax(hits / hits[..., -1:] >= share, axis=-1)


def false_positive_rate(positive: np.ndarray, negative: np.ndarray, share: float = 0.95) -> np.ndarray:
    """Return the share of negatives taken at the first level with this share of the positives."""
    alarms = np.cumsum(negative, axis=-1)
    level = _first_reaching(positive, share)
    return np.take_along_axis(alarms, level[..., None], axis=-1)[..., 0] / alarms[..., -1]


def false_positive_rate_influence(
    positive: np.ndarray, negative: np.ndarray, share: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of that rate by the weight of one positive, one negative, per level.

    A positive moves the threshold, and that the rate by the slope of the ROC curve. The slope is taken over
    ranks next to the threshold, a number of them that grows slower than the number of positives.
    """
    hits, alarms = np.append(0, np.cumsum(positive)), np.append(0, np.cumsum(negative))
    positives, negatives = int(hits[-1]), int(alarms[-1])
    level = int(_first_reaching(positive, share))
    reach = max(1.0, positives**0.75 / 4)
    first, last = max(share * positives - reach, 0.0), min(share * positives + reach, float(positives))
    low, high = np.interp([first, last], hits, alarms)
    slope = (high - low) / negatives / ((last - first) / positives)
    taken = np.arange(len(positive)) <= level
    of_positive = -slope * (taken - hits[level + 1] / positives) / positives
    return of_positive, (taken - alarms[level + 1] / negatives) / negatives


def placements(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, per level, the share of negatives below a positive and of positives above a negative.

    Ties count one half. Averages over positives and over negatives are both the AUROC.
    """
    hits, alarms = np.cumsum(positive), np.cumsum(negative)
    below = (alarms[-1] - alarms + negative / 2) / alarms[-1]
    above = (hits - positive / 2) / hits[-1]
    return below, above


def area(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the AUROC. The number of ordered pairs is summed in integers, twice over for the ties."""
    alarms = np.cumsum(negative)
    pairs = 2 * int(positive.sum()) * int(alarms[-1])
    if pairs >= 1 << 62:  # beyond int64
        positive = positive.astype(float)
    return np.sum(positive * (2 * (alarms[-1] - alarms) + negative)).item() / pairs


def curve_influence(
    mean: np.ndarray, value: np.ndarray, slope: np.ndarray, start: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivative of the area under a curve of what is kept by the weight of one input.

    The curve is ``g(mean loss of the first k inputs)``, the area its mean over k = 1, ..., n. The derivative
    is ``a + b * loss`` for an input with that loss, with `a` and `b` for each level of the score. Each input
    of a level is as likely as the others to be kept first.

    Parameters
    ----------
    mean, value, slope : (inputs,)
        Mean loss of the first k inputs, and g and its derivative there.
    start, size : (levels,)
        Where levels begin in the order of the inputs, and how many inputs they have.
    """
    number = len(mean)
    kept = np.arange(1, number + 1)
    share = (kept - np.repeat(start, size)) / np.repeat(size, size)  # of the level that is kept

    def charge(values: np.ndarray) -> np.ndarray:
        after = np.append(np.cumsum(values[::-1])[::-1], 0)[start + size]
        return after + np.add.reduceat(share * values, start)

    constant = np.add.reduceat(value, start) / size - value.mean() - charge(slope * mean / kept)
    return constant / number, charge(slope / kept) / number
