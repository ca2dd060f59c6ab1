"""Which method and score of a run to use, and how much that choice matters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur.tasks.compare import adjust_by_holm, compare_pairs
from demur.tasks.correlation import correlation
from demur.tasks.detection import Detection
from demur.tasks.estimate import IntervalOptions
from demur.tasks.evaluation import Evaluation, Key


@dataclass(frozen=True)
class ScoreAdvice:
    """The method and the score to use.

    Attributes
    ----------
    key
        The method that finds out-of-distribution inputs best by the score, on average, and the score.
        Without such inputs the most accurate method, or the first; the first, too, where methods are no
        rivals.
    good, number
        By score, in how many comparisons of the scores of one method on one task it is the best or tied; of
        how many. Only comparisons count in which a score is shown to be better than a coin toss, and at
        chance nothing is won: where `number` is 0, no score finds anything.
    losses
        By score, how far its AUROC is below the best in the comparison where it is furthest.
    missed
        By method, and task that no score of the method finds: "below" where all of them are shown to be at or
        below chance, so that the model is more certain there; else "toss".
    rivals
        Other methods that this one is not shown to be better than, by this score on any
        out-of-distribution set.
    figures
        What the score does with each method, by method and task.
    by_score, by_method
        Largest difference of AUROC between scores of one method, and between methods by this score. Methods
        are compared on out-of-distribution inputs only, and then scores too; None where nothing can be
        compared.
    aleatoric_with_k
        Rank correlation with K over all inputs of that method, if the score is the aleatoric part; else None.
    """

    key: Key
    good: dict[str, int]
    number: int
    losses: dict[str, float]
    missed: dict[str, dict[str, str]]
    rivals: list[str]
    figures: dict[str, dict[str, Detection]]
    by_score: float
    by_method: float | None
    aleatoric_with_k: float | None

    @property
    def equal(self) -> list[str]:
        """Other scores that are the best or tied as often."""
        own = self.key[1]
        return [score for score, often in self.good.items() if score != own and often == self.good[own]]


def recommend(found: Evaluation) -> ScoreAdvice | None:
    """Return the score that is the best, or tied, the most often; of equals the one that loses least.

    None where nothing can be measured.
    """
    within = [(method, task) for task, each in found.contests.items() for method in each.results]
    if not within:
        return None
    scores = found.scores
    areas = {(m, t, s): found.result((m, s), t).auroc.value for m, t in within for s in scores}
    standings = {(m, t, s): found.standing((m, s), t) for m, t in within for s in scores}
    good = {s: sum(standings[m, t, s].wins for m, t in within) for s in scores}
    won = [(m, t) for m, t in within if any(standings[m, t, s].chance == "above" for s in scores)]
    losses = {
        score: max(max(areas[m, t, s] for s in scores) - areas[m, t, score] for m, t in won or within)
        for score in scores
    }
    best = max(scores, key=lambda score: (good[score], -losses[score]))
    # The same inputs for all methods, and unknown to all. Mistakes and attacks that succeed differ.
    sets = found.ood_sets
    names = [m for m in found.methods if any(m == method for method, _ in within)]

    def worth(name: str) -> float:
        if sets:
            return sum(areas[name, t, best] for t in sets)
        return found.accuracy[name].value if name in found.accuracy else 0.0

    method = max(names, key=worth) if found.rivals else names[0]
    several = len(names) > 1 and bool(sets) and found.rivals
    beaten = _beaten_methods(found, method, best) if several else set()
    return ScoreAdvice(
        (method, best),
        good,
        len(won),
        losses,
        {
            m: _missed_tasks({t: [standings[m, t, s].chance for s in scores] for t in found.tasks_of(m)})
            for m in names
        },
        [other for other in names if several and other != method and other not in beaten],
        {m: {task: found.result((m, best), task) for task in found.tasks_of(m)} for m in names},
        max(_gap([areas[m, t, s] for s in scores]) for m, t in within if t in sets or not several),
        max(_gap([areas[m, t, best] for m in names]) for t in sets) if several else None,
        _correlate_with_k(found, (method, best)),
    )


def _beaten_methods(found: Evaluation, method: str, score: str) -> set[str]:
    """Return the methods that are shown to be worse at one out-of-distribution set at least.

    Corrected for all pairs of methods and all sets, since the method was picked by the same inputs.
    """
    pairs = [(a, b) for i, a in enumerate(found.methods) for b in found.methods[i + 1 :]]
    options = IntervalOptions(found.confidence)
    family = []
    for name in found.ood_sets:
        scores = {m: (sets[found.known][score], sets[name][score]) for m, sets in found.columns.items()}
        together = found.pair_clusters(method, name)
        family += compare_pairs(scores, pairs, "detection", "auroc", options, clusters=together)
    beaten = set()
    for (a, b), each in zip(pairs * len(found.ood_sets), adjust_by_holm(family), strict=True):
        if each.adjusted <= 1 - found.confidence and method in (a, b):
            ahead = each.difference.value * (1 if method == a else -1) > 0
            beaten |= {b if method == a else a} if ahead else set()
    return beaten


def _missed_tasks(chances: dict[str, list[str]]) -> dict[str, str]:
    """Return the tasks at which no score is above chance, and whether all are shown to be below."""
    return {
        task: "below" if set(each) == {"below"} else "toss"
        for task, each in chances.items()
        if "above" not in each
    }


def _correlate_with_k(found: Evaluation, key: Key) -> float | None:
    """Return the rank correlation of the aleatoric part with K, over all sets; None for another score."""
    method, score = key
    if not score.endswith("aleatoric") or "pairwise_epistemic" not in found.scores:
        return None
    levels = []
    for each in (score, "pairwise_epistemic"):
        values = np.concatenate([columns[each] for columns in found.columns[method].values()])
        levels.append(np.unique(values, return_inverse=True)[1])
    value = correlation(levels, np.ones(len(levels[0])))
    return None if np.isnan(value) else value


def _gap(values: list[float]) -> float:
    """Return how far the highest is above the lowest."""
    return max(values) - min(values)
