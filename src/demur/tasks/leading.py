"""Which of several scores is best, and which others cannot be told from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from demur.tasks.compare import Comparison, compare
from demur.tasks.detection import detection, misclassification


@dataclass(frozen=True)
class Leading:
    """The best of several scores by AUROC.

    Parameters
    ----------
    best : str
        The score with the highest AUROC; of equal ones the first.
    ties : tuple of str
        Scores that no difference from the best could be shown for, at ``1 - confidence``.
    comparisons : dict
        The best minus each other score. `adjusted` is corrected for all pairs (Bonferroni), not only for
        these, since the best was picked by the same inputs.
    """

    best: str
    ties: tuple[str, ...]
    comparisons: dict[str, Comparison]


def leading(
    scores: Mapping[str, Any], task: str, *, correct: Any = None, confidence: float = 0.95
) -> Leading:
    """Return the best of named scores of the same inputs, and its ties.

    Parameters
    ----------
    scores : dict
        Scores by name, each as ``compare`` takes them.
    task : "detection" or "misclassification"
    correct, confidence
        As for ``compare``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> right = rng.uniform(size=500) < 0.8
    >>> scores = {"K": rng.normal(~right * 2), "noise": rng.normal(size=500)}
    >>> found = demur.tasks.leading(scores | {"2 K": 2 * scores["K"]}, "misclassification", correct=right)
    >>> found.best, found.ties
    ('K', ('2 K',))
    """
    if task not in ("detection", "misclassification"):
        raise ValueError(f"task must be 'detection' or 'misclassification'. Got {task!r}.")
    if not scores:
        raise ValueError("scores must have at least one name. Got none.")

    def area(given: Any) -> float:
        options: dict[str, Any] = {"confidence": confidence, "interval": "asymptotic"}
        if task == "detection":
            return float(detection(*given, **options).auroc)
        return float(misclassification(given, correct, **options).auroc)

    areas = {name: area(given) for name, given in scores.items()}
    best = max(areas, key=lambda name: areas[name])
    pairs = len(scores) * (len(scores) - 1) // 2
    comparisons = {}
    for name, given in scores.items():
        if name != best:
            found = compare(scores[best], given, task, correct=correct, confidence=confidence)
            comparisons[name] = replace(found, adjusted=min(1.0, pairs * found.p_value))
    ties = tuple(name for name, found in comparisons.items() if found.adjusted >= 1 - confidence)
    return Leading(best, ties, comparisons)
