"""Whether one score is better than another on the same inputs, or it is chance."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np

from demur.tasks.clusters import check_clusters, check_pair_of_clusters
from demur.tasks.display import Displayed, Rows, write_p_value
from demur.tasks.estimate import Estimate, Figures, IntervalOptions, check_correct, check_scores
from demur.tasks.kept_areas import (
    area_influence,
    area_of,
    excess_influence,
    excess_of,
    generalized_risk_influence,
    generalized_risk_of,
)
from demur.tasks.levels import (
    Levels,
    area,
    average_precision,
    average_precision_influence,
    count_levels,
    false_positive_rate,
    false_positive_rate_influence,
)
from demur.tasks.own_figure import OwnFigure, compare_figure
from demur.tasks.paired_tests import (
    Influence,
    bootstrap_figures,
    delong_paired,
    holm,
    influence_of_inputs,
    normal_paired,
    percentile_paired,
    place_inputs,
    spread_of_inputs,
)

_Name = TypeVar("_Name", bound=Hashable)


class _Figure(NamedTuple):
    """A figure of positives and negatives per level, from the highest score down, and its influence."""

    of_counts: Figures
    influence: Influence | None = None  # None: it has a test of its own


def _upward(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a figure of right and wrong predictions, the most certain first, as one of errors downward."""
    return lambda wrong, right: function(right[..., ::-1], wrong[..., ::-1])


def _downward_influence(function: Influence, sign: int = 1) -> Influence:
    """Return the influence of an error and of a right prediction, from the highest score down."""

    def influence(wrong: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_right, of_wrong = function(right[::-1], wrong[::-1])
        return sign * of_wrong[::-1], sign * of_right[::-1]

    return influence


_RANKING = {
    "auroc": _Figure(lambda positive, negative: np.array([area(positive[0], negative[0])])),
    "aupr": _Figure(average_precision, average_precision_influence),
    "fpr95": _Figure(false_positive_rate, false_positive_rate_influence),
}
FIGURES: dict[str, dict[str, _Figure]] = {
    "detection": _RANKING,
    "misclassification": _RANKING,
    "selective": {
        "auc": _Figure(_upward(area_of), _downward_influence(area_influence)),
        "aurc": _Figure(lambda w, r: 1 - _upward(area_of)(w, r), _downward_influence(area_influence, -1)),
        "excess": _Figure(_upward(excess_of), _downward_influence(excess_influence)),
        "augrc": _Figure(_upward(generalized_risk_of), _downward_influence(generalized_risk_influence)),
        "prr": _RANKING["auroc"],  # of which it is twice, less 1
    },
}
"""The figures that can be compared, by task; the first of each is the default."""


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """A figure of one score minus that of another on the same inputs.

    Parameters
    ----------
    difference : Estimate
        With its interval.
    p_value : float
        Two-sided, of no difference.
    adjusted : float
        The p-value after Holm's correction, where the comparison is one of a family; else the same.
    """

    difference: Estimate
    p_value: float
    adjusted: float

    def _display(self) -> tuple[str, Rows, list[str]]:
        title = f"Comparison, first minus second; {100 * self.difference.confidence:g} % interval"
        rows = [["difference", str(self.difference)], ["no difference", write_p_value(self.p_value)]]
        if self.adjusted != self.p_value:
            rows.append(["corrected (Holm)", write_p_value(self.adjusted)])
        return title, rows, []


def compare(
    a: Any,
    b: Any,
    task: str | OwnFigure,
    *,
    correct: Any = None,
    figure: str | None = None,
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    seed: int = 0,
    clusters: Any = None,
) -> Comparison:
    """Return the paired difference, figure of `a` minus figure of `b`.

    Parameters
    ----------
    a, b : array, or pair of arrays
        Two scores of the same inputs in the same order. For "detection" each is a pair, in-distribution and
        out-of-distribution scores; for the other tasks one array.
    task : "detection", "misclassification", "selective", or a function
        A function of your own from scores and `correct` to a number is compared by a paired bootstrap; see
        ``estimate_figure``.
    correct : (inputs,) array of bool
        Whether the predictions are right; for the other tasks.
    figure : str, optional
        "auroc" (the default), "aupr" or "fpr95"; for "selective" "auc" (the default), "aurc", "excess",
        "augrc" or "prr".
    confidence, resamples, seed
        As for ``detection``.
    interval : "auto", "bootstrap" or "asymptotic"
        AUROCs, and so PRRs, are always compared by DeLong's paired test. The others are compared by a paired
        bootstrap or, with "asymptotic", by the normal distribution with the variance of their influence
        functions; "auto" does so above 5,000 inputs, and with clusters.
    clusters : array, or pair of arrays, optional
        A label for each input, as the image that a pixel is of; a pair for "detection". Inputs of one cluster
        are not independent: interval and p-value are then over draws of whole clusters, with Student's
        distribution for their number, or by resampling clusters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> known, unknown = rng.normal(0, 1, 300), rng.normal(1, 1, 300)
    >>> noise = rng.normal(0, 1, (2, 300))
    >>> c = demur.tasks.compare((known, unknown), (known + noise[0], unknown + noise[1]), "detection")
    >>> print(c.difference, f"p = {c.p_value:.4f}")
    0.0743 [0.0437, 0.1049] p = 0.0000
    """
    options = IntervalOptions(confidence, interval, resamples, seed=seed)
    figure = check_figure(task, figure)
    scores = {"a": a, "b": b}
    (found,) = compare_pairs(scores, [("a", "b")], task, figure, options, correct=correct, clusters=clusters)
    return found


def compare_all(
    scores: Mapping[str, Any],
    task: str | OwnFigure,
    *,
    reference: str | None = None,
    correct: Any = None,
    figure: str | None = None,
    clusters: Any = None,
    **options: Any,
) -> dict[tuple[str, str], Comparison]:
    """Return comparisons of all pairs of named scores, or of all with a reference, Holm-corrected together.

    Parameters
    ----------
    scores : dict
        Scores by name, each as ``compare`` takes them.
    task, correct, figure, clusters, options
        As for ``compare``.
    reference : str, optional
        Compare each of the others with this one only.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> right = rng.uniform(size=200) < 0.8
    >>> scores = {name: rng.normal(~right * shift) for name, shift in (("K", 2), ("I", 1), ("noise", 0))}
    >>> found = demur.tasks.compare_all(scores, "misclassification", correct=right, reference="noise")
    >>> [(pair, c.adjusted < 0.05) for pair, c in found.items()]
    [(('K', 'noise'), True), (('I', 'noise'), True)]
    """
    if reference is not None and reference not in scores:
        raise ValueError(f"reference must be one of {', '.join(map(repr, scores))}. Got {reference!r}.")
    if len(scores) < 2:
        raise ValueError(f"scores must have at least 2 names to compare. Got {len(scores)}.")
    pairs = list(combinations(scores, 2))
    if reference is not None:
        pairs = [(name, reference) for name in scores if name != reference]
    figure = check_figure(task, figure)
    how = IntervalOptions(**options)
    found = compare_pairs(scores, pairs, task, figure, how, correct=correct, clusters=clusters)
    return dict(zip(pairs, adjust_by_holm(found), strict=True))


def check_figure(task: str | OwnFigure, figure: str | None = None) -> str:
    """Return the figure, or the default one of the task; raise a `ValueError` unless the task has it."""
    if callable(task):
        return figure or getattr(task, "__name__", "figure")
    figures = FIGURES.get(task)
    if figures is None:
        raise ValueError(f"task must be one of {', '.join(map(repr, FIGURES))}. Got {task!r}.")
    figure = figure or next(iter(figures))
    if figure not in figures:
        raise ValueError(f"figure must be one of {', '.join(map(repr, figures))} for {task}. Got {figure!r}.")
    return figure


def compare_pairs(
    scores: Mapping[_Name, Any],
    pairs: Sequence[tuple[_Name, _Name]],
    task: str | OwnFigure,
    figure: str,
    options: IntervalOptions,
    *,
    correct: Any = None,
    clusters: Any = None,
) -> list[Comparison]:
    """Return the comparisons of pairs of named scores, without a correction for their number.

    What a score needs is computed once, however many pairs it is in; resamples are the same for all scores.
    """
    if callable(task):
        asked = {"confidence": options.confidence, "resamples": options.resamples, "seed": options.seed}
        asked["clusters"] = clusters
        own = [compare_figure(task, scores[a], scores[b], correct, **asked) for a, b in pairs]
        return [Comparison(difference, p_value, p_value) for difference, p_value in own]
    used = list(dict.fromkeys(name for pair in pairs for name in pair))
    needs_both = task == "misclassification" or figure == "prr"
    prepared = {
        name: _prepare(scores[name], str(name), task, correct, needs_both=needs_both) for name in used
    }
    if not used:
        return []
    values = {name: each[0] for name, each in prepared.items()}
    positive = prepared[used[0]][1]
    if not all(np.array_equal(positive, other) for _, other in prepared.values()):
        names = " and ".join(map(str, used))
        raise ValueError(f"{names} must be scores of the same inputs. Got different numbers of them.")
    of_counts, influence = FIGURES[task][figure]
    stratified = task == "detection"
    confidence = options.confidence
    if task == "detection":
        together = check_pair_of_clusters(clusters, int(np.sum(~positive)), int(np.sum(positive)))
    else:
        together = check_clusters(clusters, len(positive))
    levels = {name: count_levels(each, positive) for name, each in values.items()}
    figures = {name: _figure_of(of_counts, each) for name, each in levels.items()}
    if figure in ("auroc", "prr"):
        places = {name: place_inputs(each, positive, levels[name]) for name, each in values.items()}
        found = [
            delong_paired(figures[a] - figures[b], places[a] - places[b], positive, confidence, together)
            for a, b in pairs
        ]
        if figure == "prr":
            found = [(_double(difference), p_value) for difference, p_value in found]
        return [Comparison(difference, p_value, p_value) for difference, p_value in found]
    assert influence is not None
    shifts = {n: influence_of_inputs(influence, each, positive, levels[n]) for n, each in values.items()}
    spreads = [
        spread_of_inputs(shifts[a] - shifts[b], positive, together, stratified=stratified) for a, b in pairs
    ]
    by_formula = (
        not options.uses_bootstrap(len(positive)) if together is None else options.interval != "bootstrap"
    )
    if by_formula:
        found = [
            normal_paired(figures[a] - figures[b], spread, confidence)
            for (a, b), spread in zip(pairs, spreads, strict=True)
        ]
    else:
        both = task != "selective"
        drawn = bootstrap_figures(
            values, positive, of_counts, options, stratified=stratified, both=both, clusters=together
        )
        found = [
            percentile_paired(figures[a] - figures[b], drawn[a] - drawn[b], confidence, spread.freedom)
            for (a, b), spread in zip(pairs, spreads, strict=True)
        ]
    return [Comparison(difference, p_value, p_value) for difference, p_value in found]


def _figure_of(of_counts: Figures, levels: Levels) -> float:
    """Return the figure on all inputs."""
    return float(of_counts(levels.positive[None], levels.negative[None])[0])


def adjust_by_holm(family: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of a family with Holm's p-values."""
    adjusted = holm([comparison.p_value for comparison in family])
    return [replace(comparison, adjusted=float(p)) for comparison, p in zip(family, adjusted, strict=True)]


def _double(found: Estimate) -> Estimate:
    return replace(found, value=2 * found.value, low=2 * found.low, high=2 * found.high)


def _prepare(
    scores: Any, name: str, task: str, correct: Any, *, needs_both: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of all inputs and which of them are positive."""
    if task == "detection":
        if correct is not None:
            raise ValueError("correct must be None for detection, which takes pairs of scores. Got an array.")
        if not isinstance(scores, (tuple, list)) or len(scores) != 2:
            raise ValueError(f"{name} must be a pair for detection: (id_scores, ood_scores).")
        known, unknown = (check_scores(f"{name}[{i}]", part) for i, part in enumerate(scores))
        positive = np.repeat([False, True], [len(known), len(unknown)])
        return np.concatenate([known, unknown]), positive
    if correct is None:
        raise ValueError(f"correct must be given for {task}: whether each prediction is right. Got None.")
    values = check_scores(name, scores)
    wrong = ~check_correct(correct, len(values))
    if needs_both and (wrong.all() or not wrong.any()):
        raise ValueError("correct must have both right and wrong predictions to tell apart. Got one kind.")
    return values, wrong
