"""AUROCs averaged over draws of the members, with intervals over both inputs and draws.

An AUROC is an average of placements: for each texture the share of images that score below it, and for each
image the share of textures above it. So is any sum of AUROCs, such as the gap between two measures, and so is
its mean over draws. One estimate serves them all.
"""

from __future__ import annotations

import math

import numpy as np

from demur.tasks import Estimate
from demur.tasks.estimate import spread_of
from demur.tasks.paired_tests import place_inputs


def compute_placements(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return placements of all inputs, a row for each draw; scores are (draws, inputs)."""
    return np.stack([place_inputs(each, positive) for each in scores.astype(np.float64)])


def estimate_mean(places: np.ndarray, positive: np.ndarray, confidence: float = 0.95) -> Estimate:
    """Return an average of placements, or of sums and differences of them, with its interval.

    The variance is DeLong's (1988), of the inputs, plus that of the mean of draws; Student's quantile has
    the degrees of freedom of Welch and Satterthwaite.

    Parameters
    ----------
    places
        (draws, inputs).
    positive
        (inputs,), which of them are textures.
    """
    from scipy.special import stdtrit

    draws, number = len(places), int(min(positive.sum(), (~positive).sum()))
    values = places[:, positive].mean(axis=1)
    mean = places.mean(axis=0)
    strata = [mean[positive], mean[~positive]]
    of_inputs = spread_of([(part / len(part), np.ones(len(part))) for part in strata])[0] ** 2
    of_draws = float(values.var(ddof=1)) / draws if draws > 1 else 0.0
    value, variance = float(values.mean()), of_inputs + of_draws
    half = 0.0
    if variance > 0:
        weights = of_inputs**2 / (number - 1) + of_draws**2 / max(draws - 1, 1)
        half = float(stdtrit(variance**2 / weights, (1 + confidence) / 2)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, confidence, "delong")
