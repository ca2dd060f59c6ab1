"""A whole run evaluated: every task, for each method and score, with the best ones and their ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demur.tasks.clusters import check_clusters
from demur.tasks.contest import Contest, Standing, contest
from demur.tasks.detection import Detection
from demur.tasks.disentanglement import Disentanglement, disentanglement
from demur.tasks.estimate import Estimate, check_share
from demur.tasks.kept_accuracy import estimate_share
from demur.tasks.selective import Selective, selective

Key = tuple[str, str]
"""A method and one of its scores."""

ERRORS = "errors"
"""The task of finding wrong predictions, beside those of the sets."""


@dataclass(frozen=True)
class Evaluation:
    """What the scores of a run are good for.

    Attributes
    ----------
    methods, scores
        Their names. Every method has every score.
    known, ood_sets
        The in-distribution set, and the out-of-distribution ones. Only on these are methods compared.
    columns
        The scores themselves, (inputs,) each, by method, set and score.
    set_accuracy
        By set and method, for sets whose labels are known for every method.
    kept
        Accuracy over the fraction kept, by (method, score); empty without labels.
    contests
        By task (a set, or "errors"): the figures of all scores, and which are best among those of their
        method. Methods whose predictions are all right or all wrong have no "errors". Mistakes and attacked
        inputs are compared in this way only: a method makes mistakes of its own, and one that attacks fool
        less is certain of them with good reason.
    across
        By out-of-distribution set: the scores of all methods compared, each named by its (method, score).
        The contest has the one method "". Empty where methods are no rivals.
    rivals
        Whether the methods predict the same thing, so that one can be better than another.
    clusters
        By method and set, labels of inputs that belong together; None where each stands alone.
    parts
        By method: of which measure its aleatoric and epistemic parts are, and how far these are apart on the
        in-distribution inputs; empty where there are none, or one is the same for every input.
    """

    confidence: float
    methods: list[str]
    scores: list[str]
    known: str
    ood_sets: list[str]
    columns: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
    set_accuracy: dict[str, dict[str, Estimate]]
    kept: dict[Key, Selective]
    contests: dict[str, Contest]
    across: dict[str, Contest]
    rivals: bool = True
    clusters: Mapping[str, Mapping[str, Any]] | None = None
    parts: dict[str, tuple[str, Disentanglement]] = field(default_factory=dict)

    @property
    def accuracy(self) -> dict[str, Estimate]:
        """Accuracy on the in-distribution inputs, by method; empty without labels."""
        return self.set_accuracy.get(self.known, {})

    def pair_clusters(self, method: str, name: str) -> tuple[Any, Any] | None:
        """Return the clusters of the in-distribution inputs and of those of a set; None without any."""
        return None if self.clusters is None else _pair_clusters(self.clusters, method, self.known, name)

    def tasks_of(self, method: str) -> list[str]:
        """Return the tasks that a method was evaluated on."""
        return [task for task, found in self.contests.items() if method in found.results]

    def result(self, key: Key, task: str) -> Detection:
        """Return the figures of a score on a task."""
        found = self.contests[task].results[key[0]][key[1]]
        assert isinstance(found, Detection)
        return found

    def standing(self, key: Key, task: str) -> Standing:
        """Return where a score stands among those of its method."""
        return self.contests[task].standings["auroc"][key[0]][key[1]]


def evaluate_run(
    columns: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    scores: Sequence[str],
    *,
    correct: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    known: str = "id",
    ood_sets: Sequence[str] = (),
    rivals: bool = True,
    clusters: Mapping[str, Mapping[str, Any]] | None = None,
    references: Mapping[str, np.ndarray | None] | None = None,
    confidence: float = 0.95,
    progress: Callable[[int], object] = lambda done: None,
) -> Evaluation:
    """Return what the scores of a run are good for.

    Parameters
    ----------
    columns
        Scores by method, set and name. All methods have the same sets of the same inputs.
    scores
        The names that are evaluated.
    correct
        By set and method, whether predictions are right, for sets where that is known.
    known
        The in-distribution set. Without it there is nothing to tell the others from.
    ood_sets
        Which of the other sets are out-of-distribution; the rest are adversarial inputs.
    rivals
        False where the methods are tasks, each with something else to predict: they are not compared.
    clusters
        By method and set, labels of inputs that belong together: intervals and tests are then over draws of
        whole clusters.
    references
        By method, what the aleatoric part of in-distribution inputs should follow, where that is known.
    confidence
        Confidence level of intervals; differences are tested at ``1 - confidence``.
    progress
        Called with the number of tasks done.
    """
    check_share("confidence", confidence)
    methods, correct = list(columns), correct or {}
    right = correct.get(known, {})
    sets = list(next(iter(columns.values())))
    others = [name for name in sets if name != known] if known in sets else []
    level: dict[str, Any] = {"confidence": confidence, "level": 1 - confidence}
    contests: dict[str, Contest] = {}
    across: dict[str, Contest] = {}

    def pair(method: str, name: str, score: str) -> tuple[np.ndarray, np.ndarray]:
        return columns[method][known][score], columns[method][name][score]

    for name in others:
        by_method = {m: {score: pair(m, name, score) for score in scores} for m in methods}
        pairs = clusters and {m: _pair_clusters(clusters, m, known, name) for m in methods}
        contests[name] = contest(by_method, "detection", clusters=pairs, **level)
        if name in ood_sets and rivals:
            everything = {"": {(m, score): pair(m, name, score) for m in methods for score in scores}}
            same = pairs and {"": pairs[methods[0]]}
            across[name] = contest(everything, "detection", interval="asymptotic", clusters=same, **level)
        progress(len(contests))
    ranked = {
        m: {score: columns[m][known][score] for score in scores}
        for m in methods
        if m in right and right[m].any() and not right[m].all()
    }
    if ranked:
        own = clusters and {m: clusters[m][known] for m in methods}
        contests[ERRORS] = contest(ranked, "misclassification", correct=right, clusters=own, **level)
        progress(len(contests))
    return Evaluation(
        confidence,
        methods,
        list(scores),
        known,
        [name for name in others if name in ood_sets],
        columns,
        {
            name: {
                m: estimate_share(each, check_clusters(clusters and clusters[m][name], len(each)), confidence)
                for m, each in by_method.items()
            }
            for name, by_method in correct.items()
        },
        {
            (m, score): selective(
                columns[m][known][score],
                each,
                confidence=confidence,
                clusters=clusters and clusters[m][known],
            )
            for m, each in right.items()
            for score in scores
        },
        contests,
        across,
        rivals,
        clusters,
        _tell_parts_apart(columns, known, references or {}, clusters, confidence),
    )


def _pair_clusters(
    clusters: Mapping[str, Mapping[str, Any]], method: str, known: str, name: str
) -> tuple[Any, Any]:
    """Return the clusters of two sets by a method, as ``detection`` takes them."""
    return clusters[method][known], clusters[method][name]


def _tell_parts_apart(
    columns: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    known: str,
    references: Mapping[str, np.ndarray | None],
    clusters: Mapping[str, Mapping[str, Any]] | None,
    confidence: float,
) -> dict[str, tuple[str, Disentanglement]]:
    """Return how far the parts of each method's first measure are apart, and which measure it is."""
    found = {}
    for method, sets in columns.items():
        own = sets.get(known, {})
        for measure in ("pairwise", "average"):
            parts = [own.get(f"{measure}_{part}") for part in ("aleatoric", "epistemic")]
            if any(part is None or len(np.unique(part)) == 1 for part in parts):
                continue
            target = references.get(method)
            if target is not None and len(np.unique(target)) == 1:
                target = None
            own_clusters = None if clusters is None else clusters[method][known]
            options = {"clusters": own_clusters, "confidence": confidence, "interval": "asymptotic"}
            found[method] = measure, disentanglement(*parts, reference=target, **options)
            break
    return found
