"""Several scores side by side: the figure of each, which is best, and which cannot be told from it.

This is the one place where best and tied are decided; tables, pages, verdicts and the command line read it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from demur.tasks.compare import Comparison, adjust_by_holm, check_figure, compare_pairs
from demur.tasks.detection import Detection, detection, misclassification
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, IntervalOptions
from demur.tasks.own_figure import OwnFigure, estimate_figure
from demur.tasks.selective import selective

_LESS_IS_BETTER = {"fpr95", "aurc", "excess", "augrc"}


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
    chance : str
        "above", "toss" or "below": how the AUROC compares with that of a coin toss (see ``Detection``);
        empty for figures of other tasks.
    """

    estimate: Estimate
    best: bool = False
    tied: bool = False
    chance: str = ""

    @property
    def wins(self) -> bool:
        """Whether it is the best or tied, and not at chance or below: there nothing is won."""
        return (self.best or self.tied) and self.chance in ("", "above")

    @property
    def value(self) -> float:
        """The figure itself."""
        return self.estimate.value


@dataclass(frozen=True, repr=False)
class Contest(Displayed):
    """What ``contest`` found.

    Parameters
    ----------
    results : dict
        By method and score: the `Detection` or `Selective`, with all figures of the task.
    comparisons : dict
        By (figure, method, score, other score): the `Comparison`, Holm-corrected with all the others.
    standings : dict
        By figure, method and score: the `Standing`.
    level : float
        Adjusted p-values up to this one count as a difference.
    """

    results: dict[str, dict[Any, Any]]
    comparisons: dict[tuple[str, str, Any, Any], Comparison]
    standings: dict[str, dict[str, dict[Any, Standing]]]
    level: float = 0.05

    def _display(self) -> tuple[str, Rows, list[str]]:
        methods = list(dict.fromkeys(m for by_method in self.standings.values() for m in by_method))
        rows = [["method", "score", *self.standings]]
        for method in methods:
            for name in self.results[method]:
                found = [self.standings[figure][method][name] for figure in self.standings]
                marks = ["" if not each.wins else " *" if each.best else " =" for each in found]
                cells = [f"{each.estimate}{mark}" for each, mark in zip(found, marks, strict=True)]
                rows.append([str(method), str(name), *cells])
        notes = [f"*: the best; =: not told from it by a paired test at {self.level:g}, all together (Holm)."]
        if any(each.chance in ("toss", "below") for each in self._all_standings()):
            notes.append("No mark where the AUROC is not shown to be above 0.5, a coin toss.")
        return "Contest", rows, notes

    def _all_standings(self) -> list[Standing]:
        """Return the standings of all figures, methods and scores."""
        by_figure = self.standings.values()
        return [each for methods in by_figure for named in methods.values() for each in named.values()]

    def best(self, figure: str, method: str) -> Any:
        """Return the score with the best figure of a method; the first of equal ones."""
        standings = self.standings[figure][method]
        return next((name for name, each in standings.items() if each.best), next(iter(standings)))

    def difference(self, figure: str, method: str, a: Hashable, b: Hashable) -> Comparison:
        """Return the comparison of two scores of a method: the figure of `a` minus that of `b`."""
        found = self.comparisons.get((figure, method, a, b))
        if found is not None:
            return found
        found = self.comparisons[figure, method, b, a]
        d = found.difference
        return replace(found, difference=replace(d, value=-d.value, low=-d.high, high=-d.low))

    def regroup(self, groups: Sequence[Sequence[str]]) -> Contest:
        """Return the same comparisons with standings within other groups: p-values stay as they are.

        Two scores that differ in one grouping differ in each, and so do ties.
        """
        kept = {
            key: found
            for key, found in self.comparisons.items()
            if any(key[2] in group and key[3] in group for group in groups)
        }
        standings = {
            figure: {
                method: _rank(figure, method, self.results[method], kept, self.level) for method in methods
            }
            for figure, methods in self.standings.items()
        }
        return replace(self, standings=standings)


def contest(
    scores: Mapping[str, Mapping[Any, Any]],
    task: str | OwnFigure,
    *,
    correct: Mapping[str, Any] | None = None,
    figures: Sequence[str] | None = None,
    groups: Sequence[Sequence[Any]] | None = None,
    level: float = 0.05,
    interval: str = "auto",
    splits: int | None = None,
    clusters: Any = None,
    strata: Any = None,
    **options: Any,
) -> Contest:
    """Return the figures of several scores of several methods, with those marked that are best.

    Parameters
    ----------
    scores : dict
        By method and name, each as ``compare`` takes it: a pair for "detection", else an array.
    task : "detection", "misclassification", "selective", or a function as ``compare`` takes it
        A function returns an ``Estimate``, and its name stands for the figure.
    correct : dict, optional
        By method, whether the predictions are right; for the other tasks.
    figures : list of str, optional
        Which figures are compared; the first of the task by default.
    groups : list of lists of str, optional
        Scores are compared within these; by default all with all. Scores of one method are compared, never
        methods.
    level : float
        A difference counts if its p-value, Holm-corrected over all that is compared here, is at most this.
        So the chance of one false difference, or more, is at most `level`. All pairs are corrected for, not
        only those with the best, since the best is picked by the same inputs.
    interval, splits, options
        As for ``detection``; the tests are always on all inputs, without splits.
    clusters : as for ``compare``, or a dict of such by method, optional
        Labels of inputs that belong together: intervals and tests are then over draws of whole clusters.
    strata : as for ``detection``, or a dict of such by method, optional
        Labels of kinds of inputs: the results of "detection" and "misclassification" then have `within`.

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
    shown = [check_figure(task, figure) for figure in figures or [None]]
    if not scores or not all(scores.values()):
        raise ValueError("scores must have at least one method, and each at least one score. Got none.")
    right = correct or {}

    def labels(given: Any, method: str) -> Any:
        return given.get(method) if isinstance(given, Mapping) else given

    if strata is not None and task not in ("detection", "misclassification"):
        raise ValueError(f"strata must be None for {task}: they are for detection and misclassification.")
    results = {
        method: {
            name: evaluate_score(
                values,
                task,
                right.get(method),
                interval=interval,
                splits=splits,
                clusters=labels(clusters, method),
                **({} if strata is None else {"strata": labels(strata, method)}),
                **options,
            )
            for name, values in named.items()
        }
        for method, named in scores.items()
    }
    how = IntervalOptions(interval=interval, **options)
    keys: list[tuple[str, str, Any, Any]] = []
    found: list[Comparison] = []
    for figure in shown:
        for method, named in scores.items():
            pairs = [
                pair
                for group in (groups or [list(named)])
                for pair in combinations([name for name in group if name in named], 2)
            ]
            keys += [(figure, method, *pair) for pair in pairs]
            given = {"correct": right.get(method), "clusters": labels(clusters, method)}
            found += compare_pairs(named, pairs, task, figure, how, **given)
    comparisons = dict(zip(keys, adjust_by_holm(found), strict=True))
    standings = {
        figure: {method: _rank(figure, method, results[method], comparisons, level) for method in scores}
        for figure in shown
    }
    return Contest(results, comparisons, standings, level)


def evaluate_score(values: Any, task: str | OwnFigure, correct: Any, **options: Any) -> Any:
    """Return the figures of one score."""
    if callable(task):
        taken = ("confidence", "resamples", "seed", "clusters")
        own = {name: options[name] for name in taken if name in options}
        return estimate_figure(task, values, correct, **own)
    if task == "detection":
        return detection(*values, **options)
    return (misclassification if task == "misclassification" else selective)(values, correct, **options)


def _rank(
    figure: str,
    method: str,
    results: Mapping[Any, Any],
    comparisons: Mapping[tuple[str, str, Any, Any], Comparison],
    level: float,
) -> dict[Any, Standing]:
    """Return where each score of a method stands among those that it was compared with."""
    sign = -1 if figure in _LESS_IS_BETTER else 1
    # The best is that on all inputs, which the test is about; the mean over splits may order otherwise.
    behind: dict[Any, list[tuple[float, bool]]] = {name: [] for name in results}
    for (of_figure, of_method, a, b), comparison in comparisons.items():
        if (of_figure, of_method) == (figure, method):
            lead, told = sign * comparison.difference.value, comparison.adjusted <= level
            behind[a].append((-lead, told))
            behind[b].append((lead, told))
    standings = {}
    for name, others in behind.items():
        furthest, told = max(others, key=lambda each: each[0], default=(0.0, True))
        best, tied = bool(others) and furthest <= 0, furthest > 0 and not told
        found = results[name]
        estimate = found if isinstance(found, Estimate) else getattr(found, figure)
        chance = found.chance if isinstance(found, Detection) else ""
        standings[name] = Standing(estimate, best, tied, chance)
    return standings
