"""What the scores of a run are good for: every task, for each method and score, asked of `demur.tasks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.deferral import Deferral, NoGuarantee
from demur.report.folder import Run, kind_of
from demur.report.words import distinct
from demur.tasks import Detection, Leading, Selective, detection, leading, misclassification, selective
from demur.tasks.estimate import Estimate, check_share, proportion

RESAMPLED = 5000
"""Inputs up to which intervals are found by resampling: a page has many, and should not take minutes."""

TARGETS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)

Key = tuple[str, str]

ERRORS = "errors"
"""The task of finding wrong predictions, beside those of the sets."""


@dataclass(frozen=True)
class Findings:
    """All that a report shows, by (method, score).

    Attributes
    ----------
    scores
        Columns that are shown, the same for every method.
    detections
        By (method, score) and set.
    errors, kept
        How wrong predictions are found, and accuracy over the fraction kept; empty without labels. `errors`
        is also empty for methods whose predictions are all right or all wrong.
    policies
        By (method, score), for each target in order: a policy, or why there is none.
    accuracy
        Of all known inputs, by method.
    best
        By set of unknown inputs: the best (method, score) and its ties.
    within
        The same among the scores of one method, by method and task (a set, or "errors"). Mistakes and
        attacked inputs are compared in this way only: a method makes mistakes of its own, and one that
        attacks fool less is certain of them with good reason.
    """

    run: Run
    confidence: float
    targets: tuple[float, ...]
    scores: list[str]
    detections: dict[Key, dict[str, Detection]]
    errors: dict[Key, Detection]
    kept: dict[Key, Selective]
    policies: dict[Key, list[Deferral | str]]
    accuracy: dict[str, Estimate]
    best: dict[str, Leading]
    within: dict[Key, Leading]


def find(
    run: Run,
    *,
    confidence: float = 0.95,
    targets: Sequence[float] = TARGETS,
    progress: Callable[[int], object] = lambda done: None,
) -> Findings:
    """Return what a run's scores are good for.

    Parameters
    ----------
    run
        What `read_run` returned.
    confidence
        Of intervals and promises.
    targets
        Accuracies that are asked of `Deferral`; named before any label is seen, so that each promise holds.
    progress
        Called with the number of methods done.
    """
    for name, shares in (("confidence", [confidence]), ("accuracy", targets)):
        for share in shares:
            check_share(name, share)
    scores = distinct(run.scores, [scored.scores for m in run.methods for scored in m.sets.values()])
    others = [name for name in run.sets if name != "id"]
    detections: dict[Key, dict[str, Detection]] = {}
    errors: dict[Key, Detection] = {}
    kept: dict[Key, Selective] = {}
    policies: dict[Key, list[Deferral | str]] = {}
    accuracy: dict[str, Estimate] = {}
    for done, method in enumerate(run.methods, start=1):
        known = method.sets.get("id")
        correct = None if known is None else known.correct
        if correct is not None:
            accuracy[method.name] = proportion(int(correct.sum()), len(correct), confidence)
        for score in scores:
            key = method.name, score
            detections[key] = {}
            if known is not None:
                own = known.scores[score]
                for name in others:
                    other = method.sets[name].scores[score]
                    detections[key][name] = detection(
                        own, other, **options(len(own) + len(other), confidence)
                    )
                if correct is not None:
                    kept[key] = selective(own, correct, **options(len(own), confidence))
                    if correct.any() and not correct.all():
                        errors[key] = misclassification(own, correct, **options(len(own), confidence))
                    policies[key] = [policy(own, correct, target, confidence) for target in targets]
        progress(done)
    best, within = _winners(run, scores, others, errors, confidence)
    return Findings(
        run, confidence, tuple(targets), scores, detections, errors, kept, policies, accuracy, best, within
    )


def options(number: int, confidence: float) -> dict[str, Any]:
    """Return how intervals are found for so many inputs."""
    return {"confidence": confidence, "interval": "bootstrap" if number <= RESAMPLED else "asymptotic"}


def policy(scores: np.ndarray, correct: np.ndarray, target: float, confidence: float) -> Deferral | str:
    """Return a policy that promises the target, or why there is none."""
    try:
        return Deferral.fit(scores, correct, accuracy=target, confidence=confidence)
    except NoGuarantee as error:
        return str(error)


def _winners(
    run: Run, scores: list[str], others: list[str], errors: dict[Key, Detection], confidence: float
) -> tuple[dict[str, Leading], dict[Key, Leading]]:
    """Return the best (method, score) for each set of unknown inputs, and the best of each method."""
    best: dict[str, Leading] = {}
    within: dict[Key, Leading] = {}
    if "id" not in run.sets:
        return best, within
    for name in others:
        pairs: dict[Any, Any] = {
            (method.name, score): (method.sets["id"].scores[score], method.sets[name].scores[score])
            for method in run.methods
            for score in scores
        }
        if kind_of(name) == "ood":
            best[name] = leading(pairs, "detection", confidence=confidence)
        for method in run.methods:
            own = {key: pair for key, pair in pairs.items() if key[0] == method.name}
            alone = len(run.methods) == 1 and name in best
            within[method.name, name] = (
                best[name] if alone else leading(own, "detection", confidence=confidence)
            )
    for method in run.methods:
        if (method.name, scores[0]) in errors:
            known = method.sets["id"]
            ranked: dict[Any, Any] = {(method.name, score): known.scores[score] for score in scores}
            within[method.name, ERRORS] = leading(
                ranked, "misclassification", correct=known.correct, confidence=confidence
            )
    return best, within
