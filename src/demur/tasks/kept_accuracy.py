"""Accuracy of the most certain share, and the share that has an accuracy: intervals by formula."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from demur.tasks.clusters import Clusters
from demur.tasks.estimate import Estimate, normal_quantile, proportion, student_quantile

_CELLS_AT_ONCE = 4_000_000  # of tables of clusters by numbers kept
_PLACES_IN_CLUSTERS = 400  # numbers kept that are tried with clusters; between them the wider interval counts


@dataclass(frozen=True)
class ClusteredInputs:
    """The level of each input, from the most certain on, whether it is right, and its cluster."""

    level: np.ndarray
    correct: np.ndarray
    clusters: Clusters


class _Kept(NamedTuple):
    """Numbers kept, their accuracy, its standard error, and of how many independent inputs it may be.

    `next` is the accuracy of the inputs next to the last one kept, which a shift of the threshold adds or
    removes.
    """

    kept: np.ndarray
    accuracy: np.ndarray
    next: np.ndarray
    error: np.ndarray
    independent: np.ndarray


def _measure_kept(
    right: np.ndarray, wrong: np.ndarray, kept: np.ndarray, together: ClusteredInputs | None
) -> _Kept:
    """Return the accuracy of so many inputs kept, the most certain first, with its standard error.

    With accuracy A of a share c and r of the inputs next to the threshold, an input that is kept has the
    influence (right - r) / c + (r - A), another one r - A. So the variance is
    (A (1 - A) + (1 - c) (A - r)^2) / (c n) for independent inputs. Tied inputs are kept in part.
    """
    size = right + wrong
    ends, hits = np.append(0, np.cumsum(size)), np.append(0, np.cumsum(right))
    number = int(ends[-1])
    reach = max(1.0, number**0.75 / 2)
    accuracy = np.interp(kept, ends, hits) / kept
    first, last = np.clip(kept - reach, 0, number), np.clip(kept + reach, 0, number)
    nearby = (np.interp(last, ends, hits) - np.interp(first, ends, hits)) / (last - first)
    if together is None:
        spread = accuracy * (1 - accuracy) + (1 - kept / number) * (accuracy - nearby) ** 2
        return _Kept(kept, accuracy, nearby, np.sqrt(spread / kept), kept)
    errors, independent = [], []
    chunk = max(1, _CELLS_AT_ONCE // (4 * together.clusters.number))
    for begin in range(0, len(kept), chunk):
        part = slice(begin, begin + chunk)
        found = _count_by_cluster(together, kept[part], ends)
        shifts = found[1] - nearby[part] * found[0]
        of_all = together.clusters.sum(np.ones(number))[:, None] / number
        shifts = shifts / kept[part] + of_all * (nearby[part] - accuracy[part])
        factor = together.clusters.number / (together.clusters.number - 1)
        errors.append(np.sqrt(factor * np.sum(shifts**2, axis=0)))
        independent.append(np.sum(found[0] > 0, axis=0))
    return _Kept(kept, accuracy, nearby, np.concatenate(errors), np.concatenate(independent))


def _count_by_cluster(
    together: ClusteredInputs, kept: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many inputs of each cluster are kept and how many of them are right, (clusters, places)."""
    level = np.clip(np.searchsorted(ends, kept) - 1, 0, len(ends) - 2)  # the level that is kept in part
    share = (kept - ends[level]) / (ends[level + 1] - ends[level])
    edges = np.unique(np.concatenate([level, level + 1]))
    # An input of level l is kept where the levels below an edge are, if the edge is above l.
    bins = np.searchsorted(edges, together.level, side="right")
    number, width = together.clusters.number, len(edges) + 1
    flat = together.clusters.codes * width + bins
    found = []
    for weights in (None, together.correct.astype(float)):
        table = np.bincount(flat, weights, minlength=number * width).reshape(number, width)
        below = np.cumsum(table, axis=1)
        low, high = (below[:, np.searchsorted(edges, each)] for each in (level, level + 1))
        found.append(low + share * (high - low))
    return found[0], found[1]


def accuracy_intervals(
    right: np.ndarray,
    wrong: np.ndarray,
    kept: np.ndarray,
    confidence: float,
    together: ClusteredInputs | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the accuracies of so many inputs kept, and the ends of their intervals.

    They are Clopper-Pearson's for as many independent inputs as would have the same standard error (Korn and
    Graubard, 1998); with clusters fewer still, as Student's quantile is larger than the normal one. Where all
    or none are right, each cluster counts once.
    """
    from scipy.special import betaincinv

    found = _measure_kept(right, wrong, np.asarray(kept, dtype=float), together)
    accuracy, error = found.accuracy, found.error
    free = math.inf if together is None else together.clusters.number - 1
    factor = (normal_quantile(confidence) / student_quantile(confidence, free)) ** 2
    known = np.divide(accuracy * (1 - accuracy), error**2, out=np.zeros_like(error), where=error > 0)
    number = np.where(error > 0, np.minimum(factor * known, found.kept), found.independent)
    number = np.where(accuracy * (1 - accuracy) > 0, number, found.independent)
    hits, tail = accuracy * number, (1 - confidence) / 2
    with np.errstate(invalid="ignore"):  # of none and of all, which are set apart
        low, high = betaincinv(hits, number - hits + 1, tail), betaincinv(hits + 1, number - hits, 1 - tail)
    return accuracy, np.where(accuracy > 0, low, 0.0), np.where(accuracy < 1, high, 1.0)


def estimate_share(chosen: np.ndarray, clusters: Clusters | None, confidence: float) -> Estimate:
    """Return the share of chosen inputs with its interval: exact, or over draws of whole clusters."""
    if clusters is None:
        return proportion(int(chosen.sum()), len(chosen), confidence)
    return _share_in_clusters(chosen, clusters, confidence)


def _share_in_clusters(chosen: np.ndarray, clusters: Clusters, confidence: float) -> Estimate:
    """Return the share of chosen inputs, with an interval over draws of whole clusters."""
    number, count = len(chosen), int(chosen.sum())
    present, codes = np.unique(clusters.codes, return_inverse=True)
    if len(present) < 2:
        return Estimate(count / number, 0.0, 1.0, confidence, "exact")
    together = ClusteredInputs(np.zeros(number, int), chosen, Clusters(codes.ravel(), len(present)))
    counts = np.array([count]), np.array([number - count])
    value, low, high = accuracy_intervals(*counts, np.array([number]), confidence, together)
    return Estimate(float(value[0]), float(low[0]), float(high[0]), confidence, "asymptotic")


def coverage_interval(
    value: float,
    right: np.ndarray,
    wrong: np.ndarray,
    accuracy: float,
    confidence: float,
    together: ClusteredInputs | None = None,
) -> Estimate:
    """Return the largest share with an accuracy, between the largest that surely and that possibly has it.

    Each share is tested by the score test of its accuracy (Wilson's), with the variance at the accuracy asked
    for, times that of clusters over that of independent inputs. No share beyond the first error has an
    accuracy of 1, and how far below it the true one begins cannot be told.
    """
    if accuracy == 1:
        return Estimate(value, 0.0, value, confidence, "exact")
    number = int(np.sum(right + wrong))
    if together is None:
        kept = np.arange(1.0, number + 1)
    else:
        kept = np.unique(np.ceil(np.linspace(number / _PLACES_IN_CLUSTERS, number, _PLACES_IN_CLUSTERS)))
    found = _measure_kept(right, wrong, kept, together)
    inflation = np.ones(len(kept))
    if together is not None:
        alone = _measure_kept(right, wrong, kept, None).error
        alike = kept / np.maximum(found.independent, 1)  # as if a cluster were one input
        inflation = np.divide(found.error**2, alone**2, out=alike, where=alone > 0)
    spread = accuracy * (1 - accuracy) + (1 - kept / number) * (accuracy - found.next) ** 2
    scores = (found.accuracy - accuracy) / np.sqrt(spread * np.maximum(inflation, 1) / kept)
    free = math.inf if together is None else together.clusters.number - 1
    reach = student_quantile(confidence, free)
    surely, possibly = (np.flatnonzero(scores >= each) for each in (reach, -reach))
    low = kept[surely[-1]] / number if len(surely) else 0.0
    above = min(possibly[-1] + 1, len(kept) - 1) if len(possibly) else 0
    high = kept[above] / number if len(possibly) else 0.0
    return Estimate(value, min(float(low), value), max(float(high), value), confidence, "asymptotic")
