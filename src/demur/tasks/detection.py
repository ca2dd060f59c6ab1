"""Do scores tell inputs of one kind from those of another: AUROC, average precision, FPR at 95 % TPR."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from demur.tasks.estimate import (
    Estimate,
    all_alike,
    bca,
    check_options,
    checked_correct,
    checked_scores,
    generator,
    method_for,
    over_splits,
    percentile,
    proportion,
    quantile,
    resampled,
    spread_of,
    within_unit,
)
from demur.tasks.levels import (
    Levels,
    area,
    average_precision,
    average_precision_influence,
    false_positive_rate,
    first_reaching,
    levels_of,
    placements,
)


class Roc(NamedTuple):
    """False and true positive rate where scores from the threshold up are taken, from 0 to 1."""

    fpr: np.ndarray
    tpr: np.ndarray
    thresholds: np.ndarray


@dataclass(frozen=True)
class Detection:
    """How well a score finds the positives.

    Parameters
    ----------
    auroc : Estimate
        Probability that a positive scores higher than a negative; ties count one half.
    aupr : Estimate
        Average precision.
    fpr95 : Estimate
        False positive rate at the first threshold with a true positive rate of at least 0.95.
    positives, negatives : int
        How many inputs of each kind.
    """

    auroc: Estimate
    aupr: Estimate
    fpr95: Estimate
    positives: int
    negatives: int
    levels: Levels = field(repr=False, compare=False)

    @property
    def curve(self) -> Roc:
        """The whole ROC curve: a point for each distinct score, none left out; the first threshold is NaN.

        At the first point nothing is taken, which no threshold gives where a score is infinite.
        """
        hits = np.append(0, np.cumsum(self.levels.positive))
        alarms = np.append(0, np.cumsum(self.levels.negative))
        return Roc(alarms / alarms[-1], hits / hits[-1], np.append(np.nan, self.levels.scores))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the three figures under their names."""
        return {name: getattr(self, name).to_dict() for name in ("auroc", "aupr", "fpr95")}


def detection(
    id_scores: Any,
    ood_scores: Any,
    *,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    splits: int | None = None,
    seed: int = 0,
) -> Detection:
    """Return how well scores tell out-of-distribution (or attacked) inputs from in-distribution ones.

    Parameters
    ----------
    id_scores, ood_scores : (inputs,) array
        Uncertainty of each input, higher = less certain; infinity is above every finite score. The positives
        are the out-of-distribution inputs.
    confidence : float
        Of the intervals.
    interval : "auto", "bootstrap" or "asymptotic"
        How the intervals of `aupr` and `fpr95` are found: by resampling each kind of inputs (BCa and
        percentile), or from influence functions and order statistics. "auto" resamples up to 100,000 scores.
        The interval of the AUROC is always DeLong's on the logit scale, and never narrower to one side than
        what as many perfectly ranked inputs would allow.
    resamples : int
        How many bootstrap resamples.
    splits : int or None
        Give mean and spread over this many random, disjoint splits of both kinds of inputs instead.
    seed : int
        Of resamples and splits.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> d = demur.tasks.detection(rng.normal(0, 1, 500), rng.normal(1, 1, 500))
    >>> print(d.auroc)
    0.7559 [0.7252, 0.7842]
    """
    known, unknown = checked_scores("id_scores", id_scores), checked_scores("ood_scores", ood_scores)
    scores = np.concatenate([known, unknown])
    positive = np.arange(len(scores)) >= len(known)
    return ranked(scores, positive, confidence, interval, resamples, splits, seed, stratified=True)


def misclassification(
    scores: Any,
    correct: Any,
    *,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    splits: int | None = None,
    seed: int = 0,
) -> Detection:
    """Return how well scores find wrong predictions: as ``detection``, with errors as the positives.

    The number of errors is itself a matter of chance, so resamples draw inputs, not each kind apart.

    Parameters
    ----------
    scores : (inputs,) array
        Uncertainty of each input, higher = less certain.
    correct : (inputs,) array of bool
        Whether the prediction is right.
    confidence, interval, resamples, splits, seed
        As for ``detection``.

    Examples
    --------
    >>> found = demur.tasks.misclassification([0.1, 0.2, 0.8, 0.9], [True, True, True, False])
    >>> float(found.auroc), float(found.aupr), float(found.fpr95)
    (1.0, 1.0, 0.0)
    """
    values = checked_scores("scores", scores)
    right = checked_correct(correct, len(values))
    if right.all() or not right.any():
        raise ValueError(
            "correct must have both right and wrong predictions to tell apart. "
            f"Got {len(right)} that are all {'right' if right.all() else 'wrong'}. Use more inputs."
        )
    return ranked(values, ~right, confidence, interval, resamples, splits, seed, stratified=False)


def ranked(
    scores: np.ndarray,
    positive: np.ndarray,
    confidence: float,
    interval: str,
    resamples: int,
    splits: int | None,
    seed: int,
    *,
    stratified: bool,
) -> Detection:
    """Return the figures of scores with positives marked."""
    check_options(confidence, resamples)
    method = method_for(interval, len(scores))
    levels = levels_of(scores, positive)
    if splits is None:
        auroc = delong(levels, confidence)
        if method == "bootstrap":
            aupr, fpr95 = by_resampling(levels, confidence, resamples, seed, stratified)
        else:
            aupr, fpr95 = (
                precision_asymptotic(levels, confidence, stratified),
                alarms_asymptotic(levels, confidence),
            )
    else:
        parts = [levels_of(scores[s], positive[s]) for s in split(positive, splits, seed)]
        figures = (area, average_precision, false_positive_rate)
        auroc, aupr, fpr95 = (
            over_splits([float(figure(p.positive, p.negative)) for p in parts], confidence)
            for figure in figures
        )
    return Detection(auroc, aupr, fpr95, int(positive.sum()), int((~positive).sum()), levels)


def split(positive: np.ndarray, splits: int, seed: int) -> list[np.ndarray]:
    """Return disjoint parts of the inputs, each with its share of both kinds."""
    fewest = int(min(positive.sum(), (~positive).sum()))
    if not 2 <= splits <= fewest:
        raise ValueError(
            f"splits must be from 2 to the number of inputs of the rarer kind, {fewest}. Got {splits!r}."
        )
    rng = generator(seed)
    kinds = [rng.permutation(np.flatnonzero(kind)) for kind in (positive, ~positive)]
    return [np.concatenate([kind[part::splits] for kind in kinds]) for part in range(splits)]


def delong(levels: Levels, confidence: float) -> Estimate:
    """Return the AUROC with DeLong's interval on the logit scale.

    Where all pairs are in order DeLong's variance is 0, though few inputs do not prove that others would be
    in order too. The inputs hold k = min(positives, negatives) pairs without a common input. These are in
    order independently, each with probability AUROC, so all of them with AUROC**k: the exact binomial bound
    for k out of k. No interval, also of lesser values, gets closer to 1 (or to 0) than this.
    """
    p, n = levels.positive, levels.negative
    value, fewest = area(p, n), int(min(p.sum(), n.sum()))
    bound = all_alike(fewest, confidence)
    if value in (0, 1):
        return Estimate(value, min(value, bound), max(value, 1 - bound), confidence, "delong")
    error, _ = spread_of([(v / c.sum(), c) for v, c in zip(placements(p, n), (p, n), strict=True)])
    if fewest == 1 or error == 0:
        error = math.sqrt(value * (1 - value) / fewest)  # the most that the variance can be
    found = within_unit(value, error, confidence, "delong")
    return Estimate(value, min(found.low, bound), max(found.high, 1 - bound), confidence, "delong")


def by_resampling(
    levels: Levels, confidence: float, resamples: int, seed: int, stratified: bool
) -> tuple[Estimate, Estimate]:
    """Return average precision (BCa) and FPR95 (percentile) with bootstrap intervals."""
    p, n = levels.positive, levels.negative
    precisions, alarms = resampled(
        p, n, (average_precision, false_positive_rate), stratified=stratified, resamples=resamples, seed=seed
    )
    value, rate = float(average_precision(p, n)), float(false_positive_rate(p, n))
    _, acceleration = precision_spread(levels, stratified)
    aupr = perfect_precision(levels, confidence)
    if value < 1:
        found = bca(value, precisions, acceleration, confidence)
        aupr = Estimate(value, min(found.low, aupr.low), found.high, confidence, found.method)
    return aupr, beyond_none(percentile(rate, alarms, confidence), int(n.sum()))


def precision_spread(levels: Levels, stratified: bool) -> tuple[float, float]:
    """Return standard error and acceleration of the average precision."""
    influences = average_precision_influence(levels.positive, levels.negative)
    counts = (levels.positive, levels.negative)
    if stratified:
        return spread_of(list(zip(influences, counts, strict=True)))
    return spread_of([(np.concatenate(influences), np.concatenate(counts))])


def perfect_precision(levels: Levels, confidence: float) -> Estimate:
    """Return the average precision of a perfect ranking.

    At the lower end as many negatives rank above all positives as the exact bound for none out of all allows.
    """
    positives, negatives = int(levels.positive.sum()), int(levels.negative.sum())
    above = negatives * (1 - all_alike(min(positives, negatives), confidence))
    return Estimate(1.0, positives / (positives + above), 1.0, confidence, "exact")


def precision_asymptotic(levels: Levels, confidence: float, stratified: bool) -> Estimate:
    """Return the average precision with the interval of its influence function, on the logit scale."""
    perfect = perfect_precision(levels, confidence)
    value = float(average_precision(levels.positive, levels.negative))
    if value == 1:
        return perfect
    error, _ = precision_spread(levels, stratified)
    found = within_unit(value, error, confidence, "asymptotic")
    return Estimate(value, min(found.low, perfect.low), found.high, confidence, "asymptotic")


def beyond_none(rate: Estimate, negatives: int) -> Estimate:
    """Return a rate whose interval is no closer to 0, or to 1, than the exact one of none out of all."""
    few = 1 - all_alike(negatives, rate.confidence)
    low, high = min(rate.low, 1 - few), max(rate.high, few)
    return Estimate(rate.value, low, high, rate.confidence, rate.method)


def alarms_asymptotic(levels: Levels, confidence: float) -> Estimate:
    """Return FPR95 with an interval that needs no density.

    The threshold is an order statistic of the positives: its interval has ends among the positives, and the
    rates at these are one half of the uncertainty. The other is that of a share of negatives at a fixed
    threshold. Both are independent, and their lengths are added in squares.
    """
    p, n = levels.positive, levels.negative
    half = quantile(confidence) * math.sqrt(0.95 * 0.05 / int(p.sum()))
    alarms = np.cumsum(n)
    at = [int(first_reaching(p, min(max(share, 0.0), 1.0))) for share in (0.95 - half, 0.95, 0.95 + half)]
    less, rate, more = (float(alarms[level] / alarms[-1]) for level in at)
    exact = proportion(int(alarms[at[1]]), int(alarms[-1]), confidence)
    low, high = (
        rate - math.hypot(rate - less, rate - exact.low),
        rate + math.hypot(more - rate, exact.high - rate),
    )
    found = Estimate(rate, max(low, 0.0), min(high, 1.0), confidence, "asymptotic")
    return beyond_none(found, int(alarms[-1]))
