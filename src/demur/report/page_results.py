"""What the page shows of one score of one method: its spread, curves with bands, and what thresholds do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from demur.deferral import Deferral
from demur.report.cards import describe_promise
from demur.report.contents import ReportContents
from demur.report.downsampling import count_bins, find_corners
from demur.report.page_json import shorten, shorten_all, shorten_estimate
from demur.report.run_sets import MethodScores, correct_of
from demur.tasks import Selective, accuracy_band, best_accuracy, roc_band
from demur.tasks.clusters import Clusters, check_clusters
from demur.tasks.estimate import Estimate
from demur.tasks.evaluation import ERRORS, Key
from demur.tasks.guarantees import write_threshold
from demur.tasks.kept_accuracy import estimate_share
from demur.tasks.thresholds import count_kept, find_threshold, spread_numbers_kept

_SLIDER_STEPS = 100
_BAND_POINTS = 401
_CURVE_POINTS = 60  # of the curve of accuracy, beside its corners


def describe_score(found: ReportContents, key: Key, method: MethodScores) -> dict[str, Any]:
    """Return what one score of one method shows, with null for what labels or sets are missing for."""
    sets = method.sets
    shown = {name: sets[name].scores[key[1]] for name in found.run.sets}
    correct = sets["id"].correct if "id" in sets else None
    if correct is not None:
        shown["wrong"] = shown["id"][~correct]
    density = count_bins(shown)
    return {
        "density": {
            "edges": shorten_all(density.edges),
            "log": density.logarithmic,
            "counts": [density.counts[name].tolist() for name in shown],
            "below": [density.below[name] for name in shown],
            "infinite": [density.infinite[name] for name in shown],
        },
        "detection": [_describe_detection(found, key, name) for name in found.run.sets],
        "errors": _describe_detection(found, key, ERRORS),
        "kept": _describe_kept(found.evaluation.kept[key]) if key in found.evaluation.kept else None,
        "slider": _describe_slider(found, key, method) if "id" in sets else None,
    }


def _describe_detection(found: ReportContents, key: Key, task: str) -> dict[str, Any] | None:
    """Return figures, curve and band of a score on a task, and where it stands; None without the task."""
    if task not in found.evaluation.tasks_of(key[0]):
        return None
    result, standing = found.evaluation.result(key, task), found.evaluation.standing(key, task)
    curve = result.curve
    at = find_corners(curve.fpr, curve.tpr)
    band = roc_band(result, np.linspace(0, 1, _BAND_POINTS), confidence=result.auroc.confidence)
    ends = []
    for end in (band.low, band.high):
        some = find_corners(band.at, end)
        ends.append([shorten_all(band.at[some], 4), shorten_all(end[some], 4)])
    return {
        "mark": ("best" if standing.best else "tie") if standing.wins else "",
        "auroc": shorten_estimate(result.auroc),
        "aupr": shorten_estimate(result.aupr),
        "fpr95": shorten_estimate(result.fpr95),
        "roc": [shorten_all(curve.fpr[at]), shorten_all(curve.tpr[at])],
        "thresholds": [None, *shorten_all(curve.thresholds[at][1:], 5)],
        "band": ends,
    }


def _describe_kept(result: Selective) -> dict[str, Any]:
    """Return areas, and the curve of accuracy over the fraction kept with its band, oracle and chance."""
    curve = result.curve
    number = len(curve.kept)
    height = float(np.ptp(curve.accuracy)) or 1.0
    evenly = np.linspace(0, number - 1, _CURVE_POINTS).round().astype(int)
    some = np.union1d(find_corners(curve.kept, curve.accuracy / height, 2e-3), evenly)
    band = accuracy_band(result, some + 1, confidence=result.auc.confidence)
    return {
        "auc": shorten_estimate(result.auc),
        "at": (some + 1).tolist(),
        "accuracy": shorten_all(curve.accuracy[some]),
        "low": shorten_all(band.low),
        "high": shorten_all(band.high),
        "oracle": shorten_all(best_accuracy(result, some + 1)),
        "chance": shorten(float(curve.accuracy[-1])),
    }


def _describe_slider(found: ReportContents, key: Key, method: MethodScores) -> dict[str, Any]:
    """Return what thresholds do, from the strictest on, with those of the promises among them."""
    known = method.sets["id"]
    scores = known.scores[key[1]]
    number, ranked = len(scores), np.sort(scores)
    policies = found.policies.get(key, [])
    promised = [_count_kept_by(p, ranked) for p in policies if isinstance(p, Deferral)]
    at = spread_numbers_kept(ranked, _SLIDER_STEPS, promised)
    thresholds = np.array([find_threshold(ranked, int(k)) for k in at])
    together = check_clusters(known.clusters, number)
    shares = [estimate_share(scores <= each, together, found.confidence) for each in thresholds]
    shown: dict[str, Any] = {
        "threshold": shorten_all(thresholds),
        "written": [
            write_threshold(value, float(ranked[k - 1])).replace("-", "\u2212") if value < math.inf else None
            for value, k in zip(thresholds.tolist(), at.tolist(), strict=True)
        ],
        "share": _shorten_ends(shares),
        "sets": [_describe_kept_of_set(found, key, method, name, thresholds) for name in found.run.sets],
    }
    if known.correct is not None:
        accuracy = []
        for each in thresholds:
            kept = scores <= each
            own = None if together is None else Clusters(together.codes[kept], together.number)
            accuracy.append(estimate_share(known.correct[kept], own, found.confidence))
        shown["accuracy"] = _shorten_ends(accuracy)
        shown["promises"] = [
            _describe_target(target, p, ranked, at.tolist())
            for target, p in zip(found.targets, policies, strict=True)
        ]
    return shown


def _describe_kept_of_set(
    found: ReportContents, key: Key, method: MethodScores, name: str, thresholds: np.ndarray
) -> dict[str, Any]:
    """Return how many inputs of a set each threshold keeps, and how many of them are right."""
    correct = correct_of(found.run, method, name)
    kept, right = count_kept(method.sets[name].scores[key[1]], thresholds, correct)
    return {"kept": kept.tolist(), "right": None if right is None else right.tolist()}


def _describe_target(
    target: float, policy: Deferral | str, ranked: np.ndarray, at: list[int]
) -> dict[str, Any]:
    """Return what can be promised, in words, and at which place of the slider; or why nothing can be."""
    if isinstance(policy, str):
        return {"target": target, "text": policy, "at": None}
    kept = _count_kept_by(policy, ranked)
    return {"target": target, "text": describe_promise(policy, float(ranked[kept - 1])), "at": at.index(kept)}


def _count_kept_by(policy: Deferral, ranked: np.ndarray) -> int:
    """Return how many of all scores a policy keeps; with clusters, it was fitted on some of them."""
    return int(np.sum(~policy.defer(ranked)))


def _shorten_ends(estimates: list[Estimate]) -> list[list[Any]]:
    """Return lower and upper ends; the values follow from the counts."""
    return [shorten_all([e.low for e in estimates]), shorten_all([e.high for e in estimates])]
