"""Whether two numbers of the same inputs rank them alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.tasks.estimate import Estimate, IntervalOptions, check_scores, generator, percentile


def rank_correlation(
    scores: Any, target: Any, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Estimate:
    """Return Spearman's rank correlation of scores with a target, with a bootstrap interval over inputs.

    Ties share their ranks. Infinite scores rank above all finite ones.

    Parameters
    ----------
    scores, target : (inputs,) array
        As the aleatoric part, and the entropy of the labels that people gave.
    confidence, resamples, seed
        Of the interval, which lies between quantiles of the correlation of resampled inputs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=300)
    >>> print(demur.tasks.rank_correlation(x, x + rng.normal(size=300)))
    0.7092 [0.6379, 0.7663]
    """
    options = IntervalOptions(confidence, "bootstrap", resamples, None, seed)
    both = [check_scores("scores", scores), check_scores("target", target)]
    if len(both[0]) != len(both[1]):
        raise ValueError(
            f"scores and target must be of the same inputs. Got {len(both[0])} and {len(both[1])} of them."
        )
    levels = [np.unique(each, return_inverse=True)[1] for each in both]
    if any(each.max() == 0 for each in levels):
        raise ValueError("scores and target must each have two different values at least. Got one only.")
    number, rng = len(both[0]), generator(options.seed)
    replicates = []
    while len(replicates) < options.resamples:
        drawn = np.bincount(rng.integers(0, number, number), minlength=number).astype(float)
        found = correlation(levels, drawn)
        if not np.isnan(found):  # a resample may hold one value only
            replicates.append(found)
    value = correlation(levels, np.ones(number))
    return percentile(value, np.array(replicates), options.confidence)


def correlation(levels: list[np.ndarray], weights: np.ndarray) -> float:
    """Return the rank correlation of inputs that count so many times each; NaN where ranks do not vary."""
    ranks = []
    for level in levels:
        counts = np.bincount(level, weights)
        middle = np.cumsum(counts) - counts / 2
        centred = middle[level] - weights @ middle[level] / weights.sum()
        ranks.append(centred)
    x, y = ranks
    scale = (weights @ (x * x)) * (weights @ (y * y))
    return float(weights @ (x * y) / np.sqrt(scale)) if scale > 0 else np.nan
