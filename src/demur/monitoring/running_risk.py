"""An interval for the mean risk so far that holds at all times at once, from audited inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from demur.tasks.estimate import Estimate

Counts = Mapping[float, tuple[int, int, int]]
"""For each probability of an audit, how many audited predictions are right, wrong, and not yet known."""

_CENTRES = np.array([0.0, 0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0])
"""Guesses of the risk; a bettor's variance is smallest where its guess is right."""
_STEEPNESS = 2.0 ** np.arange(-9, 7.5, 0.5)
_LARGEST_STAKE = 0.9
_BISECTIONS = 60


def enclose_risk(counts: Counts, kept: int, least_probability: float, confidence: float) -> Estimate:
    """Return the mean over kept inputs of the probability that each was wrong, with its interval.

    The probability is that before its truth is known, given all that came earlier. With `confidence`, the
    interval holds this mean at all times at once, in whatever way the risk moves.

    For a centre c and a slope b > 0 (or b < 0, for the upper end) that keep 1 + b (E - c) / probability
    positive, and the sum L of its logarithm over audited inputs, exp(L - b * kept * (mean risk - c)) is a
    supermartingale, since 1 + x <= exp(x). Their average over many b and c stays below 2 / (1 - confidence)
    at all times; the ends are the means at which it does not. A label that is missing counts as right for
    the lower end and as wrong for the upper one, so nothing is assumed about why it is missing.

    Parameters
    ----------
    counts
        Audited inputs by their probability.
    kept
        How many were kept, audited or not.
    least_probability
        The smallest probability that an input could have.
    confidence
        Confidence level of both ends together.

    Examples
    --------
    >>> print(enclose_risk({0.1: (960, 40, 0)}, kept=10_000, least_probability=0.1, confidence=0.95))
    0.0400 [0.0203, 0.0689]
    """
    probability = np.array(sorted(counts))
    right, wrong, missing = (np.array([counts[p][k] for p in probability], float) for k in range(3))
    known = float(np.sum((right + wrong) / probability)) if len(probability) else 0.0
    if kept == 0 or not len(probability):
        return Estimate(math.nan, 0.0, 1.0, confidence, "anytime")
    needed = math.log(2 / (1 - confidence))
    low = _find_end(probability, right + missing, wrong, kept, least_probability, needed, sign=1)
    high = _find_end(probability, right, wrong + missing, kept, least_probability, needed, sign=-1)
    value = float(np.sum(wrong / probability)) / known if known else math.nan
    return Estimate(value, min(low, value), max(high, value), confidence, "anytime")


def _find_end(
    probability: np.ndarray,
    right: np.ndarray,
    wrong: np.ndarray,
    kept: int,
    least: float,
    needed: float,
    *,
    sign: int,
) -> float:
    """Return the lower end (`sign` 1) or the upper end (-1)."""
    slope, centre = (each.ravel() for each in np.meshgrid(sign * least * _STEEPNESS, _CENTRES))
    worst = np.maximum(slope * centre, -slope * (1 - centre)) / least
    slope, centre = slope[worst <= _LARGEST_STAKE], centre[worst <= _LARGEST_STAKE]
    ratio = slope[:, None] / probability
    growth = np.log1p(-ratio * centre[:, None]) @ right + np.log1p(ratio * (1 - centre[:, None])) @ wrong

    def exceeds(mean: float) -> bool:
        capital = growth - slope * (kept * (mean - centre))
        return float(np.logaddexp.reduce(capital)) - math.log(len(slope)) >= needed

    # Capital falls as the mean approaches the other end, and never ends above `needed` there for sure.
    inside, outside = (1.0, 0.0) if sign == 1 else (0.0, 1.0)
    if not exceeds(outside):
        return outside
    if exceeds(inside):
        return inside
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        if exceeds(middle):
            outside = middle
        else:
            inside = middle
    return outside
