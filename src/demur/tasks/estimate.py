"""Figures with confidence intervals, which every task returns, and how the intervals are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.progress import progress_bar

Figures = Callable[[np.ndarray, np.ndarray], np.ndarray]  # counts (resamples, levels) twice -> (resamples,)

RESAMPLED_UP_TO = 5000
"""Scores up to which ``interval="auto"`` resamples. Above, influence functions give the same intervals in a
hundredth of the time; ``selective`` says how often both hold the truth."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval.

    Parameters
    ----------
    value : float
        The figure itself, which ``float(estimate)`` returns.
    low, high : float
        The ends of the interval.
    confidence : float
        How often such an interval holds the true value, over repeated draws of the inputs.
    method : str
        How the interval was found: "delong", "bca", "percentile", "asymptotic", "binomial", "exact" or
        "splits"; "obuchowski" is DeLong's with clusters.
    spread : float or None
        The standard deviation over splits, where splits were asked for.

    Examples
    --------
    >>> auroc = demur.tasks.detection([0.1, 0.2, 0.3, 0.4], [0.35, 0.5, 0.6]).auroc
    >>> auroc
    0.9167 [0.2924, 0.9956]
    >>> f"{float(auroc):.3f} in [{auroc.low:.3f}, {auroc.high:.3f}] by {auroc.method}"
    '0.917 in [0.292, 0.996] by delong'
    """

    value: float
    low: float
    high: float
    confidence: float = 0.95
    method: str = ""
    spread: float | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if self.spread is not None:
            return f"{self.value:.4f} ± {self.spread:.4f}"
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        value, around = str(self).split(" ", 1)
        return f"{value} <small>{around}, {100 * self.confidence:g} %</small>"

    def to_dict(self) -> dict[str, float]:
        """Return value, low and high under their names, and the spread where there is one."""
        found = {"value": self.value, "low": self.low, "high": self.high}
        return found if self.spread is None else found | {"spread": self.spread}


@dataclass(frozen=True)
class IntervalOptions:
    """How intervals are found: what ``detection`` and the other tasks take, checked in one place.

    Parameters
    ----------
    confidence : float
        Confidence level of the intervals.
    interval : "auto", "bootstrap" or "asymptotic"
        How those are found that have no closed form; "auto" resamples up to 5,000 scores.
    resamples : int
        How many bootstrap resamples.
    splits : int or None
        Mean and spread over this many disjoint splits instead.
    seed : int
        Seed of resamples and splits.
    """

    confidence: float = 0.95
    interval: str = "auto"
    resamples: int = 2000
    splits: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_share("confidence", self.confidence)
        if self.resamples < 100:
            raise ValueError(f"resamples must be at least 100. Got {self.resamples!r}.")
        if self.interval not in ("auto", "bootstrap", "asymptotic"):
            raise ValueError(f"interval must be 'auto', 'bootstrap' or 'asymptotic'. Got {self.interval!r}.")
        if self.splits is not None and self.splits < 2:
            raise ValueError(f"splits must be at least 2. Got {self.splits!r}.")

    def uses_bootstrap(self, number: int) -> bool:
        """Return whether intervals of so many scores are found by resampling."""
        return self.interval == "bootstrap" or (self.interval == "auto" and number <= RESAMPLED_UP_TO)


class Spread(NamedTuple):
    """A standard error, and the degrees of freedom of Student's distribution that go with it."""

    error: float
    freedom: float = math.inf

    def half(self, confidence: float) -> float:
        """Return how far an interval of this confidence goes to each side."""
        return student_quantile(confidence, self.freedom) * self.error

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of a true value of 0."""
        from scipy.special import stdtr

        return (
            float(2 * stdtr(self.freedom, -abs(value) / self.error)) if self.error > 0 else float(value == 0)
        )


def student_quantile(confidence: float, freedom: float = math.inf) -> float:
    """Return how many standard errors a two-sided interval of this confidence is wide to each side."""
    from scipy.special import ndtri, stdtrit

    if math.isinf(freedom):
        return float(ndtri((1 + confidence) / 2))
    return float(stdtrit(freedom, (1 + confidence) / 2))


def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations a two-sided interval of this confidence is wide to each side."""
    return student_quantile(confidence)


def logit_interval(
    value: float, error: float, confidence: float, method: str, freedom: float = math.inf
) -> Estimate:
    """Return an interval that is symmetric on the logit scale, for a value strictly between 0 and 1."""
    logit = math.log(value) - math.log1p(-value)
    half = student_quantile(confidence, freedom) * error / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-min(max(x, -700.0), 700.0))) for x in (logit - half, logit + half))
    return Estimate(value, low, high, confidence, method)


def share_interval(value: float, spread: Spread, confidence: float, method: str) -> Estimate:
    """Return the interval on the logit scale; of 0 and 1 the value alone, and all where nothing is known."""
    if not math.isfinite(spread.error):
        return Estimate(value, 0.0, 1.0, confidence, method)
    if value in (0, 1):
        return Estimate(value, value, value, confidence, method)
    return logit_interval(value, spread.error, confidence, method, spread.freedom)


def perfect_bound(number: int, confidence: float) -> float:
    """Return the smallest probability under which `number` draws in a row all succeed often enough.

    It is the lower end of the Clopper-Pearson interval of `number` successes out of `number`.
    """
    return ((1 - confidence) / 2) ** (1 / number)


def proportion(successes: int, number: int, confidence: float) -> Estimate:
    """Return a share with its exact (Clopper-Pearson) interval."""
    from scipy.special import betaincinv

    tail, failures = (1 - confidence) / 2, number - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures else 1.0
    return Estimate(successes / number, low, high, confidence, "exact")


def average_splits(values: Sequence[float], confidence: float) -> Estimate:
    """Return mean and spread over splits, with Student's interval of the mean within [0, 1]."""
    from scipy.special import stdtrit

    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * spread / math.sqrt(len(values))
    return Estimate(mean, max(mean - half, 0.0), min(mean + half, 1.0), confidence, "splits", spread)


def percentile(
    value: float, replicates: np.ndarray, confidence: float, freedom: float = math.inf
) -> Estimate:
    """Return the interval between quantiles of bootstrap replicates.

    Replicates of n draws spread by sqrt((n - 1) / n) too little, and as if that spread were known: with few
    degrees of freedom, n - 1, the quantiles are moved outward (Hesterberg, 2015).
    """
    from scipy.special import ndtr

    tail = (1 - confidence) / 2
    if math.isfinite(freedom):
        tail = float(ndtr(-student_quantile(confidence, freedom) * math.sqrt((freedom + 1) / freedom)))
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return _around_value(value, low, high, confidence, "percentile")


def _around_value(value: float, low: float, high: float, confidence: float, method: str) -> Estimate:
    """Return an interval that holds its value, which resampling may leave out where it is extreme."""
    return Estimate(value, min(float(low), value), max(float(high), value), confidence, method)


def bca(value: float, replicates: np.ndarray, acceleration: float, confidence: float) -> Estimate:
    """Return the bias-corrected and accelerated interval of Efron (1987).

    Where all replicates lie on one side of the value the correction is not defined, and the interval is
    that of the quantiles.
    """
    from scipy.special import ndtr, ndtri

    below = np.mean(replicates < value) + np.mean(replicates == value) / 2
    if below in (0, 1):
        return percentile(value, replicates, confidence)
    z0 = float(ndtri(below))
    z = np.array([-1.0, 1.0]) * normal_quantile(confidence) + z0
    low, high = np.quantile(replicates, ndtr(z0 + z / (1 - acceleration * z)))
    return _around_value(value, low, high, confidence, "bca")


def spread_of(influences: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Return standard error and BCa acceleration from the influence of inputs, per stratum.

    Each stratum is (influence, count): the derivative of the figure by the weight of an input, and how many
    inputs have it.
    """
    variance = third = 0.0
    for influence, count in influences:
        number = count.sum()
        if number > 1:
            centred = influence - np.sum(count * influence) / number
            variance += float(np.sum(count * centred**2)) * number / (number - 1)
            third += float(np.sum(count * centred**3))
    return math.sqrt(variance), third / (6 * variance**1.5) if variance > 0 else 0.0


def resample_counts(
    positive: np.ndarray,
    negative: np.ndarray,
    figures: Sequence[Figures],
    options: IntervalOptions,
    *,
    stratified: bool,
    both: bool = True,
) -> list[np.ndarray]:
    """Return bootstrap replicates of figures that depend on counts per level of the score alone.

    Parameters
    ----------
    positive, negative : (levels,) int
        How many inputs of each kind there are at each level.
    stratified : bool
        Whether as many of each kind are drawn as there are; else their numbers vary as inputs do.
    both : bool
        Whether the figures need both kinds: draws of one kind only are then left out.
    """
    levels, resamples = len(positive), options.resamples
    rng = generator(options.seed)
    codes = np.repeat(np.arange(2 * levels), np.concatenate([positive, negative]))
    strata = np.split(codes, [int(positive.sum())]) if stratified else [codes]
    found: list[list[np.ndarray]] = [[] for _ in figures]
    chunk = max(1, 1_000_000 // len(codes))
    with resampling_progress(resamples, len(codes)) as progress:
        for begin in range(0, resamples, chunk):
            rows = min(chunk, resamples - begin)
            drawn = [s[rng.integers(0, len(s), (rows, len(s)), dtype=np.uint32)] for s in strata]
            flat = np.concatenate(drawn, axis=1) + 2 * levels * np.arange(rows)[:, None]
            counts = np.bincount(flat.ravel(), minlength=rows * 2 * levels).reshape(rows, 2, levels)
            if both:
                counts = counts[np.all(counts.any(axis=2), axis=1)]
            for figure, values in zip(figures, found, strict=True):
                values.append(figure(counts[:, 0], counts[:, 1]))
            progress(begin + rows)
    return [np.concatenate(values) for values in found]


def generator(seed: int) -> np.random.Generator:
    """Return random numbers apart from those of ``default_rng(seed)``, which may have made the scores."""
    return np.random.default_rng([seed, 0xDE3])


def resampling_progress(resamples: int, inputs: int) -> AbstractContextManager[Callable[[int], object]]:
    """Return a progress bar for what takes longer than a moment."""
    if resamples * inputs > 2e7:
        return progress_bar(resamples, "resamples")
    return nullcontext(lambda done: None)


def check_share(name: str, share: float) -> None:
    """Raise a `ValueError` unless a share is between 0 and 1; percent are told how to be written."""
    if not 0 < share < 1:
        hint = f" Write {share / 100:g}." if 1 < share < 100 else ""
        raise ValueError(f"{name} must be between 0 and 1, as 0.95. Got {share:g}.{hint}")


def check_scores(name: str, scores: Any) -> np.ndarray:
    """Return scores as float64, one per input; infinities are fine, NaN is not."""
    values = to_numpy(as_array(scores))
    if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be one number per input, shape (inputs,), of at least one input. "
            f"Got {values.dtype} of shape {values.shape}."
        )
    values = values.astype(np.float64)
    missing = np.isnan(values)
    if missing.any():
        raise ValueError(
            f"{name} must be numbers or infinity. Got NaN for {missing.sum()} of {len(values)} inputs, "
            f"first at input {missing.argmax()}. Leave these inputs out or see why they have no score."
        )
    return values


def check_correct(correct: Any, number: int) -> np.ndarray:
    """Return booleans, one per score."""
    values = to_numpy(as_array(correct))
    if values.shape != (number,):
        raise ValueError(f"correct must have shape ({number},), one per score. Got {values.shape}.")
    if values.dtype.kind not in "fiub" or not np.all((values == 0) | (values == 1)):
        raise ValueError(
            "correct must be True (or 1) where the prediction is right and False (or 0) where it is wrong. "
            f"Got {values.dtype} with other values. Compare predictions with labels: predicted == labels."
        )
    return values.astype(bool)
