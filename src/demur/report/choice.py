"""Which score to use, and how much that choice matters beside that of the method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.report.findings import ERRORS, Findings, Key
from demur.report.folder import kind_of
from demur.tasks import Detection, Leading
from demur.tasks.correlation import correlation


@dataclass(frozen=True)
class Choice:
    """The score to use.

    Attributes
    ----------
    key
        The method that it finds unknown inputs best with, on average, and the score. Without unknown inputs
        the most accurate method, or the first.
    good, number
        In how many comparisons of the scores of one method on one task it is the best or tied, of how many.
    behind
        By how much AUROC it is at most below the best, where it is not tied.
    equal
        Other scores that are it as often.
    figures
        What it does with that method, by task.
    by_score, by_method
        Largest difference of AUROC between scores of one method, and between methods by this score. Methods
        are compared on unknown inputs only, and then scores too; None where nothing can be compared.
    beside
        Rank correlation with K over all inputs of that method, if the score is the aleatoric part; else None.
    """

    key: Key
    good: int
    number: int
    behind: float
    equal: list[str]
    figures: dict[str, Detection]
    by_score: float
    by_method: float | None
    beside: float | None


def choose(found: Findings) -> Choice | None:
    """Return the score that is the best, or tied, the most often; of equals that of the highest mean AUROC.

    None where there is nothing to choose between.
    """
    within = {key: leading for key, leading in found.within.items() if leading.comparisons}
    if not within:
        return None
    areas = {
        (method, task, score): float(figure_of(found, (method, score), task).auroc)
        for method, task in within
        for score in found.scores
    }
    good = {
        score: sum((m, score) in (each.best, *each.ties) for (m, _), each in within.items())
        for score in found.scores
    }
    best = max(found.scores, key=lambda s: (good[s], mean([areas[m, t, s] for m, t in within])))
    # The same inputs for all methods, and unknown to all. Mistakes and attacks that succeed differ.
    sets = list(dict.fromkeys(task for _, task in within if kind_of(task) == "ood"))
    names = list(dict.fromkeys(method for method, _ in within))

    def worth(name: str) -> float:
        if sets:
            return mean([areas[name, t, best] for t in sets])
        return found.accuracy[name].value if name in found.accuracy else 0.0

    method = max(names, key=worth)
    several = len(names) > 1 and bool(sets)
    return Choice(
        (method, best),
        good[best],
        len(within),
        max(
            (
                max(areas[m, t, s] for s in found.scores) - areas[m, t, best]
                for (m, t), each in within.items()
                if (m, best) not in (each.best, *each.ties)
            ),
            default=0.0,
        ),
        [score for score in found.scores if score != best and good[score] == good[best]],
        {task: figure_of(found, (method, best), task) for name, task in within if name == method},
        max(gap([areas[m, t, s] for s in found.scores]) for m, t in within if t in sets or not several),
        max(gap([areas[m, t, best] for m in names]) for t in sets) if several else None,
        beside_k(found, (method, best)),
    )


def beside_k(found: Findings, key: Key) -> float | None:
    """Return the rank correlation of the aleatoric part with K, over all sets; None for another score."""
    method = next(each for each in found.run.methods if each.name == key[0])
    if not key[1].endswith("aleatoric") or "pairwise_epistemic" not in found.scores:
        return None
    levels = []
    for score in (key[1], "pairwise_epistemic"):
        values = np.concatenate([scored.scores[score] for scored in method.sets.values()])
        levels.append(np.unique(values, return_inverse=True)[1])
    value = correlation(levels, np.ones(len(levels[0])))
    return None if np.isnan(value) else value


def figure_of(found: Findings, key: Key, task: str) -> Detection:
    """Return how a score does on a task."""
    return found.errors[key] if task == ERRORS else found.detections[key][task]


def equals(found: Findings, best: Leading, task: str) -> list[Key]:
    """Return the others whose AUROC is exactly that of the best.

    An AUROC counts pairs that are won, a tie as half a pair. Counted in halves equal ones are equal, whatever
    was rounded.
    """

    def halves(key: Any) -> int:
        result = figure_of(found, key, task)
        return round(2 * result.positives * result.negatives * result.auroc.value)

    return [key for key in map(as_key, best.comparisons) if halves(key) == halves(best.best)]


def as_key(name: Any) -> Key:
    """Return a (method, score)."""
    method, score = name
    return method, score


def mean(values: list[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def gap(values: list[float]) -> float:
    """Return how far the highest is above the lowest."""
    return max(values) - min(values)
