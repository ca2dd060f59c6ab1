"""Whether predicted probabilities are what happens: log loss, Brier score, calibration error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.tasks.clusters import Clusters, check_clusters, spread_of_clusters
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, IntervalOptions, generator, normal_quantile, student_quantile


class Reliability(NamedTuple):
    """Per bin, from the least confident: mean confidence, share of right predictions, number of inputs."""

    confidence: np.ndarray
    accuracy: np.ndarray
    number: np.ndarray


@dataclass(frozen=True, repr=False)
class Calibration(Displayed):
    """How far probabilities can be taken at their word.

    Parameters
    ----------
    nll : Estimate
        Mean negative log-probability of the label, in nats; infinite where a label was excluded.
    brier : Estimate
        Mean squared distance to the label, summed over classes, from 0 to 2.
    ece : Estimate
        Expected calibration error of the most probable class: mean over inputs of the distance between
        confidence and accuracy of their bin. The value is biased upward where bins hold few inputs; the
        interval takes that into account.
    curve : Reliability
        Confidence and accuracy per bin.
    """

    nll: Estimate
    brier: Estimate
    ece: Estimate
    curve: Reliability = field(repr=False, compare=False)

    def _display(self) -> tuple[str, Rows, list[str]]:
        number, confidence = int(self.curve.number.sum()), self.nll.confidence
        title = f"Calibration: {number:,} inputs; {100 * confidence:g} % intervals"
        return title, [[name, str(getattr(self, name))] for name in ("nll", "brier", "ece")], []


def calibration(
    probs: Any,
    labels: Any,
    *,
    bins: int = 15,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    clusters: Any = None,
) -> Calibration:
    """Return how well calibrated predictions are, as those of the average of the members.

    Parameters
    ----------
    probs : (inputs, classes) array
        Probabilities, summing to one.
    labels : (inputs,) array of int
        The true class.
    bins : int
        How many bins of equally many inputs, by confidence; inputs of the same confidence share a bin.
    confidence, resamples, seed
        Confidence level of the intervals, which are normal; `resamples` draws of normal numbers give the
        lower end of `ece`.
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of. Inputs of one cluster are not independent, so
        intervals are then over draws of whole clusters, with Student's distribution for their number.

    Examples
    --------
    >>> probs = [[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]]
    >>> found = demur.tasks.calibration(probs, [0, 0, 0, 1], bins=2)
    >>> print(f"{float(found.brier):.2f} {float(found.ece):.2f}")
    0.30 0.15
    """
    options = IntervalOptions(confidence, resamples=resamples, seed=seed)
    p, y = _check_labels(probs, labels)
    number = len(y)
    if not 1 <= bins <= number:
        raise ValueError(
            f"bins must be from 1 to the number of inputs, {number}. Got {bins!r}. Give more inputs, or pass "
            "bins=."
        )
    with np.errstate(divide="ignore"):
        losses = -np.log(p[np.arange(number), y])
    squares = np.sum((p - (np.arange(p.shape[1]) == y[:, None])) ** 2, axis=1)
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    placed = _assign_bins(sure, bins)
    counts = np.bincount(placed)
    curve = Reliability(
        np.bincount(placed, sure) / counts, np.bincount(placed, right.astype(float)) / counts, counts
    )
    together = check_clusters(clusters, number)
    shifts = None
    if together is not None:
        gaps = right - sure - (curve.accuracy - curve.confidence)[placed]
        flat = together.codes * len(counts) + placed
        shifts = np.bincount(flat, gaps / number, minlength=together.number * len(counts))
        shifts = shifts.reshape(together.number, -1)
    return Calibration(
        _estimate_mean(losses, confidence, together),
        _estimate_mean(squares, confidence, together),
        _estimate_ece(curve, options, shifts),
        curve,
    )


def _check_labels(probs: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities in float64 and labels."""
    p, y = to_numpy(as_array(probs)), to_numpy(as_array(labels))
    tolerance = 4 * math.sqrt(np.finfo(p.dtype).eps) if p.dtype.kind == "f" else 0.0
    p = p.astype(np.float64)
    if p.ndim != 2 or p.size == 0:
        raise ValueError(f"probs must have shape (inputs, classes), of at least one input. Got {p.shape}.")
    if not np.all(p >= 0) or not np.all(np.abs(p.sum(axis=1) - 1) <= tolerance):
        raise ValueError("probs must be at least 0 and sum to one. Got others. Give logits through softmax.")
    if y.shape != p.shape[:1] or y.dtype.kind not in "iu":
        raise ValueError(f"labels must be integers of shape ({len(p)},). Got {y.dtype} of shape {y.shape}.")
    if np.any(y < 0) or np.any(y >= p.shape[1]):
        raise ValueError(f"labels must be from 0 to {p.shape[1] - 1}. Got {y.min()} to {y.max()}.")
    return p / p.sum(axis=1, keepdims=True), y


def _estimate_mean(values: np.ndarray, confidence: float, clusters: Clusters | None) -> Estimate:
    """Return a mean with its normal interval; an infinite one is bounded by nothing above."""
    mean = float(values.mean())
    if math.isinf(mean):
        return Estimate(mean, 0.0, math.inf, confidence, "asymptotic")
    if len(values) == 1:
        return Estimate(mean, 0.0, math.inf, confidence, "asymptotic")
    half = spread_of_clusters(values / len(values), clusters).half(confidence)
    return Estimate(mean, max(mean - half, 0.0), mean + half, confidence, "asymptotic")


def _assign_bins(sure: np.ndarray, bins: int) -> np.ndarray:
    """Return the bin of each input: equally many in each, but for inputs that are equally sure."""
    first = np.searchsorted(np.sort(sure), sure)  # ties are placed where the first of them is
    return np.unique(first * bins // len(sure), return_inverse=True)[1]


def _estimate_ece(curve: Reliability, options: IntervalOptions, shifts: np.ndarray | None) -> Estimate:
    """Return the calibration error with an interval that holds however well calibrated the predictions are.

    The error averages the sizes of the gaps, and noise makes sizes larger. So the error found is above the
    true one by at most the mean size of the noise itself, with equality where there are no true gaps: the
    lower end takes its quantile off. It is below the true one by at most noise with the signs of the true
    gaps, which is normal: the upper end adds its quantile. The noise of an accuracy is found with two right
    and two wrong predictions added (Agresti and Coull, 1998), so that bins without an error have some too.

    `shifts` are what each cluster adds to the gaps, (clusters, bins): the noise of bins then goes together,
    and the signs of the true gaps are taken as those that add the most to it.
    """
    number = curve.number
    shares = number / number.sum()
    value = float(shares @ np.abs(curve.confidence - curve.accuracy))
    accuracy = (curve.accuracy * number + 2) / (number + 4)
    noise = shares * np.sqrt(accuracy * (1 - accuracy) / number)
    normal = generator(options.seed).standard_normal((options.resamples, len(number)))
    if shifts is None:
        sizes, most = np.abs(normal) @ noise, float(np.sqrt(np.sum(noise**2)))
        wider = 1.0
    else:
        clusters = len(shifts)
        covariance = clusters / (clusters - 1) * shifts.T @ shifts
        # Of no bin is more known than if its inputs were independent.
        covariance[np.diag_indices_from(covariance)] = np.maximum(np.diag(covariance), noise**2)
        values, vectors = np.linalg.eigh(covariance)
        sizes = np.sum(np.abs(normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T), axis=1)
        most = float(np.sqrt(np.sum(np.abs(covariance))))
        wider = student_quantile(options.confidence, clusters - 1) / normal_quantile(options.confidence)
    low = value - wider * float(np.quantile(sizes, (1 + options.confidence) / 2))
    high = value + wider * normal_quantile(options.confidence) * most
    return Estimate(value, max(low, 0.0), min(high, 1.0), options.confidence, "asymptotic")
