"""Intervals of the area under the generalized risk (AUGRC), and the prediction rejection ratio (PRR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from demur.tasks.clustered_detection import auroc_in_clusters
from demur.tasks.detection import estimate_auroc
from demur.tasks.estimate import Estimate, average_splits, perfect_bound
from demur.tasks.kept_accuracy import ClusteredInputs
from demur.tasks.levels import Levels, area


def estimate_one_kind(right: np.ndarray, number: int, confidence: float) -> Estimate:
    """Return the area where all predictions are right (0) or all wrong (1/2), of so many draws.

    With a share e of errors it is ``e**2 / 2`` at best and ``e - e**2 / 2`` at worst.
    """
    bound = perfect_bound(number, confidence)
    if right.any():
        errors = 1 - bound
        return Estimate(0.0, 0.0, errors - errors**2 / 2, confidence, "exact")
    return Estimate(0.5, bound**2 / 2, 0.5, confidence, "exact")


def widen_interval(found: Estimate, right: np.ndarray, wrong: np.ndarray, pairs: int) -> Estimate:
    """Return the interval of the area, no closer to a perfect ranking than so many pairs prove it.

    With a share e of errors the area is ``e**2 / 2``, plus ``e (1 - e)`` times the share of pairs of a right
    and a wrong input that are out of order.
    """
    errors = float(np.sum(wrong) / np.sum(right + wrong))
    last, both = errors**2 / 2, errors * (1 - errors)
    bound = perfect_bound(pairs, found.confidence)
    low, high = min(found.low, last + bound * both), max(found.high, last + (1 - bound) * both)
    return replace(found, low=max(low, 0.0), high=min(high, 0.5))


def estimate_rejection_ratio(
    right: np.ndarray,
    wrong: np.ndarray,
    confidence: float,
    *,
    splits: Sequence[tuple[np.ndarray, np.ndarray]] | None = None,
    together: ClusteredInputs | None = None,
) -> Estimate:
    """Return the prediction rejection ratio, ``2 AUROC - 1``, with the interval of that AUROC.

    With a share e of errors the area under the generalized risk, which is that under the rejection curve, is
    e / 2 for a random order, ``e**2 / 2`` for all errors last, and ``(1 - AUROC) e (1 - e) + e**2 / 2`` for
    any other.
    """
    if not right.any() or not wrong.any():
        return Estimate(float("nan"), -1.0, 1.0, confidence, "exact")
    levels = Levels(np.arange(len(right))[::-1], wrong[::-1], right[::-1])  # errors are the positives
    if splits is not None:
        auroc = average_splits([area(w[::-1], r[::-1]) for r, w in splits], confidence)
    elif together is not None:
        scores = together.level.astype(float)
        auroc = auroc_in_clusters(scores, ~together.correct, levels, together.clusters, confidence)
    else:
        auroc = estimate_auroc(levels, confidence)
    spread = None if auroc.spread is None else 2 * auroc.spread
    value, low, high = (2 * each - 1 for each in (auroc.value, auroc.low, auroc.high))
    return Estimate(value, low, high, confidence, auroc.method, spread)
