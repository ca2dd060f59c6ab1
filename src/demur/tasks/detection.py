"""How well scores separate two kinds of inputs: AUROC, average precision, FPR at 95 % TPR."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from demur.tasks.clustered_detection import detect_in_clusters
from demur.tasks.clusters import Clusters, check_clusters, check_pair_of_clusters
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import (
    Estimate,
    IntervalOptions,
    average_splits,
    bca,
    check_correct,
    check_scores,
    generator,
    logit_interval,
    perfect_bound,
    resample_counts,
    spread_of,
)
from demur.tasks.levels import (
    Levels,
    area,
    average_precision,
    average_precision_influence,
    count_levels,
    false_positive_rate,
    placements,
)
from demur.tasks.within_parts import auroc_within


class Roc(NamedTuple):
    """False and true positive rate where scores from the threshold up are taken, from 0 to 1."""

    fpr: np.ndarray
    tpr: np.ndarray
    thresholds: np.ndarray


@dataclass(frozen=True, repr=False)
class Detection(Displayed):
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
    clusters : int or None
        How many clusters the inputs are of, where clusters are given.
    within : Estimate or None
        The AUROC over pairs of one stratum only, or of one cluster where no strata are given; None without
        either, or where none of them has both kinds of inputs. Where it is lower than `auroc`, the score
        tells strata or clusters apart more than what is in them.
    parts : str
        What `within` is about: "stratum", "cluster" or nothing.
    independent : pair of float or None
        Where clusters are given: of how many equally large clusters the negatives and the positives might be.
    """

    auroc: Estimate
    aupr: Estimate
    fpr95: Estimate
    positives: int
    negatives: int
    levels: Levels = field(repr=False, compare=False)
    clusters: int | None = None
    within: Estimate | None = None
    parts: str = ""
    independent: tuple[float, float] | None = field(default=None, repr=False, compare=False)

    def _display(self) -> tuple[str, Rows, list[str]]:
        title = (
            f"Detection: {self.positives:,} positives, {self.negatives:,} negatives"
            f"{f', {self.clusters:,} clusters' if self.clusters else ''}; "
            f"{100 * self.auroc.confidence:g} % intervals"
        )
        rows = [[name, str(getattr(self, name))] for name in ("auroc", "aupr", "fpr95")]
        notes = []
        if self.pooled:
            notes.append(self.describe_pooling(str(self.within)))
        if self.chance == "toss":
            notes.append("Not shown to be better than a coin toss, an auroc of 0.5.")
        if self.chance == "below":
            notes.append("Below a coin toss: the positives are those that the model is more certain of.")
        return title, rows, notes

    @property
    def pooled(self) -> bool:
        """Whether `auroc` pools unlike strata or clusters: its value is outside the interval of `within`."""
        return self.within is not None and not self.within.low <= self.auroc.value <= self.within.high

    def describe_pooling(self, within: str) -> str:
        """Return that unlike parts are pooled, with `within` as it is written."""
        parts = {"stratum": "strata"}.get(self.parts, f"{self.parts}s")
        return f"Pools unlike {parts}: between inputs of one {self.parts}, auroc is {within}."

    @property
    def chance(self) -> str:
        """Whether the AUROC is shown to be "above" that of a coin toss, 1/2; else "toss" or "below".

        Decided by the interval: "below" where all of it is at or below 1/2, since there the positives are
        those that the model is more certain of. Over splits it is decided by all inputs together.
        """
        area = self.auroc
        if area.spread is not None:
            area = estimate_auroc(self.levels, area.confidence)
        return "below" if area.high <= 0.5 else "toss" if area.low <= 0.5 else "above"

    @property
    def curve(self) -> Roc:
        """The whole ROC curve: a point for each distinct score, none left out; the first threshold is NaN.

        At the first point nothing is taken, which no threshold gives where a score is infinite.
        """
        hits = np.append(0, np.cumsum(self.levels.positive))
        alarms = np.append(0, np.cumsum(self.levels.negative))
        return Roc(alarms / alarms[-1], hits / hits[-1], np.append(np.nan, self.levels.scores))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the three figures under their names, and `within` where there is one."""
        found = {name: getattr(self, name).to_dict() for name in ("auroc", "aupr", "fpr95")}
        return found if self.within is None else found | {"within": self.within.to_dict()}


def detection(
    id_scores: Any,
    ood_scores: Any,
    *,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    splits: int | None = None,
    seed: int = 0,
    clusters: Any = None,
    strata: Any = None,
) -> Detection:
    """Return how well scores tell out-of-distribution (or attacked) inputs from in-distribution ones.

    Parameters
    ----------
    id_scores, ood_scores : (inputs,) array
        Uncertainty of each input, higher = less certain; infinity is above every finite score. The positives
        are the out-of-distribution inputs.
    confidence : float
        Confidence level of the intervals.
    interval : "auto", "bootstrap" or "asymptotic"
        How the interval of `aupr` is found: by resampling each kind of inputs (BCa), or from its influence
        function. "auto" resamples up to 5,000 scores; above, both hold the truth equally often (see
        ``selective``). The interval of the AUROC is always DeLong's on the logit scale, and never narrower
        to one side than what as many perfectly ranked inputs would allow; that of `fpr95` is always
        binomial, in the threshold and in the rate.
    resamples : int
        How many bootstrap resamples.
    splits : int or None
        Give mean and spread over this many random, disjoint splits of both kinds of inputs instead.
    seed : int
        Seed of resamples and splits.
    clusters : pair of (inputs,) arrays, optional
        ``(id_clusters, ood_clusters)``: a label for each input, as the image that a pixel is of. Inputs of
        one cluster are not independent, so intervals are over draws of whole clusters: DeLong's in the form
        of Obuchowski (1997), and influence functions summed over clusters, with Student's distribution for
        the number of clusters; "bootstrap" resamples clusters. The same label in both is the same cluster.
    strata : pair of (inputs,) arrays, optional
        ``(id_strata, ood_strata)``: a label for each input, as background or object. `within` is then the
        AUROC between inputs of one stratum, and the result says so where the pooled one differs from it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> d = demur.tasks.detection(rng.normal(0, 1, 500), rng.normal(1, 1, 500))
    >>> print(d.auroc)
    0.7559 [0.7252, 0.7842]
    """
    known, unknown = check_scores("id_scores", id_scores), check_scores("ood_scores", ood_scores)
    scores = np.concatenate([known, unknown])
    positive = np.arange(len(scores)) >= len(known)
    options = IntervalOptions(confidence, interval, resamples, splits, seed)
    numbers = len(known), len(unknown), splits
    together = check_pair_of_clusters(clusters, *numbers)
    apart = check_pair_of_clusters(strata, *numbers, "strata")
    return _detect(scores, positive, options, together, apart, stratified=True)


def misclassification(
    scores: Any,
    correct: Any,
    *,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    splits: int | None = None,
    seed: int = 0,
    clusters: Any = None,
    strata: Any = None,
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
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of; see ``detection``.
    strata : (inputs,) array, optional
        A label for each input, as background or object; see ``detection``.

    Examples
    --------
    >>> found = demur.tasks.misclassification([0.1, 0.2, 0.8, 0.9], [True, True, True, False])
    >>> float(found.auroc), float(found.aupr), float(found.fpr95)
    (1.0, 1.0, 0.0)
    """
    values = check_scores("scores", scores)
    right = check_correct(correct, len(values))
    if right.all() or not right.any():
        raise ValueError(
            "correct must have both right and wrong predictions to tell apart. "
            f"Got {len(right)} that are all {'right' if right.all() else 'wrong'}. Use more inputs."
        )
    options = IntervalOptions(confidence, interval, resamples, splits, seed)
    together = check_clusters(clusters, len(values), splits)
    apart = check_clusters(strata, len(values), splits, "strata")
    return _detect(values, ~right, options, together, apart, stratified=False)


def _detect(
    scores: np.ndarray,
    positive: np.ndarray,
    options: IntervalOptions,
    clusters: Clusters | None,
    strata: Clusters | None,
    *,
    stratified: bool,
) -> Detection:
    """Return the figures of scores with positives marked."""
    levels = count_levels(scores, positive)
    if clusters is not None:
        figures = detect_in_clusters(scores, positive, levels, clusters, options, stratified=stratified)
        auroc, aupr, fpr95 = figures
    elif options.splits is None:
        auroc = estimate_auroc(levels, options.confidence)
        aupr = _estimate_aupr(levels, options, stratified)
        fpr95 = _estimate_fpr95(levels, options.confidence)
    else:
        parts = [
            count_levels(scores[s], positive[s]) for s in split_inputs(positive, options.splits, options.seed)
        ]
        auroc, aupr, fpr95 = (
            average_splits([float(figure(p.positive, p.negative)) for p in parts], options.confidence)
            for figure in (area, average_precision, false_positive_rate)
        )
    parts, within = strata or clusters, None
    if parts is not None:
        within = auroc_within(scores, positive, parts, options.confidence, clusters)
    return Detection(
        auroc,
        aupr,
        fpr95,
        int(positive.sum()),
        int((~positive).sum()),
        levels,
        None if clusters is None else clusters.number,
        within,
        "" if within is None else "stratum" if strata else "cluster",
        None if clusters is None else (clusters.count_equal(~positive), clusters.count_equal(positive)),
    )


def split_inputs(positive: np.ndarray, splits: int, seed: int) -> list[np.ndarray]:
    """Return disjoint parts of the inputs, each with its share of both kinds."""
    fewest = int(min(positive.sum(), (~positive).sum()))
    if not 2 <= splits <= fewest:
        raise ValueError(
            f"splits must be from 2 to the number of inputs of the rarer kind, {fewest}. Got {splits!r}."
        )
    rng = generator(seed)
    kinds = [rng.permutation(np.flatnonzero(kind)) for kind in (positive, ~positive)]
    return [np.concatenate([kind[part::splits] for kind in kinds]) for part in range(splits)]


def estimate_auroc(levels: Levels, confidence: float) -> Estimate:
    """Return the AUROC with DeLong's interval on the logit scale.

    Where all pairs are in order DeLong's variance is 0, though few inputs do not prove that others would be
    in order too. The inputs hold k = min(positives, negatives) pairs without a common input. These are in
    order independently, each with probability AUROC, so all of them with AUROC**k: the exact binomial bound
    for k out of k. No interval, also of lesser values, gets closer to 1 (or to 0) than this.
    """
    p, n = levels.positive, levels.negative
    value, fewest = area(p, n), int(min(p.sum(), n.sum()))
    bound = perfect_bound(fewest, confidence)
    if value in (0, 1):
        return Estimate(value, min(value, bound), max(value, 1 - bound), confidence, "delong")
    error, _ = spread_of([(v / c.sum(), c) for v, c in zip(placements(p, n), (p, n), strict=True)])
    if fewest == 1 or error == 0:
        error = math.sqrt(value * (1 - value) / fewest)  # the most that the variance can be
    found = logit_interval(value, error, confidence, "delong")
    return Estimate(value, min(found.low, bound), max(found.high, 1 - bound), confidence, "delong")


def _estimate_aupr(levels: Levels, options: IntervalOptions, stratified: bool) -> Estimate:
    """Return the average precision, with a BCa interval or that of its influence function.

    The lower end is no higher than that of a perfect ranking, where as many negatives rank above all
    positives as the exact bound for none out of all allows.
    """
    p, n = levels.positive, levels.negative
    positives, negatives = int(p.sum()), int(n.sum())
    value, confidence = float(average_precision(p, n)), options.confidence
    above = negatives * (1 - perfect_bound(min(positives, negatives), confidence))
    bound = positives / (positives + above)
    if value == 1:
        return Estimate(1.0, bound, 1.0, confidence, "exact")
    error, acceleration = _precision_spread(levels, stratified)
    if options.uses_bootstrap(positives + negatives):
        (replicates,) = resample_counts(p, n, [average_precision], options, stratified=stratified)
        found = bca(value, replicates, acceleration, confidence)
    else:
        found = logit_interval(value, error, confidence, "asymptotic")
    return replace(found, low=min(found.low, bound))


def _precision_spread(levels: Levels, stratified: bool) -> tuple[float, float]:
    """Return standard error and acceleration of the average precision."""
    influences = average_precision_influence(levels.positive, levels.negative)
    counts = (levels.positive, levels.negative)
    if stratified:
        return spread_of(list(zip(influences, counts, strict=True)))
    return spread_of([(np.concatenate(influences), np.concatenate(counts))])


def _estimate_fpr95(levels: Levels, confidence: float, share: float = 0.95) -> Estimate:
    """Return FPR95 with an interval that is binomial in the threshold and in the rate.

    Of the m positives Binomial(m, 0.05) lie below the true threshold, whatever their distribution. So it
    lies between the j-th and the next one with a known probability, and the negatives above it are a binomial
    sample of the true rate. The ends are quantiles of the mixture over j of Clopper-Pearson's distributions;
    each j counts half with its lower and half with its upper neighbour. With fewer than 59 positives the
    upper end is near 1: then all of them may be above the threshold.
    """
    from scipy.special import betainc, gammaln, xlogy

    taken, alarmed = np.cumsum(levels.positive), np.cumsum(levels.negative)
    positives, negatives = int(taken[-1]), int(alarmed[-1])
    value = float(false_positive_rate(levels.positive, levels.negative, share))
    centre, reach = (1 - share) * positives, 30 + 8 * math.sqrt(positives * share * (1 - share))
    first, last = max(0, math.floor(centre - reach)), min(positives, math.ceil(centre + reach))
    # Of many positives every few will do: the weights are smooth.
    below = np.arange(first, last + 1, max(1, (last - first) // 800))
    logs = xlogy(below, 1 - share) + xlogy(positives - below, share)
    logs -= gammaln(below + 1) + gammaln(positives - below + 1)
    weights = np.tile(np.exp(logs - logs.max()), 2)
    # Negatives from the j-th smallest positive up: all from the "0th", none from one beyond the last.
    places = np.concatenate([below, below + 1])
    level = np.searchsorted(taken, positives - np.clip(places, 1, positives) + 1)
    counts = np.where(places == 0, negatives, np.where(places > positives, 0, alarmed[level]))

    def end(tail: float, successes: np.ndarray, failures: np.ndarray) -> tuple[float, float]:
        """Enclose the quantile of a mixture of beta distributions, of which one parameter may be 0."""
        low, high = 0.0, 1.0
        for _ in range(45):  # to 3e-14
            middle = (low + high) / 2
            parts = betainc(np.maximum(successes, 1), np.maximum(failures, 1), middle)
            parts = np.where(successes == 0, 1.0, np.where(failures == 0, 0.0, parts))
            low, high = (middle, high) if weights @ parts < tail * weights.sum() else (low, middle)
        return low, high

    tail = (1 - confidence) / 2
    low, _ = end(tail, counts, negatives - counts + 1)
    _, high = end(1 - tail, counts + 1, negatives - counts)
    return Estimate(value, min(low, value), max(high, value), confidence, "binomial")
