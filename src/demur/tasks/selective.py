"""Selective prediction: how accurate predictions are when the least certain ones are left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from demur.tasks.clusters import check_clusters
from demur.tasks.detection import split_inputs
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import (
    Estimate,
    Figures,
    IntervalOptions,
    average_splits,
    bca,
    check_correct,
    check_scores,
    logit_interval,
    normal_quantile,
    percentile,
    perfect_bound,
    resample_counts,
    spread_of,
)
from demur.tasks.kept_accuracy import ClusteredInputs, accuracy_intervals, coverage_interval
from demur.tasks.levels import count_levels, curve_influence
from demur.tasks.paired_tests import bootstrap_figures


class Kept(NamedTuple):
    """Accuracy over the fraction kept, the most certain first: a point for each number of inputs kept."""

    kept: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True, repr=False)
class Selective(Displayed):
    """Accuracy over the fraction kept.

    Inputs with the same score are equally likely to be kept first: the accuracy is that expected over random
    orders of them.

    Parameters
    ----------
    auc : Estimate
        Area under the accuracy over the fraction kept: its mean over 1, 2, ..., n inputs kept.
    aurc : Estimate
        Area under the risk (share of errors) over the fraction kept, ``1 - auc``.
    excess : Estimate
        By how much `aurc` exceeds that of a ranking that has all errors last.
    """

    auc: Estimate
    aurc: Estimate
    excess: Estimate
    right: np.ndarray = field(repr=False, compare=False)  # per level, the most certain first
    wrong: np.ndarray = field(repr=False, compare=False)
    options: IntervalOptions = field(repr=False)
    together: ClusteredInputs | None = field(default=None, repr=False, compare=False)

    def _display(self) -> tuple[str, Rows, list[str]]:
        number, right = int(np.sum(self.right + self.wrong)), int(np.sum(self.right))
        together = f", {self.together.clusters.number:,} clusters" if self.together else ""
        title = (
            f"Selective: {number:,} inputs, {right:,} right{together}; "
            f"{100 * self.options.confidence:g} % intervals"
        )
        return title, [[name, str(getattr(self, name))] for name in ("auc", "aurc", "excess")], []

    @property
    def curve(self) -> Kept:
        """Fractions kept and the accuracy of what is kept."""
        accuracy = accuracy_curve(self.right, self.wrong)
        return Kept(np.arange(1, len(accuracy) + 1) / len(accuracy), accuracy)

    def accuracy_at(self, coverage: float) -> Estimate:
        """Return the accuracy of the most certain share of the inputs.

        The interval is by bootstrap up to 5,000 inputs, as `interval` says. Above, and with clusters, it is
        Clopper-Pearson's for as many independent inputs as would give the same standard error.
        """
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must be above 0 and at most 1. Got {coverage!r}.")
        if self._resamples:
            return self.figure(lambda right, wrong: _accuracy_of(right, wrong, coverage))
        kept = coverage * np.sum(self.right + self.wrong)
        confidence = self.options.confidence
        found = accuracy_intervals(self.right, self.wrong, kept[None], confidence, self.together)
        value, low, high = (float(each[0]) for each in found)
        return Estimate(value, min(low, value), max(high, value), confidence, "asymptotic")

    def coverage_at(self, accuracy: float) -> Estimate:
        """Return the largest share that can be kept with at least this accuracy.

        It describes these inputs. For a threshold that holds for new ones, use ``Deferral``. The interval is
        by bootstrap up to 5,000 inputs, as `interval` says. Above, and with clusters, it is between the
        largest shares whose accuracy is surely, and is possibly, that high.
        """
        if not 0 < accuracy <= 1:
            raise ValueError(f"accuracy must be above 0 and at most 1. Got {accuracy!r}.")
        if self._resamples:
            return self.figure(lambda right, wrong: _coverage_of(right, wrong, accuracy))
        value = float(_coverage_of(self.right[None], self.wrong[None], accuracy)[0])
        given = self.right, self.wrong, accuracy, self.options.confidence
        return coverage_interval(value, *given, self.together)

    @property
    def _resamples(self) -> bool:
        """Whether intervals are found by resampling."""
        if self.together is not None:
            return self.options.interval == "bootstrap"
        return self.options.uses_bootstrap(int(np.sum(self.right + self.wrong)))

    def figure(self, figure: Figures) -> Estimate:
        """Return any figure of the counts per level with its percentile interval, always by bootstrap."""
        value = float(figure(self.right[None], self.wrong[None])[0])
        if self.together is not None:
            replicates = _resample_clusters(self.together, figure, self.options)
            freedom = self.together.clusters.number - 1
            return percentile(value, replicates, self.options.confidence, freedom)
        (replicates,) = resample_counts(
            self.right, self.wrong, [figure], self.options, stratified=False, both=False
        )
        return percentile(value, replicates, self.options.confidence)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the areas under their names."""
        return {name: getattr(self, name).to_dict() for name in ("auc", "aurc", "excess")}


def selective(
    scores: Any,
    correct: Any,
    *,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    splits: int | None = None,
    seed: int = 0,
    clusters: Any = None,
) -> Selective:
    """Return how accurate predictions are when only the most certain are kept.

    Parameters
    ----------
    scores : (inputs,) array
        Uncertainty of each input, higher = less certain; infinity is above every finite score.
    correct : (inputs,) array of bool
        Whether the prediction is right.
    confidence, interval, resamples, splits, seed
        As for ``detection``. Intervals of areas are found by resampling (BCa), or from their influence
        functions; "auto" resamples up to 5,000 scores.
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of. Inputs of one cluster are not independent, so
        intervals are over draws of whole clusters: by influence functions summed over clusters and Student's
        distribution for their number, or, with "bootstrap", by resampling clusters.

    Notes
    -----
    How often 95 % intervals of `auc` held the truth, in percent of 1,000 simulated draws (standard error
    0.7), influence function and, in brackets, BCa:

    ======  ============  ===========  ===========
    inputs  25 % errors   5 % errors   1 % errors
    ======  ============  ===========  ===========
    500     96.2 (95.9)   93.7 (93.1)  88.8 (88.0)
    2,000   94.9 (94.0)   95.8 (95.5)  94.0 (92.7)
    5,001   95.0          94.8         94.6
    ======  ============  ===========  ===========

    With 20 levels of tied scores both were within 0.7 of these. Neither is better anywhere, and both are too
    short where there are a handful of errors. At 100,000 scores the influence function takes a hundredth of
    the time.

    Examples
    --------
    >>> s = demur.tasks.selective([0.1, 0.2, 0.8, 0.9], [True, True, True, False])
    >>> print(f"{float(s.auc):.4f}")
    0.9375
    >>> float(s.accuracy_at(0.75)), float(s.coverage_at(1.0))
    (1.0, 0.75)
    """
    options = IntervalOptions(confidence, interval, resamples, splits, seed)
    values = check_scores("scores", scores)
    correct = check_correct(correct, len(values))
    right, wrong = count_right_and_wrong(values, correct)
    groups = check_clusters(clusters, len(values), splits)
    if groups is not None:
        together = ClusteredInputs(np.unique(values, return_inverse=True)[1].ravel(), correct, groups)
        auc, excess = _estimate_in_clusters(right, wrong, together, options)
        aurc = Estimate(1 - auc.value, 1 - auc.high, 1 - auc.low, confidence, auc.method)
        return Selective(auc, aurc, excess, right, wrong, options, together)
    if splits is not None:
        parts = [count_right_and_wrong(values[s], correct[s]) for s in split_inputs(correct, splits, seed)]
        auc = average_splits([float(area_of(*part)) for part in parts], confidence)
        excess = average_splits([float(excess_of(*part)) for part in parts], confidence)
    else:
        auc, excess = _estimate_areas(right, wrong, options)
    aurc = Estimate(1 - auc.value, 1 - auc.high, 1 - auc.low, confidence, auc.method, auc.spread)
    return Selective(auc, aurc, excess, right, wrong, options)


def count_right_and_wrong(scores: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many right and wrong predictions there are per level, the most certain first."""
    levels = count_levels(scores, correct)
    return levels.positive[::-1], levels.negative[::-1]


def _harmonic(number: int) -> np.ndarray:
    """Return the harmonic numbers from 0 to `number`."""
    return np.append(0, np.cumsum(1 / np.arange(1, number + 1)))


def _before_levels(
    right: np.ndarray, wrong: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return per level how many inputs it has, their accuracy, and inputs and right ones before it."""
    size = right + wrong
    rate = right / np.maximum(size, 1)
    return size, rate, np.cumsum(size, axis=-1) - size, np.cumsum(right, axis=-1) - right


def area_of(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the mean accuracy over 1, ..., n inputs kept; levels are last.

    With c right among the a inputs before a level of accuracy r, k inputs kept have the accuracy
    ``r + (c - a r) / k``: its sum over the level takes harmonic numbers only.
    """
    size, rate, start, hits = _before_levels(right, wrong)
    number = np.sum(size, axis=-1)  # resamples of clusters differ in it
    table = _harmonic(int(np.max(number)))
    steps = table[start + size] - table[start]
    return np.sum(right + (hits - start * rate) * steps, axis=-1) / number


def excess_of(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return by how much the area is short of that of a ranking with all errors last."""
    hits, number = np.sum(right, axis=-1), np.sum(right + wrong, axis=-1)
    table = _harmonic(int(np.max(number)))
    best = (hits + hits * (table[number] - table[hits])) / number
    return best - area_of(right, wrong)


def accuracy_curve(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the expected accuracy of 1, ..., n inputs kept."""
    size, rate, start, hits = _before_levels(right, wrong)
    kept = np.arange(1, int(size.sum()) + 1)
    return (np.repeat(hits, size) + (kept - np.repeat(start, size)) * np.repeat(rate, size)) / kept


def _accuracy_of(right: np.ndarray, wrong: np.ndarray, coverage: float) -> np.ndarray:
    """Return the accuracy of the most certain share, tied inputs kept in part; (resamples, levels)."""
    size, rate, start, hits = _before_levels(right, wrong)
    kept = coverage * np.sum(size, axis=-1)
    level = np.argmax(start + size >= kept[:, None], axis=-1)[:, None]
    at_rate, at_start, at_hits = (np.take_along_axis(x, level, axis=-1)[:, 0] for x in (rate, start, hits))
    return (at_hits + (kept - at_start) * at_rate) / kept


def _coverage_of(right: np.ndarray, wrong: np.ndarray, accuracy: float) -> np.ndarray:
    """Return the largest share kept with at least this accuracy; (resamples, levels).

    Within a level the accuracy is monotone in the number kept. So the last level whose end is good enough
    counts whole, and of the next one as many inputs as its accuracy allows.
    """
    size, rate, start, hits = _before_levels(right, wrong)
    ends = start + size
    good = (hits + right >= accuracy * ends) & (ends > 0)
    found = good.shape[-1] - 1 - np.argmax(good[:, ::-1], axis=-1)[:, None]
    any_good = good.any(axis=-1)
    following = np.minimum(found + 1, good.shape[-1] - 1)
    r, a, c = (np.take_along_axis(x, following, axis=-1)[:, 0] for x in (rate, start, hits))
    end = np.take_along_axis(ends, found, axis=-1)[:, 0]
    kept = np.floor(np.divide(c - a * r, accuracy - r, out=np.zeros(len(r)), where=r < accuracy))
    kept = np.where(found[:, 0] == following[:, 0], end, np.maximum(kept, end))
    return np.where(any_good, kept, 0) / np.sum(size, axis=-1)


def area_influence(right: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of the area by the weight of a right and of a wrong input, per level."""
    size, _, start, _ = _before_levels(right, wrong)
    accuracy = accuracy_curve(right, wrong)
    of_wrong, of_right = curve_influence(accuracy, accuracy, np.ones_like(accuracy), start, size)
    return of_wrong + of_right, of_wrong


def _perfect_area(value: float, number: int, confidence: float) -> Estimate:
    """Return the area where all predictions are right (1), or all wrong (0), with its exact bound."""
    bound = perfect_bound(number, confidence)
    return Estimate(value, min(value, bound), max(value, 1 - bound), confidence, "exact")


def excess_influence(right: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives of the excess: that of the best area, a - a log a, less the area's."""
    hits, number = int(right.sum()), int(np.sum(right + wrong))
    slope = math.log(number / hits) / number
    of_right, of_wrong = area_influence(right, wrong)
    return slope * (1 - hits / number) - of_right, -slope * hits / number - of_wrong


def _excess_bound(right: np.ndarray, wrong: np.ndarray, pairs: int, confidence: float) -> float:
    """Return how large the excess may be where all errors of these inputs come last.

    With k inputs of the rarer kind there are k pairs of a right and a wrong one that share no input. Where
    all are in order, the exact bound of none out of k is on the share of errors that come before all others.
    """
    hits, errors = int(right.sum()), int(wrong.sum())
    accuracy = hits / (hits + errors)
    first = (1 - accuracy) * (1 - perfect_bound(pairs, confidence))
    end = first + accuracy
    return first * math.log(end / first) + accuracy * math.log(end / accuracy)


def _estimate_areas(
    right: np.ndarray, wrong: np.ndarray, options: IntervalOptions
) -> tuple[Estimate, Estimate]:
    """Return area and excess, with BCa intervals or those of their influence functions."""
    confidence = options.confidence
    value, over = float(area_of(right, wrong)), float(excess_of(right, wrong))
    if not right.any() or not wrong.any():
        auc = _perfect_area(value, int(np.sum(right + wrong)), confidence)
        return auc, Estimate(0.0, 0.0, auc.high - auc.low, confidence, "exact")
    counts = np.concatenate([right, wrong])
    (error, acceleration), (over_error, over_acceleration) = (
        spread_of([(np.concatenate(of(right, wrong)), counts)]) for of in (area_influence, excess_influence)
    )
    if options.uses_bootstrap(int(counts.sum())):
        drawn = resample_counts(right, wrong, [area_of, excess_of], options, stratified=False, both=False)
        auc = bca(value, drawn[0], acceleration, confidence)
        excess = bca(over, drawn[1], over_acceleration, confidence)
    else:
        auc = logit_interval(value, error, confidence, "asymptotic")
        half = normal_quantile(confidence) * over_error
        excess = Estimate(over, over - half, over + half, confidence, "asymptotic")
    # Rounding can leave replicates of a perfect ranking at -2e-16.
    pairs = min(int(right.sum()), int(wrong.sum()))
    most = max(excess.high, _excess_bound(right, wrong, pairs, confidence))
    return auc, replace(excess, low=max(excess.low, 0.0), high=most)


def _estimate_in_clusters(
    right: np.ndarray, wrong: np.ndarray, together: ClusteredInputs, options: IntervalOptions
) -> tuple[Estimate, Estimate]:
    """Return area and excess with intervals over draws of whole clusters."""
    confidence, clusters = options.confidence, together.clusters
    value, over = float(area_of(right, wrong)), float(excess_of(right, wrong))
    if not right.any() or not wrong.any():
        auc = _perfect_area(value, clusters.number, confidence)
        return auc, Estimate(0.0, 0.0, auc.high - auc.low, confidence, "exact")
    of_area, of_excess = (
        clusters.spread(np.where(together.correct, of_right[together.level], of_wrong[together.level]))
        for of_right, of_wrong in (area_influence(right, wrong), excess_influence(right, wrong))
    )
    if options.interval == "bootstrap":
        auc, excess = (
            percentile(known, _resample_clusters(together, figure, options), confidence, clusters.number - 1)
            for known, figure in ((value, area_of), (over, excess_of))
        )
    else:
        auc = logit_interval(value, of_area.error, confidence, "asymptotic", of_area.freedom)
        half = of_excess.half(confidence)
        excess = Estimate(over, over - half, over + half, confidence, "asymptotic")
    pairs = clusters.count_pairs(together.correct)
    most = max(excess.high, _excess_bound(right, wrong, pairs, confidence))
    return auc, replace(excess, low=max(excess.low, 0.0), high=most)


def _resample_clusters(together: ClusteredInputs, figure: Figures, options: IntervalOptions) -> np.ndarray:
    """Return bootstrap replicates of a figure of right and wrong inputs per level, by whole clusters."""
    scores = {"": -together.level.astype(float)}  # so that the most certain are the first
    given = {"stratified": False, "both": False, "clusters": together.clusters}
    return bootstrap_figures(scores, together.correct, figure, options, **given)[""]
