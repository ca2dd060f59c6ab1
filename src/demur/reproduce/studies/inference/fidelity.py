"""Figures of merit: how close the predictions of a method are to those of the reference."""

from __future__ import annotations

import math

import numpy as np

from demur.reproduce.studies.inference.predictions import PARTS, Kept, average_members

_GRID = 801
"""Points at which densities are compared; see `measure_mixture_distances`."""
_REACH = 7.0
"""Standard deviations beyond the outermost means that the points reach."""
_FACTOR = 2.0
"""Of the share of inputs that have a part within this factor of the reference's."""


def compare_predictions(own: Kept, reference: Kept, noise: float | None) -> dict[str, float]:
    """Return the figures of a method on one set of inputs.

    Returns
    -------
    dict
        - ``tv``: total variation between the average predictions, mean over inputs. For numbers, between the
          mixtures of Gaussians.
        - ``agreement``: for classes, the share of inputs with the same likeliest class.
        - ``shift``: for numbers, the root mean square difference of the average means, in standard
          deviations of the reference's prediction.
        - ``PART|spearman``, ``PART|ratio``, ``PART|within`` for each of `PARTS`: rank correlation with the
          reference's, ratio of the means over inputs, and share of inputs within a factor of 2 of it. Totals
          and aleatoric parts of numbers may be negative, and have no ratio. A method that only ranks has
          ``k|spearman`` alone.
    """
    if "score" in own:
        return {"k|spearman": correlate_ranks(own["score"], reference["k"])}
    found = {}
    if noise is None:
        gaps, agrees = compare_averages(own["average"], reference["average"])
        found["tv"], found["agreement"] = float(gaps.mean()), float(agrees.mean())
    else:
        found["tv"] = float(measure_mixture_distances(own, reference, noise).mean())
        centres = [average_members(each["means"], each.get("weights")) for each in (own, reference)]
        centre = centres[1]
        spread = average_members((reference["means"] - centre) ** 2, reference.get("weights"))
        found["shift"] = math.sqrt(np.mean((centres[0] - centre) ** 2 / (spread + noise**2)))
    for part in PARTS:
        a, b = own[part], reference[part]
        if noise is None or part in ("k", "i", "m"):
            found[f"{part}|ratio"] = float(a.mean() / b.mean())
            found[f"{part}|within"] = float(((a <= _FACTOR * b) & (b <= _FACTOR * a)).mean())
        found[f"{part}|spearman"] = correlate_ranks(a, b)
    return found


def compare_averages(own: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the total variation of each input's class probabilities, and whether the likeliest class agrees.

    Parameters
    ----------
    own, reference
        (inputs, classes).
    """
    return np.abs(own - reference).sum(axis=1) / 2, own.argmax(axis=1) == reference.argmax(axis=1)


def correlate_ranks(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation; NaN where one of both is the same for all inputs."""
    from scipy.stats import rankdata

    ranks = [rankdata(each) for each in (a, b)]
    if any(np.ptp(each) == 0 for each in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])


def measure_mixture_distances(own: Kept, reference: Kept, noise: float) -> np.ndarray:
    """Return the total variation between two mixtures of Gaussians of one width, for each input.

    By the trapezoidal rule, whose error falls faster than any power of the step for such densities, but for
    the kinks where they cross: with the step of a few hundredths of the noise or less, about 1e-4.
    """
    found = np.empty(own["means"].shape[1])
    for k in range(len(found)):
        centres = [each["means"][:, k] for each in (own, reference)]
        low = min(each.min() for each in centres) - _REACH * noise
        high = max(each.max() for each in centres) + _REACH * noise
        points = np.linspace(low, high, _GRID)
        densities = [
            average_members(np.exp(-(((points - means[:, None]) / noise) ** 2) / 2), _select_weights(each, k))
            for means, each in zip(centres, (own, reference), strict=True)
        ]
        gap = np.abs(densities[0] - densities[1]) / (noise * math.sqrt(2 * math.pi))
        found[k] = np.trapezoid(gap, points) / 2
    return found


def _select_weights(kept: Kept, k: int) -> np.ndarray | None:
    """Return the weights of members for one input."""
    weights = kept.get("weights")
    return weights if weights is None or weights.ndim == 1 else weights[:, k]


def judge_average(kept: Kept, truth: np.ndarray, noise: float | None) -> dict[str, float]:
    """Return the loss of the average prediction in nats, and its accuracy (classes) or RMSE (numbers)."""
    if noise is None:
        probs = kept["average"][np.arange(len(truth)), truth]
        return {
            "nll": float(-np.log(probs).mean()),
            "accuracy": float((kept["average"].argmax(1) == truth).mean()),
        }
    means, weights = kept["means"], kept.get("weights")
    density = average_members(np.exp(-(((truth - means) / noise) ** 2) / 2), weights)
    loss = -np.log(density / (noise * math.sqrt(2 * math.pi)))
    centre = average_members(means, weights)
    return {"nll": float(loss.mean()), "rmse": math.sqrt(np.mean((truth - centre) ** 2))}
