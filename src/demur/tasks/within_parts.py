"""Figures within parts of the inputs: whether a pooled figure only tells unlike parts apart."""

from __future__ import annotations

import math

import numpy as np

from demur.tasks.clusters import Clusters
from demur.tasks.estimate import Estimate, Spread, perfect_bound, share_interval
from demur.tasks.paired_tests import spread_of_inputs


def auroc_within(
    scores: np.ndarray, positive: np.ndarray, parts: Clusters, confidence: float, clusters: Clusters | None
) -> Estimate | None:
    """Return the AUROC over pairs of one part: the ordered pairs, over all pairs of all parts.

    Where the parts are the clusters themselves, these are what is drawn: pairs come with their cluster. Else
    inputs, or clusters, are drawn from parts that stay. None where too few parts have both kinds of inputs.
    """
    hits, rest = parts.sum(positive.astype(float)), parts.sum((~positive).astype(float))
    pairs = hits * rest
    number = int(np.sum(pairs > 0))
    if number == 0 or (parts is clusters and number < 2):
        return None
    ordered = _count_ordered(scores, positive, parts)
    value = float(ordered[positive].sum() / pairs.sum())
    possible = np.where(positive, rest[parts.codes], hits[parts.codes])
    influence = (ordered - value * possible) / pairs.sum()
    if parts is clusters:
        shifts = parts.sum(influence)[pairs > 0] / 2  # each pair was counted for both of its inputs
        spread = Spread(math.sqrt(number / (number - 1) * float(shifts @ shifts)), number - 1)
        independent = number
    else:
        spread = spread_of_inputs(influence, positive, clusters, stratified=False)
        independent = (
            int(np.minimum(hits, rest).sum()) if clusters is None else clusters.count_pairs(positive)
        )
    found = share_interval(value, spread, confidence, "asymptotic")
    bound = perfect_bound(independent, confidence)
    return Estimate(value, min(found.low, bound), max(found.high, 1 - bound), confidence, "asymptotic")


def _count_ordered(scores: np.ndarray, positive: np.ndarray, parts: Clusters) -> np.ndarray:
    """Return for each positive the negatives of its part below it, for each negative the positives above.

    Ties count one half.
    """
    order = np.lexsort((scores, parts.codes))
    ranked, codes, marked = scores[order], parts.codes[order], positive[order]
    starts = np.append(True, (ranked[1:] != ranked[:-1]) | (codes[1:] != codes[:-1]))
    level = np.cumsum(starts) - 1
    part = codes[starts]
    begins = np.searchsorted(part, part)  # the first level of the same part

    def count_below(kind: np.ndarray) -> np.ndarray:
        own = np.bincount(level, kind).astype(float)
        before = np.cumsum(own) - own
        return (before - before[begins] + own / 2)[level]

    of_all = parts.sum(positive.astype(float))[codes]
    found = np.empty(len(scores))
    found[order] = np.where(marked, count_below(~marked), of_all - count_below(marked))
    return found
