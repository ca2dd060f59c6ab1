"""Which method and score to use, and how much that choice matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.report.findings import ERRORS, Findings, Key
from demur.report.folder import kind_of
from demur.tasks import Detection, compare
from demur.tasks.correlation import correlation


@dataclass(frozen=True)
class Choice:
    """The method and the score to use.

    Attributes
    ----------
    key
        The method that finds unknown inputs best by the score, on average, and the score. Without unknown
        inputs the most accurate method, or the first.
    good, number
        By score, in how many comparisons of the scores of one method on one task it is the best or tied; of
        how many.
    losses
        By score, how far its AUROC is below the best in the comparison where it is furthest.
    rivals
        Other methods that this one is not shown to be better than, by this score on any set of unknown
        inputs.
    figures
        What the score does with that method, by task.
    by_score, by_method
        Largest difference of AUROC between scores of one method, and between methods by this score. Methods
        are compared on unknown inputs only, and then scores too; None where nothing can be compared.
    beside
        Rank correlation with K over all inputs of that method, if the score is the aleatoric part; else None.
    """

    key: Key
    good: dict[str, int]
    number: int
    losses: dict[str, float]
    rivals: list[str]
    figures: dict[str, Detection]
    by_score: float
    by_method: float | None
    beside: float | None

    @property
    def equal(self) -> list[str]:
        """Other scores that are the best or tied as often."""
        own = self.key[1]
        return [score for score, often in self.good.items() if score != own and often == self.good[own]]


def choose(found: Findings) -> Choice | None:
    """Return the score that is the best, or tied, the most often; of equals the one that loses least.

    None where nothing can be measured.
    """
    within = found.within
    if not within:
        return None
    areas = {(m, t, s): area(figure_of(found, (m, s), t)) for m, t in within for s in found.scores}
    good = {s: sum(standing(found, (m, s), t) != "" for m, t in within) for s in found.scores}
    losses = {
        score: max(max(areas[m, t, s] for s in found.scores) - areas[m, t, score] for m, t in within)
        for score in found.scores
    }
    best = max(found.scores, key=lambda score: (good[score], -losses[score]))
    # The same inputs for all methods, and unknown to all. Mistakes and attacks that succeed differ.
    sets = list(dict.fromkeys(task for _, task in within if kind_of(task) == "ood"))
    names = list(dict.fromkeys(method for method, _ in within))

    def worth(name: str) -> float:
        if sets:
            return sum(areas[name, t, best] for t in sets)
        return found.accuracy[name].value if name in found.accuracy else 0.0

    method = max(names, key=worth)
    several = len(names) > 1 and bool(sets)
    return Choice(
        (method, best),
        good,
        len(within),
        losses,
        [other for other in names if several and other != method and not _beaten(found, method, other, best)],
        {task: figure_of(found, (method, best), task) for name, task in within if name == method},
        max(gap([areas[m, t, s] for s in found.scores]) for m, t in within if t in sets or not several),
        max(gap([areas[m, t, best] for m in names]) for t in sets) if several else None,
        _beside_k(found, (method, best)),
    )


def key_of(found: Findings) -> Key:
    """Return the method and the score that a page is about: those of the verdict, or the first."""
    choice = choose(found)
    return choice.key if choice else (found.run.methods[0].name, found.scores[0])


def standing(found: Findings, key: Key, task: str) -> str:
    """Return where a score stands among those of its method: "best", "tie" or nothing.

    The verdict counts these, and the page marks them.
    """
    leading = found.within[key[0], task]
    if not leading.comparisons:
        return ""
    if area(figure_of(found, key, task)) == area(figure_of(found, as_key(leading.best), task)):
        return "best"
    return "tie" if key in map(as_key, leading.ties) else ""


def _beaten(found: Findings, method: str, other: str, score: str) -> bool:
    """Return whether a method is shown to find unknown inputs better than another, on a set at least.

    Corrected for all pairs of methods and all sets, since the first was picked by the same inputs.
    """
    first, second = (next(m for m in found.run.methods if m.name == name).sets for name in (method, other))
    sets = [name for name in found.run.sets if kind_of(name) == "ood"]
    number = len(found.run.methods)
    pairs = len(sets) * number * (number - 1) // 2
    results = [
        compare(
            (first["id"].scores[score], first[name].scores[score]),
            (second["id"].scores[score], second[name].scores[score]),
            "detection",
        )
        for name in sets
    ]
    return any(c.difference.value > 0 and pairs * c.p_value < 1 - found.confidence for c in results)


def _beside_k(found: Findings, key: Key) -> float | None:
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


def area(result: Detection) -> float:
    """Return the AUROC, the same number for equal ones.

    It counts pairs that are won, a tie as half a pair. Counted in halves equal ones are equal, whatever was
    rounded.
    """
    halves = 2 * result.positives * result.negatives
    return round(halves * result.auroc.value) / halves


def as_key(name: Any) -> Key:
    """Return a (method, score)."""
    method, score = name
    return method, score


def gap(values: list[float]) -> float:
    """Return how far the highest is above the lowest."""
    return max(values) - min(values)
