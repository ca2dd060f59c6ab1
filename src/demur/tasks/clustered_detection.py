"""Figures of detection with intervals over draws of whole clusters of inputs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from demur.tasks.clusters import Clusters
from demur.tasks.estimate import (
    Estimate,
    Figures,
    IntervalOptions,
    Spread,
    logit_interval,
    percentile,
    perfect_bound,
)
from demur.tasks.levels import (
    Levels,
    area,
    average_precision,
    average_precision_influence,
    false_positive_rate,
    false_positive_rate_influence,
)
from demur.tasks.paired_tests import (
    Influence,
    bootstrap_figures,
    influence_of_inputs,
    place_inputs,
    spread_of_inputs,
)


def detect_in_clusters(
    scores: np.ndarray,
    positive: np.ndarray,
    levels: Levels,
    clusters: Clusters,
    options: IntervalOptions,
    *,
    stratified: bool,
) -> tuple[Estimate, Estimate, Estimate, Estimate | None]:
    """Return AUROC, average precision, FPR95, and the AUROC within clusters if there is any.

    No end of an interval is closer to a perfect ranking than as many independent pairs would allow, pairs of
    a positive and a negative that share no cluster.
    """
    p, n = levels.positive, levels.negative
    confidence = options.confidence
    best = perfect_bound(clusters.count_pairs(positive), confidence)

    def estimate(figure: Figures, influence: Influence, low: float, high: float) -> Estimate:
        """Return a share, with an interval that reaches down to `low` and up to `high` at least."""
        value = float(figure(p[None], n[None])[0])
        shifts = influence_of_inputs(influence, scores, positive, levels)
        spread = spread_of_inputs(shifts, positive, clusters, stratified=stratified)
        if options.interval == "bootstrap":
            drawn = bootstrap_figures(
                {"": scores}, positive, figure, options, stratified=stratified, both=True, clusters=clusters
            )
            found = percentile(value, drawn[""], confidence, spread.freedom)
        else:
            found = _share_interval(value, spread, confidence, "asymptotic")
        return replace(found, low=min(found.low, low), high=max(found.high, high))

    sizes = np.where(positive, positive.sum(), (~positive).sum())
    spread = spread_of_inputs(
        place_inputs(scores, positive, levels) / sizes, positive, clusters, stratified=True
    )
    auroc = _share_interval(area(p, n), spread, confidence, "obuchowski")
    auroc = replace(auroc, low=min(auroc.low, best), high=max(auroc.high, 1 - best))
    above = int(n.sum()) * (1 - best)  # negatives that may rank above all positives
    aupr = estimate(average_precision, average_precision_influence, p.sum() / (p.sum() + above), 0.0)
    alarms = perfect_bound(clusters.count(~positive), confidence)
    fpr95 = estimate(false_positive_rate, false_positive_rate_influence, alarms, 1 - alarms)
    return auroc, aupr, fpr95, _estimate_within(scores, positive, clusters, confidence)


def _share_interval(value: float, spread: Spread, confidence: float, method: str) -> Estimate:
    """Return the interval on the logit scale; of 0 and 1 the value alone, where nothing is known all."""
    if not math.isfinite(spread.error):
        return Estimate(value, 0.0, 1.0, confidence, method)
    if value in (0, 1):
        return Estimate(value, value, value, confidence, method)
    return logit_interval(value, spread.error, confidence, method, spread.freedom)


def _estimate_within(
    scores: np.ndarray, positive: np.ndarray, clusters: Clusters, confidence: float
) -> Estimate | None:
    """Return the AUROC over pairs of one cluster: the ordered pairs, over all pairs of all clusters."""
    order = np.lexsort((scores, clusters.codes))
    ranked, codes, marked = scores[order], clusters.codes[order], positive[order]
    starts = np.append(True, (ranked[1:] != ranked[:-1]) | (codes[1:] != codes[:-1]))
    level = np.cumsum(starts) - 1
    hits = np.bincount(level, marked)
    rest = np.bincount(level, ~marked)
    of_level = codes[starts]
    before = np.cumsum(rest) - rest
    before -= before[np.searchsorted(of_level, of_level)]  # negatives of the same cluster below
    ordered = np.bincount(of_level, hits * (before + rest / 2), minlength=clusters.number)
    pairs = clusters.sum(positive.astype(float)) * clusters.sum((~positive).astype(float))
    number = int(np.sum(pairs > 0))
    if number < 2:
        return None
    value = float(ordered.sum() / pairs.sum())
    shifts = (ordered - value * pairs)[pairs > 0] / pairs.sum()
    spread = Spread(math.sqrt(number / (number - 1) * float(shifts @ shifts)), number - 1)
    found = _share_interval(value, spread, confidence, "asymptotic")
    bound = perfect_bound(number, confidence)
    return Estimate(value, min(found.low, bound), max(found.high, 1 - bound), confidence, "asymptotic")
