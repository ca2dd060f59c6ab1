"""Paired differences of a figure of two scores: DeLong's test, influence functions, the bootstrap; Holm."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from demur.tasks.clusters import Clusters, spread_of_clusters
from demur.tasks.estimate import (
    Estimate,
    Figures,
    IntervalOptions,
    Spread,
    generator,
    percentile,
    resampling_progress,
    spread_of,
)
from demur.tasks.levels import Levels, count_levels, placements

Influence = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From positives and negatives per level to the derivatives by the weight of one of each, per level."""
_Name = TypeVar("_Name", bound=Hashable)


def delong_paired(
    value: float,
    differences: np.ndarray,
    positive: np.ndarray,
    confidence: float,
    clusters: Clusters | None = None,
) -> tuple[Estimate, float]:
    """Return the difference of two AUROCs and the p-value of none (DeLong, DeLong and Clarke-Pearson, 1988).

    `differences` are those of what ``place_inputs`` returns. With clusters the variance is Obuchowski's
    (1997). Where the variance is 0 though the areas differ, as for a perfect and a perfectly wrong ranking,
    interval and p-value are Hoeffding's (1963) for k = min(positives, negatives) independent pairs, with
    clusters for as many as share no cluster; these always hold.
    """
    method = "delong" if clusters is None else "obuchowski"
    if not differences.any():
        return Estimate(0.0, 0.0, 0.0, confidence, method), 1.0
    sizes = np.where(positive, positive.sum(), (~positive).sum())
    spread = spread_of_inputs(differences / sizes, positive, clusters, stratified=True)
    fewest = int(sizes.min()) if clusters is None else clusters.count_pairs(positive)
    if 0 < spread.error < math.inf and fewest > 1:
        half, p_value = spread.half(confidence), spread.p_value(value)
    else:
        half = math.sqrt(2 * math.log(2 / (1 - confidence)) / fewest)
        p_value = min(1.0, 2 * math.exp(-fewest * value**2 / 2))
    return Estimate(value, max(value - half, -1.0), min(value + half, 1.0), confidence, method), p_value


def spread_of_inputs(
    influence: np.ndarray, positive: np.ndarray, clusters: Clusters | None, *, stratified: bool
) -> Spread:
    """Return the standard error of a figure from the influence of each input, or of each cluster on it.

    `stratified` says that positives and negatives were drawn apart.
    """
    if not stratified:
        return spread_of_clusters(influence, clusters)
    if clusters is not None:
        return clusters.spread_of_kinds(influence, positive)
    strata = [influence[positive], influence[~positive]]
    return Spread(spread_of([(each, np.ones(len(each))) for each in strata])[0])


def place_inputs(scores: np.ndarray, positive: np.ndarray, levels: Levels | None = None) -> np.ndarray:
    """Return for each positive the share of negatives below it, for each negative of positives above it."""
    levels = levels or count_levels(scores, positive)
    below, above = placements(levels.positive, levels.negative)
    return _by_input(below, above, scores, positive, levels)


def _by_input(
    of_positive: np.ndarray, of_negative: np.ndarray, scores: np.ndarray, positive: np.ndarray, levels: Levels
) -> np.ndarray:
    """Return for each input what its level has for its kind."""
    level = np.searchsorted(-levels.scores, -scores)
    return np.where(positive, of_positive[level], of_negative[level])


def influence_of_inputs(
    influence: Influence, scores: np.ndarray, positive: np.ndarray, levels: Levels
) -> np.ndarray:
    """Return the derivative of a figure by the weight of each input; 0 where there is one kind only."""
    if not levels.positive.any() or not levels.negative.any():
        return np.zeros(len(scores))
    return _by_input(*influence(levels.positive, levels.negative), scores, positive, levels)


def normal_paired(value: float, spread: Spread, confidence: float) -> tuple[Estimate, float]:
    """Return the difference of a figure with the interval and the p-value of its standard error."""
    half, p_value = spread.half(confidence), spread.p_value(value)
    return Estimate(value, max(value - half, -1.0), min(value + half, 1.0), confidence, "asymptotic"), p_value


def bootstrap_figures(
    scores: Mapping[_Name, np.ndarray],
    positive: np.ndarray,
    figure: Figures,
    options: IntervalOptions,
    *,
    stratified: bool,
    both: bool,
    clusters: Clusters | None = None,
) -> dict[_Name, np.ndarray]:
    """Return bootstrap replicates of a figure of each score, all from the same inputs, or clusters."""
    number, resamples = len(positive), options.resamples
    rng = generator(options.seed)
    kinds = [np.flatnonzero(~positive), np.flatnonzero(positive)] if stratified else [np.arange(number)]
    rankings = {name: _rank_inputs(each) for name, each in scores.items()}
    found: dict[_Name, list[np.ndarray]] = {name: [] for name in scores}
    chunk = max(1, 1_000_000 // number)
    with resampling_progress(resamples, number) as progress:
        for begin in range(0, resamples, chunk):
            rows = min(chunk, resamples - begin)
            if clusters is not None:
                counts = clusters.draw(rng, rows, positive if stratified else None)
            else:
                drawn = [k[rng.integers(0, len(k), (rows, len(k)), dtype=np.uint32)] for k in kinds]
                flat = np.concatenate(drawn, axis=1) + number * np.arange(rows)[:, None]
                counts = np.bincount(flat.ravel(), minlength=rows * number).reshape(rows, number)
            if both:
                counts = counts[(counts[:, positive].any(axis=1)) & (counts[:, ~positive].any(axis=1))]
            for name, (order, starts) in rankings.items():
                taken, marked = counts[:, order], positive[order]
                hits, rest = (np.add.reduceat(taken * kind, starts, axis=1) for kind in (marked, ~marked))
                found[name].append(figure(hits, rest))
            progress(begin + rows)
    return {name: np.concatenate(values) for name, values in found.items()}


def percentile_paired(
    value: float, replicates: np.ndarray, confidence: float, freedom: float = math.inf
) -> tuple[Estimate, float]:
    """Return a difference, its percentile interval and p-value from bootstrap replicates of it.

    With few degrees of freedom the p-value is that of the confidence at which the interval ends at 0.
    """
    from scipy.special import ndtri, stdtr

    tails = [(1 + np.sum(side)) / (1 + len(replicates)) for side in (replicates <= 0, replicates >= 0)]
    tail = float(min(tails))
    if math.isfinite(freedom):
        tail = float(stdtr(freedom, ndtri(tail) * math.sqrt(freedom / (freedom + 1)))) if tail < 0.5 else 0.5
    return percentile(value, replicates, confidence, freedom), min(1.0, 2 * tail)


def _rank_inputs(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order from the highest score down and where each level starts in it."""
    order = np.argsort(-scores)
    ranked = scores[order]
    return order, np.append(0, np.flatnonzero(ranked[1:] != ranked[:-1]) + 1)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values that hold for all tests of a family at once (Holm, 1979).

    Examples
    --------
    >>> demur.tasks.holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted
