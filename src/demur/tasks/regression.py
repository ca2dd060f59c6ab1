"""Whether predicted numbers are what happens: log score, CRPS, coverage and calibration of regressors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from demur.averages import average_of, mean
from demur.core.arrays import as_array, to_numpy
from demur.core.predictive import GaussianMixture, Mixture, in_blocks
from demur.decompose import decompose
from demur.tasks.clusters import Clusters, check_clusters
from demur.tasks.estimate import (
    Estimate,
    IntervalOptions,
    Spread,
    check_share,
    generator,
    normal_quantile,
    student_quantile,
)
from demur.tasks.kept_accuracy import estimate_share

_CELLS = 100  # of the PIT values when their noise is drawn
_RESAMPLES = 1000
_DRAWN_AT_ONCE = 4_000_000  # clusters, over several resamples


class PerInput(NamedTuple):
    """One number per input: losses, predicted mean minus outcome, and the ends of the central interval."""

    nll: np.ndarray | None
    crps: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Regression:
    """How far the average of predicted numbers can be taken at its word.

    Parameters
    ----------
    crps : Estimate
        Mean continuous ranked probability score, in the unit of the outcome; for a single number the
        absolute error.
    nll : Estimate or None
        Mean negative log-density of the outcome, in nats; None for ``Points`` and ``Draws``, which have no
        density.
    rmse : Estimate
        Root of the mean squared error of the mean.
    coverage : Estimate
        Share of outcomes within the central interval of that ``level``, which should be the level.
    width : Estimate
        Mean width of these intervals: of two calibrated models, the narrower one knows more.
    calibration_error : Estimate
        Mean distance between the PIT's quantiles and those of a uniform distribution, from 0 to 1/2. The
        value is biased upward where inputs are few; the interval takes that into account.
    level : float
        Of the intervals.
    pit : (inputs,) array
        Probability integral transform: the average's cdf at the outcome, uniform where it is calibrated.
    histogram : (bins,) array of int
        How many PIT values lie in each of equally wide bins: high at both ends where the model is too sure,
        in the middle where it is too unsure, at one end where it is too high or too low.
    inputs : PerInput
        ``nll``, ``crps``, ``error``, ``low`` and ``high`` of each input.
    """

    crps: Estimate
    nll: Estimate | None
    rmse: Estimate
    coverage: Estimate
    width: Estimate
    calibration_error: Estimate
    level: float
    pit: np.ndarray = field(repr=False, compare=False)
    histogram: np.ndarray = field(repr=False, compare=False)
    inputs: PerInput = field(repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join(f"{name:17} {each}" for name, each in self._figures().items())

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the figures that there are by name."""
        return {name: each.to_dict() for name, each in self._figures().items()}

    def _figures(self) -> dict[str, Estimate]:
        names = ("crps", "nll", "rmse", "coverage", "width", "calibration_error")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def regression(
    prediction: Any,
    outcomes: Any,
    *,
    level: float = 0.9,
    bins: int = 10,
    confidence: float = 0.95,
    weights: Any = None,
    axis: int = 0,
    clusters: Any = None,
    seed: int = 0,
) -> Regression:
    """Return how good and how well calibrated predictions of numbers are, as the average of the members.

    Parameters
    ----------
    prediction
        ``Gaussian``, ``Points`` or ``Draws``, for (members, inputs): one number per input.
    outcomes : (inputs,) array
        What happened.
    level : float
        Of the central intervals whose coverage is counted. Those of n equally likely numbers end at the
        smallest and the largest of them at best, which hold (n - 1) / (n + 1) of the outcomes if these are
        of the same kind.
    bins : int
        Of the histogram of PIT values.
    confidence : float
        Confidence level of the intervals: exact for the coverage, Student's for means.
    weights, axis
        Of the members, as for ``decompose``.
    clusters : (inputs,) array, optional
        A label for each input, as the patient that a visit is of. Inputs of one cluster are not independent:
        intervals are then over draws of whole clusters, with Student's distribution for their number. Those
        of means are corrected for skewness (Hall, 1992): a few clusters with large errors weigh much.
    seed : int
        Of the noise in the lower end of the calibration error, and of the PIT of ``Points`` and ``Draws``:
        their cdf is a staircase, and the PIT is drawn uniformly on the outcome's step.

    Examples
    --------
    Noise of 1 that the members take for 0.5:

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=1000)
    >>> members = demur.Gaussian(truth + 0.2 * rng.normal(size=(5, 1000)), scale=0.5)
    >>> found = demur.tasks.regression(members, truth + rng.normal(size=1000))
    >>> print(found)
    crps              0.6173 [0.5849, 0.6498]
    nll               2.1384 [1.9772, 2.2997]
    rmse              1.0169 [0.9740, 1.0618]
    coverage          0.6040 [0.5729, 0.6345]
    width             1.7457 [1.7416, 1.7499]
    calibration_error 0.0979 [0.0707, 0.1214]
    >>> found.histogram
    array([244,  76,  66,  65,  53,  39,  58,  62,  78, 259])
    """
    options = IntervalOptions(confidence, resamples=_RESAMPLES, seed=seed)
    check_share("level", level)
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1. Got {bins!r}.")
    average, finish = average_of(prediction, weights, axis)
    y = _check_numbers("outcomes", outcomes)
    predicted = finish(average.mean())
    if tuple(predicted.shape) != y.shape:
        raise ValueError(
            f"prediction must be for one number per input, shape (members, {len(y)}) beside these outcomes. "
            f"Got {prediction!r}. Score several outputs one by one."
        )
    tails = ((1 - level) / 2, (1 + level) / 2)
    low, high = (in_blocks(average, lambda part, _, q=q: part.quantile(q)) for q in tails)
    if isinstance(average, GaussianMixture):
        nll = -in_blocks(average, lambda part, block: part.log_density(y[block]))
        crps = in_blocks(average, lambda part, block: part.crps(y[block]))
        pit = in_blocks(average, lambda part, block: part.cdf(y[block]))
    else:
        nll = None
        entropy = decompose(prediction, measure="bma", weights=weights, axis=axis).total
        away = in_blocks(average, lambda part, block: part.mean_distance(y[block]))
        crps = away - to_numpy(entropy).astype(np.float64)
        pit = _draw_pit(average, y, seed)
    error = average.mean() - y
    inside = (low <= y) & (y <= high)
    together = check_clusters(clusters, len(y))
    return Regression(
        crps=_estimate_mean(crps, confidence, together),
        nll=None if nll is None else _estimate_mean(nll, confidence, together),
        rmse=_estimate_root(error**2, confidence, together),
        coverage=estimate_share(inside, together, confidence),
        width=_estimate_mean(high - low, confidence, together),
        calibration_error=_estimate_calibration_error(pit, options, together),
        level=level,
        pit=pit,
        histogram=np.histogram(pit, bins, (0.0, 1.0))[0],
        inputs=PerInput(nll, crps, error, low, high),
    )


def within(predicted: Any, outcomes: Any, tolerance: Any, *, relative: bool = False) -> np.ndarray:
    """Return which predicted numbers are right, up to a tolerance.

    This is ``correct`` for ``misclassification``, ``selective`` and ``Deferral``, where predicting a number
    counts as right or wrong.

    Parameters
    ----------
    predicted
        Numbers, shape (inputs,), or predictions of members, as a ``Gaussian`` or ``Points``, whose mean
        counts.
    outcomes : (inputs,) array
        What happened.
    tolerance : float or (inputs,) array
        How far a right prediction may be off; at least 0.
    relative : bool
        The tolerance is a share of the outcome's size, as 0.1 for 10 %.

    Returns
    -------
    (inputs,) array of bool

    Examples
    --------
    >>> demur.tasks.within([1.0, 9.5, 20.0], [1.2, 10.0, 10.0], 0.5)
    array([ True,  True, False])
    >>> members = demur.Points([[1.0, 9.0], [1.0, 13.0]])
    >>> demur.tasks.within(members, [1.2, 10.0], 0.1, relative=True)
    array([False,  True])
    """
    if type(predicted).__module__.startswith(("demur.", "torch.distributions")):
        predicted = mean(predicted)
    numbers, y = _check_numbers("predicted", predicted), _check_numbers("outcomes", outcomes)
    if numbers.shape != y.shape:
        raise ValueError(
            f"predicted must have one number per outcome, shape {y.shape}. Got {numbers.shape}. "
            "Give predictions of several members as demur.Points."
        )
    allowed = to_numpy(as_array(tolerance)).astype(np.float64)
    if allowed.shape not in ((), y.shape) or not (allowed >= 0).all():
        raise ValueError(
            f"tolerance must be at least 0, one number or one per input, shape {y.shape}. Got {tolerance!r}."
        )
    return np.abs(numbers - y) <= (allowed * np.abs(y) if relative else allowed)


def _check_numbers(name: str, numbers: Any) -> np.ndarray:
    """Return finite numbers, one per input, as float64."""
    values = to_numpy(as_array(numbers))
    if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} must be one number per input, shape (inputs,), of at least one input. "
            f"Got {values.dtype} of shape {values.shape}."
        )
    values = values.astype(np.float64)
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(
            f"{name} must be finite. Got {values[bad][0]:g} at input {bad.argmax()}, and {bad.sum()} such "
            f"numbers in all. Leave these inputs out."
        )
    return values


def _draw_pit(average: Mixture, y: np.ndarray, seed: int) -> np.ndarray:
    """Return PIT values of numbers, drawn uniformly on the step of the cdf where each outcome lies.

    An outcome of the same kind as n numbers falls between any two neighbours, or beyond the first or last,
    with probability 1 / (n + 1): it counts as one more of them.
    """

    def rank(part: Any, block: slice) -> np.ndarray:
        below, equal = part.ranks(y[block])
        own = np.sum(part.shares**2, axis=0)  # 1 / n, n the effective number
        return np.stack([below, equal + own, 1 + own], axis=1)

    below, step, whole = in_blocks(average, rank).T
    return np.minimum((below + step * generator(seed).uniform(size=len(y))) / whole, 1.0)


def _estimate_mean(values: np.ndarray, confidence: float, clusters: Clusters | None) -> Estimate:
    """Return a mean with Student's interval."""
    found = float(values.mean())
    if len(values) == 1:
        return Estimate(found, -math.inf, math.inf, confidence, "asymptotic")
    if clusters is not None:
        return Estimate(found, *clusters.enclose_mean(values, confidence), confidence, "asymptotic")
    half = _student_quantile(values, confidence) * _standard_error(values)
    return Estimate(found, found - half, found + half, confidence, "asymptotic")


def _estimate_root(squares: np.ndarray, confidence: float, clusters: Clusters | None) -> Estimate:
    """Return the root of a mean square with an interval that is symmetric on the logarithmic scale.

    Squares are skewed, and their logarithm's interval holds the truth more often when inputs are few.
    """
    mean_square = float(squares.mean())
    root = math.sqrt(mean_square)
    if len(squares) == 1:
        return Estimate(root, 0.0, math.inf, confidence, "asymptotic")
    if root == 0:
        return Estimate(0.0, 0.0, 0.0, confidence, "asymptotic")
    if clusters is not None:
        low, high = (math.sqrt(max(end, 0.0)) for end in clusters.enclose_mean(squares, confidence))
        return Estimate(root, low, high, confidence, "asymptotic")
    half = _student_quantile(squares, confidence) * _standard_error(squares) / mean_square / 2
    return Estimate(root, root * math.exp(-half), root * math.exp(half), confidence, "asymptotic")


def _student_quantile(values: np.ndarray, confidence: float) -> float:
    return student_quantile(confidence, len(values) - 1)


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _estimate_calibration_error(
    pit: np.ndarray, options: IntervalOptions, clusters: Clusters | None
) -> Estimate:
    """Return the area between the PIT's cdf and the diagonal, with an interval that holds for any size of it.

    Noise adds to the area between the curves, by at most the area of the noise itself: the lower end takes
    its quantile off. It hides at most what noise of one sign does, since neighbouring parts of a cdf vary
    together: the error of the mean PIT, which the upper end adds. Of clusters, whole ones are drawn.
    """
    number = len(pit)
    value = _distance_from_uniform(pit)
    if clusters is None:
        shares = np.histogram(pit, _CELLS, (0.0, 1.0))[0] / number
        drawn = generator(options.seed).multinomial(number, shares, size=options.resamples) / number
        noise = np.abs(np.cumsum(drawn - shares, axis=1)).mean(axis=1)
        spread = Spread((float(pit.std(ddof=1)) if number > 1 else 1.0) / math.sqrt(number))
        wider = 1.0
    else:
        noise, spread = _draw_noise_of_clusters(pit, options, clusters), clusters.spread(pit / number)
        # Draws of G clusters spread too little, and as if their spread were known.
        wider = student_quantile(options.confidence, spread.freedom) / normal_quantile(options.confidence)
        wider *= math.sqrt(clusters.number / (clusters.number - 1))
    low = value - wider * float(np.quantile(noise, (1 + options.confidence) / 2))
    high = value + spread.half(options.confidence)
    return Estimate(value, max(low, 0.0), min(high, 0.5), options.confidence, "asymptotic")


def _draw_noise_of_clusters(pit: np.ndarray, options: IntervalOptions, clusters: Clusters) -> np.ndarray:
    """Return the area between the PIT's cdf and those of draws of whole clusters, (resamples,)."""
    cell = np.minimum((pit * _CELLS).astype(int), _CELLS - 1)
    counts = np.bincount(clusters.codes * _CELLS + cell, minlength=clusters.number * _CELLS)
    counts = counts.reshape(clusters.number, _CELLS).astype(float)
    rng, found, equal = generator(options.seed), [], np.full(clusters.number, 1 / clusters.number)
    rows = max(1, _DRAWN_AT_ONCE // clusters.number)
    for begin in range(0, options.resamples, rows):
        size = min(rows, options.resamples - begin)
        drawn = rng.multinomial(clusters.number, equal, size=size) @ counts
        shares = drawn / drawn.sum(axis=1, keepdims=True) - counts.sum(axis=0) / len(pit)
        found.append(np.abs(np.cumsum(shares, axis=1)).mean(axis=1))
    return np.concatenate(found)


def _distance_from_uniform(pit: np.ndarray) -> float:
    """Return the area between the cdf of some numbers from 0 to 1 and the diagonal."""
    number = len(pit)
    edges = np.arange(number + 1) / number
    ordered = np.sort(pit)

    def signed_square(x: np.ndarray) -> np.ndarray:
        return x * np.abs(x) / 2

    return float(np.sum(signed_square(edges[1:] - ordered) - signed_square(edges[:-1] - ordered)))
