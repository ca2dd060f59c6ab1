"""Figures of detection with intervals over draws of whole clusters of inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from demur.tasks.clusters import Clusters
from demur.tasks.estimate import (
    Estimate,
    Figures,
    IntervalOptions,
    percentile,
    perfect_bound,
    share_interval,
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
) -> tuple[Estimate, Estimate, Estimate]:
    """Return AUROC, average precision and FPR95, with intervals over draws of whole clusters.

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
            found = share_interval(value, spread, confidence, "asymptotic")
        return replace(found, low=min(found.low, low), high=max(found.high, high))

    auroc = auroc_in_clusters(scores, positive, levels, clusters, confidence)
    above = int(n.sum()) * (1 - best)  # negatives that may rank above all positives
    aupr = estimate(average_precision, average_precision_influence, p.sum() / (p.sum() + above), 0.0)
    alarms = perfect_bound(clusters.count(~positive), confidence)
    fpr95 = estimate(false_positive_rate, false_positive_rate_influence, alarms, 1 - alarms)
    return auroc, aupr, fpr95


def auroc_in_clusters(
    scores: np.ndarray, positive: np.ndarray, levels: Levels, clusters: Clusters, confidence: float
) -> Estimate:
    """Return the AUROC with the interval of Obuchowski (1997), over draws of whole clusters."""
    sizes = np.where(positive, positive.sum(), (~positive).sum())
    places = place_inputs(scores, positive, levels)
    spread = spread_of_inputs(places / sizes, positive, clusters, stratified=True)
    found = share_interval(area(levels.positive, levels.negative), spread, confidence, "obuchowski")
    best = perfect_bound(clusters.count_pairs(positive), confidence)
    return replace(found, low=min(found.low, best), high=max(found.high, 1 - best))
