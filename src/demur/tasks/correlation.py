"""Rank correlation: whether a score and a target order the same inputs alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from demur.tasks.clusters import check_clusters, spread_of_clusters
from demur.tasks.estimate import Estimate, IntervalOptions, check_scores, generator, percentile


def rank_correlation(
    scores: Any,
    target: Any,
    *,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 1000,
    seed: int = 0,
    clusters: Any = None,
) -> Estimate:
    """Return Spearman's rank correlation of scores with a target, with an interval over draws of inputs.

    Ties share their ranks. Infinite scores rank above all finite ones.

    Parameters
    ----------
    scores, target : (inputs,) array
        As the aleatoric part, and the entropy of the labels that people gave.
    confidence, resamples, seed
        Confidence level of the interval, number of bootstrap resamples and their seed.
    interval : "auto", "bootstrap" or "asymptotic"
        Quantiles over resampled inputs, or the normal interval of the influence function on Fisher's scale;
        "auto" resamples up to 5,000 inputs.
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of: the interval is then over draws of whole
        clusters, by the influence function unless "bootstrap" is asked for.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=300)
    >>> print(demur.tasks.rank_correlation(x, x + rng.normal(size=300)))
    0.7092 [0.6379, 0.7663]
    """
    options = IntervalOptions(confidence, interval, resamples, None, seed)
    both = [check_scores("scores", scores), check_scores("target", target)]
    if len(both[0]) != len(both[1]):
        raise ValueError(
            f"scores and target must be of the same inputs. Got {len(both[0])} and {len(both[1])} of them."
        )
    levels = [np.unique(each, return_inverse=True)[1] for each in both]
    if any(each.max() == 0 for each in levels):
        raise ValueError("scores and target must each have two different values at least. Got one only.")
    number, rng = len(both[0]), generator(options.seed)
    value = correlation(levels, np.ones(number))
    together = check_clusters(clusters, number)
    resampled = options.uses_bootstrap(number) if together is None else interval == "bootstrap"
    if not resampled and abs(value) < 1:
        half = spread_of_clusters(_influence(levels) / number, together).half(confidence) / (1 - value**2)
        low, high = np.tanh(np.arctanh(value) + half * np.array([-1, 1]))
        return Estimate(value, float(low), float(high), confidence, "asymptotic")
    replicates = []
    while len(replicates) < options.resamples:
        if together is None:
            drawn = np.bincount(rng.integers(0, number, number), minlength=number)
        else:
            drawn = together.draw(rng, 1)[0]
        found = correlation(levels, drawn.astype(float))
        if not np.isnan(found):  # a resample may hold one value only
            replicates.append(found)
    freedom = math.inf if together is None else together.number - 1
    return percentile(value, np.array(replicates), options.confidence, freedom)


def _influence(levels: list[np.ndarray]) -> np.ndarray:
    """Return the derivative of the rank correlation by the share of each input.

    With ranks a and b from -1/2 to 1/2, the covariance E[a b] changes by a b for the input itself, and by the
    mean of b over the inputs that it pushes up in the ranking by a, and of a over those in that by b.
    """
    number = len(levels[0])
    counts = [np.bincount(level) for level in levels]
    a, b = (((np.cumsum(c) - c / 2) / number - 0.5)[level] for c, level in zip(counts, levels, strict=True))

    def push(level: np.ndarray, values: np.ndarray) -> np.ndarray:
        sums = np.bincount(level, values)
        return (sums.sum() - np.cumsum(sums) + sums / 2)[level] / number

    x, y = levels
    covariance, first, second = np.mean(a * b), np.mean(a * a), np.mean(b * b)
    of_covariance = a * b + push(x, b) + push(y, a) - 3 * covariance
    of_first = a * a + 2 * push(x, a) - 3 * first
    of_second = b * b + 2 * push(y, b) - 3 * second
    scale = np.sqrt(first * second)
    return of_covariance / scale - covariance / scale / 2 * (of_first / first + of_second / second)


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
