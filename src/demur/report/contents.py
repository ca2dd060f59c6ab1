"""What a report is made of: a run, what `demur.tasks` and `demur.Deferral` say about it, and what to use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from demur.deferral import Deferral
from demur.report.run_sets import Run, kind_of
from demur.report.score_names import drop_duplicates
from demur.tasks.estimate import check_share
from demur.tasks.evaluation import Evaluation, Key, evaluate_run
from demur.tasks.guarantees import NoGuarantee
from demur.tasks.recommendation import ScoreAdvice, recommend

TARGETS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Accuracies that a report asks of `Deferral` by default."""


@dataclass(frozen=True)
class ReportContents:
    """All that a report shows.

    Attributes
    ----------
    run
        The scores, as `read_run` returned them.
    evaluation
        What the scores are good for.
    recommendation
        The method and the score to use; None where nothing can be measured.
    targets
        Accuracies that are asked of `Deferral`.
    policies
        By (method, score), for each target in order: a policy, or why there is none.
    """

    run: Run
    evaluation: Evaluation
    recommendation: ScoreAdvice | None
    targets: tuple[float, ...]
    policies: dict[Key, list[Deferral | str]]

    @property
    def scores(self) -> list[str]:
        """Columns that are shown, the same for every method."""
        return self.evaluation.scores

    @property
    def confidence(self) -> float:
        """Confidence level of intervals and guarantees."""
        return self.evaluation.confidence

    @property
    def key(self) -> Key:
        """The method and the score that the page opens with: the recommended ones, or the first."""
        if self.recommendation is not None:
            return self.recommendation.key
        return self.run.methods[0].name, self.scores[0]


def gather_contents(
    run: Run,
    *,
    confidence: float = 0.95,
    targets: Sequence[float] = TARGETS,
    progress: Callable[[int], object] = lambda done: None,
) -> ReportContents:
    """Return the contents of the report of a run.

    Parameters
    ----------
    run
        What `read_run` returned.
    confidence
        Confidence level of intervals and guarantees.
    targets
        Accuracies that are asked of `Deferral`; named before any label is seen, so that each promise holds.
    progress
        Called with the number of sets done.
    """
    for target in targets:
        check_share("accuracy", target)
    columns = {method.name: {name: method.sets[name].scores for name in run.sets} for method in run.methods}
    every = [each for sets in columns.values() for each in sets.values()]
    scores = drop_duplicates(run.scores, every, run.unit)
    # What the labels of out-of-distribution inputs say about predictions is for the slider to find out.
    right = {
        name: {method.name: method.sets[name].correct for method in run.methods}
        for name in run.sets
        if kind_of(name) != "ood"
    }
    correct = {
        name: {method: each for method, each in by_method.items() if each is not None}
        for name, by_method in right.items()
        if name == "id" or all(each is not None for each in by_method.values())
    }
    clusters = None
    if run.clusters:
        clusters = {
            method.name: {name: method.sets[name].clusters for name in run.sets} for method in run.methods
        }
    evaluation = evaluate_run(
        columns,
        scores,
        clusters=clusters,
        correct=correct,
        ood_sets=[name for name in run.sets if kind_of(name) == "ood"],
        rivals=not run.by_task,
        references={
            method.name: method.sets["id"].reference for method in run.methods if "id" in method.sets
        },
        confidence=confidence,
        progress=progress,
    )
    policies = {
        (method, score): [
            _fit_policy(
                columns[method]["id"][score], each, target, confidence, clusters and clusters[method]["id"]
            )
            for target in targets
        ]
        for method, each in correct.get("id", {}).items()
        for score in scores
    }
    progress(len(run.sets))
    return ReportContents(run, evaluation, recommend(evaluation), tuple(targets), policies)


def _fit_policy(
    scores: object, correct: object, target: float, confidence: float, clusters: object
) -> Deferral | str:
    """Return a policy that promises the target, or why there is none."""
    try:
        return Deferral.fit(scores, correct, accuracy=target, confidence=confidence, clusters=clusters)
    except NoGuarantee as error:
        return str(error)
