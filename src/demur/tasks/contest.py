"""Several scores side by side: the figure of each, which is best, and which cannot be told from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from demur.tasks.compare import FIGURES, Comparison, compare, corrected
from demur.tasks.detection import detection, misclassification
from demur.tasks.estimate import Estimate
from demur.tasks.own_figure import OwnFigure, estimate_figure
from demur.tasks.selective import selective

_LESS_IS_BETTER = {"fpr95", "aurc", "excess"}


@dataclass(frozen=True)
class Standing:
    """A figure, and where it stands among those of its group.

    Parameters
    ----------
    estimate : Estimate
        The figure with its interval.
    best : bool
        No other score of the group has a better value.
    tied : bool
        It is not the best, but the paired test does not tell it from the best.
    """

    estimate: Estimate
    best: bool = False
    tied: bool = False

    @property
    def value(self) -> float:
        """The figure itself."""
        return self.estimate.value


@dataclass(frozen=True)
class Contest:
    """What ``contest`` found.

    Parameters
    ----------
    results : dict
        By method and score: the `Detection` or `Selective`, with all figures of the task; an `Estimate`
        for a task of your own.
    comparisons : dict
        By (figure, method, score, other score): the `Comparison`, Holm-corrected with all the others.
    standings : dict
        By figure, method and score: the `Standing`.
    """

    results: dict[str, dict[str, Any]]
    comparisons: dict[tuple[str, str, str, str], Comparison]
    standings: dict[str, dict[str, dict[str, Standing]]]


def contest(
    scores: Mapping[str, Mapping[str, Any]],
    task: str | OwnFigure,
    *,
    correct: Mapping[str, Any] | None = None,
    figures: Sequence[str] | None = None,
    groups: Sequence[Sequence[str]] | None = None,
    level: float = 0.05,
    interval: str = "auto",
    splits: int | None = None,
    **options: Any,
) -> Contest:
    """Return the figures of several scores of several methods, with those marked that are best.

    Parameters
    ----------
    scores : dict
        By method and name, each as ``compare`` takes it: a pair for "detection", else an array.
    task : "detection", "misclassification", "selective", or a function as ``compare`` takes it
        Results of a function are `Estimate`s, and its name stands for the figure.
    correct : dict, optional
        By method, whether the predictions are right; for the other tasks.
    figures : list of str, optional
        Which figures are compared; the first of the task by default.
    groups : list of lists of str, optional
        Scores are compared within these; by default all with all. Scores of one method are compared, never
        methods.
    level : float
        A difference counts if its p-value, Holm-corrected over all that is compared here, is at most this.
        So the chance of one false difference, or more, is at most `level`.
    interval, splits, options
        As for ``detection``; the tests are always on all inputs, without splits.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> known, unknown = rng.normal(0, 1, 300), rng.normal(1, 1, 300)
    >>> scores = {"K": (known, unknown), "noise": (known * 0, unknown * 0)}
    >>> found = demur.tasks.contest({"ensemble": scores}, "detection")
    >>> for name, standing in found.standings["auroc"]["ensemble"].items():
    ...     print(name, standing.estimate, standing.best, standing.tied)
    K 0.7711 [0.7319, 0.8060] True False
    noise 0.5000 [0.4437, 0.5563] False False
    """
    if not callable(task) and task not in FIGURES:
        raise ValueError(f"task must be one of {', '.join(map(repr, FIGURES))}. Got {task!r}.")
    shown = [task.__name__] if callable(task) else list(figures or [next(iter(FIGURES[task]))])
    right = correct or {}
    results = {
        method: {
            name: evaluated(values, task, right.get(method), interval=interval, splits=splits, **options)
            for name, values in named.items()
        }
        for method, named in scores.items()
    }
    pairs = [
        (figure, method, first, second)
        for figure in shown
        for method, named in scores.items()
        for group in (groups or [list(named)])
        for first, second in combinations([name for name in group if name in named], 2)
    ]
    found = [
        compare(
            scores[method][a], scores[method][b], task, correct=right.get(method), figure=figure, **options
        )
        for figure, method, a, b in pairs
    ]
    comparisons = dict(zip(pairs, corrected(found), strict=True))
    standings = {
        figure: {
            method: {
                name: _standing(figure, method, name, results[method], comparisons, level) for name in named
            }
            for method, named in scores.items()
        }
        for figure in shown
    }
    return Contest(results, comparisons, standings)


def evaluated(values: Any, task: str | OwnFigure, correct: Any, **options: Any) -> Any:
    """Return the figures of one score."""
    if callable(task):
        own = {name: options[name] for name in ("confidence", "resamples", "seed") if name in options}
        return estimate_figure(task, values, correct, **own)
    if task == "detection":
        return detection(*values, **options)
    return (misclassification if task == "misclassification" else selective)(values, correct, **options)


def _standing(
    figure: str,
    method: str,
    name: str,
    results: Mapping[str, Any],
    comparisons: Mapping[tuple[str, str, str, str], Comparison],
    level: float,
) -> Standing:
    """Return where one score stands among those that it was compared with."""
    sign = -1 if figure in _LESS_IS_BETTER else 1
    # The best is that on all inputs, which the test is about; the mean over splits may order otherwise.
    behind = {}  # by other score: how far this one is behind it, and whether that is told from chance
    for (of_figure, of_method, a, b), comparison in comparisons.items():
        if (of_figure, of_method) == (figure, method) and name in (a, b):
            lead = sign * comparison.difference.value * (1 if name == b else -1)
            behind[b if name == a else a] = lead, comparison.adjusted <= level
    found = results[name]
    estimate = found if isinstance(found, Estimate) else getattr(found, figure)
    if not behind:
        return Standing(estimate)
    worst, told = max(behind.values(), key=lambda entry: entry[0])
    return Standing(estimate, best=worst <= 0, tied=worst > 0 and not told)
