"""Whether one score is better than another on the same inputs, or it is chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from demur.tasks.estimate import (
    Estimate,
    Figures,
    Options,
    checked_correct,
    checked_scores,
    generator,
    percentile,
    quantile,
    shown,
    spread_of,
)
from demur.tasks.levels import average_precision, false_positive_rate, levels_of, placements
from demur.tasks.own_figure import OwnFigure, compare_figure
from demur.tasks.selective import area_of, excess_of

# Figures of counts per level, from the highest score down; positives are what the task calls so.
FIGURES: dict[str, dict[str, Figures | None]] = {
    "detection": {"auroc": None, "aupr": average_precision, "fpr95": false_positive_rate},
    "misclassification": {"auroc": None, "aupr": average_precision, "fpr95": false_positive_rate},
    "selective": {
        "auc": lambda wrong, right: area_of(right[..., ::-1], wrong[..., ::-1]),
        "aurc": lambda wrong, right: 1 - area_of(right[..., ::-1], wrong[..., ::-1]),
        "excess": lambda wrong, right: excess_of(right[..., ::-1], wrong[..., ::-1]),
    },
}


@dataclass(frozen=True)
class Comparison:
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


def compare(
    a: Any,
    b: Any,
    task: str | OwnFigure,
    *,
    correct: Any = None,
    figure: str | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
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
        "auroc" (the default), "aupr" or "fpr95"; for "selective" "auc" (the default), "aurc" or "excess".
        AUROCs are compared by DeLong's paired test, the others by a paired bootstrap.
    confidence, resamples, seed
        As for ``detection``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> known, unknown = rng.normal(0, 1, 300), rng.normal(1, 1, 300)
    >>> noise = rng.normal(0, 1, (2, 300))
    >>> c = demur.tasks.compare((known, unknown), (known + noise[0], unknown + noise[1]), "detection")
    >>> print(c.difference, f"p = {c.p_value:.4f}")
    0.0743 [0.0437, 0.1049] p = 0.0000
    """
    options = Options(confidence, resamples=resamples, seed=seed)
    if callable(task):
        asked = {"confidence": confidence, "resamples": resamples, "seed": seed}
        difference, p_value = compare_figure(task, a, b, correct, **asked)
        return Comparison(difference, p_value, p_value)
    figures = FIGURES.get(task)
    if figures is None:
        raise ValueError(f"task must be one of {', '.join(map(repr, FIGURES))}. Got {task!r}.")
    figure = figure or next(iter(figures))
    if figure not in figures:
        raise ValueError(f"figure must be one of {', '.join(map(repr, figures))} for {task}. Got {figure!r}.")
    (first, positive), (second, other) = (
        _prepared(x, name, task, correct) for x, name in ((a, "a"), (b, "b"))
    )
    if not np.array_equal(positive, other):
        raise ValueError("a and b must be scores of the same inputs. Got different numbers of them.")
    of_counts = figures[figure]
    if of_counts is None:
        difference, p_value = _delong_paired(first, second, positive, confidence)
    else:
        scores = (first, second)
        stratified = task == "detection"
        difference, p_value = _bootstrap_paired(
            scores, positive, of_counts, options, stratified=stratified, both=task != "selective"
        )
    return Comparison(difference, p_value, p_value)


def compare_all(
    scores: Mapping[str, Any], task: str | OwnFigure, *, reference: str | None = None, **options: Any
) -> dict[tuple[str, str], Comparison]:
    """Return comparisons of all pairs of named scores, or of all with a reference, Holm-corrected together.

    Parameters
    ----------
    scores : dict
        Scores by name, each as ``compare`` takes them.
    task, options
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
    found = [compare(scores[first], scores[second], task, **options) for first, second in pairs]
    return dict(zip(pairs, corrected(found), strict=True))


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of a family with Holm's p-values."""
    adjusted = holm([comparison.p_value for comparison in family])
    return [replace(comparison, adjusted=float(p)) for comparison, p in zip(family, adjusted, strict=True)]


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values that hold for all tests of a family at once (Holm, 1979).

    Examples
    --------
    >>> demur.tasks.holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


def _prepared(scores: Any, name: str, task: str, correct: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return scores of all inputs and which of them are positive."""
    if task == "detection":
        if correct is not None:
            raise ValueError("correct must be None for detection, which takes pairs of scores. Got an array.")
        if not isinstance(scores, (tuple, list)) or len(scores) != 2:
            raise ValueError(f"{name} must be a pair for detection: (id_scores, ood_scores).")
        known, unknown = (checked_scores(f"{name}[{i}]", part) for i, part in enumerate(scores))
        positive = np.repeat([False, True], [len(known), len(unknown)])
        return np.concatenate([known, unknown]), positive
    if correct is None:
        raise ValueError(f"correct must be given for {task}: whether each prediction is right. Got None.")
    values = checked_scores(name, scores)
    wrong = ~checked_correct(correct, len(values))
    if task == "misclassification" and (wrong.all() or not wrong.any()):
        raise ValueError("correct must have both right and wrong predictions to tell apart. Got one kind.")
    return values, wrong


def _delong_paired(
    first: np.ndarray, second: np.ndarray, positive: np.ndarray, confidence: float
) -> tuple[Estimate, float]:
    """Return the difference of two AUROCs and the p-value of none (DeLong, DeLong and Clarke-Pearson, 1988).

    Where DeLong's variance is 0 though they differ, as for a perfect and a perfectly wrong ranking, interval
    and p-value are Hoeffding's (1963) for k = min(positives, negatives) independent pairs, which always hold.
    """
    from scipy.special import erfc

    differences = placed(first, positive) - placed(second, positive)
    value = float(differences[positive].mean())
    strata = [differences[positive], differences[~positive]]
    if not differences.any():
        return Estimate(0.0, 0.0, 0.0, confidence, "delong"), 1.0
    error, _ = spread_of([(d / len(d), np.ones(len(d))) for d in strata])
    fewest = min(len(d) for d in strata)
    if error > 0 and fewest > 1:
        half = quantile(confidence) * error
        p_value = float(erfc(abs(value) / error / math.sqrt(2)))
    else:
        half = math.sqrt(2 * math.log(2 / (1 - confidence)) / fewest)
        p_value = min(1.0, 2 * math.exp(-fewest * value**2 / 2))
    return Estimate(value, max(value - half, -1.0), min(value + half, 1.0), confidence, "delong"), p_value


def placed(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return for each positive the share of negatives below it, for each negative of positives above it."""
    levels = levels_of(scores, positive)
    below, above = placements(levels.positive, levels.negative)
    level = np.searchsorted(-levels.scores, -scores)
    return np.where(positive, below[level], above[level])


def _bootstrap_paired(
    scores: tuple[np.ndarray, np.ndarray],
    positive: np.ndarray,
    figure: Figures,
    options: Options,
    *,
    stratified: bool,
    both: bool,
) -> tuple[Estimate, float]:
    """Return the difference of a figure, its percentile interval and p-value from resampled inputs."""
    number, resamples = len(positive), options.resamples
    rng = generator(options.seed)
    kinds = [np.flatnonzero(~positive), np.flatnonzero(positive)] if stratified else [np.arange(number)]
    rankings = [ranking(s) for s in scores]

    def difference(counts: np.ndarray) -> np.ndarray:
        values = []
        for order, starts in rankings:
            taken, marked = counts[:, order], positive[order]
            hits, rest = (np.add.reduceat(taken * kind, starts, axis=1) for kind in (marked, ~marked))
            values.append(figure(hits, rest))
        return values[0] - values[1]

    found = []
    chunk = max(1, 1_000_000 // number)
    with shown(resamples, number) as progress:
        for begin in range(0, resamples, chunk):
            rows = min(chunk, resamples - begin)
            drawn = [k[rng.integers(0, len(k), (rows, len(k)), dtype=np.uint32)] for k in kinds]
            flat = np.concatenate(drawn, axis=1) + number * np.arange(rows)[:, None]
            counts = np.bincount(flat.ravel(), minlength=rows * number).reshape(rows, number)
            if both:
                counts = counts[(counts[:, positive].any(axis=1)) & (counts[:, ~positive].any(axis=1))]
            found.append(difference(counts))
            progress(begin + rows)
    replicates = np.concatenate(found)
    value = float(difference(np.ones((1, number), dtype=np.int64))[0])
    tails = [(1 + np.sum(side)) / (1 + len(replicates)) for side in (replicates <= 0, replicates >= 0)]
    return percentile(value, replicates, options.confidence), min(1.0, 2 * float(min(tails)))


def ranking(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order from the highest score down and where each level starts in it."""
    order = np.argsort(-scores)
    ranked = scores[order]
    return order, np.append(0, np.flatnonzero(ranked[1:] != ranked[:-1]) + 1)
