"""Figures of your own: any function of scores and outcomes, with an interval, and compared in pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.tasks.clusters import check_clusters
from demur.tasks.estimate import Estimate, percentile
from demur.tasks.paired_tests import percentile_paired

OwnFigure = Callable[[np.ndarray, np.ndarray], float]
"""From scores and outcomes, (inputs,) each, to a number; more is better."""


def estimate_figure(
    figure: OwnFigure,
    scores: Any,
    outcomes: Any,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    clusters: Any = None,
) -> Estimate:
    """Return a figure of your own with a bootstrap interval.

    Parameters
    ----------
    figure
        A function from scores and outcomes to a number. ``compare``, ``compare_all`` and ``contest`` take
        the same function as their task; they count more as better.
    scores, outcomes : (inputs,) array
        What the function takes, input by input: outcomes are whether each prediction is right, for instance.
    confidence, resamples, seed
        As for ``detection``. The interval is between percentiles of the figure over resampled inputs.
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of: whole clusters are resampled then, and the
        percentiles are further out the fewer clusters there are.

    Examples
    --------
    >>> def accuracy_of_surest_half(scores, correct):
    ...     return correct[scores <= np.median(scores)].mean()
    >>> rng = np.random.default_rng(0)
    >>> correct = rng.uniform(size=400) < 0.8
    >>> print(demur.tasks.estimate_figure(accuracy_of_surest_half, rng.normal(~correct * 1.5), correct))
    0.9300 [0.8899, 0.9650]
    """
    values, replicates, freedom = _resample(figure, [scores], outcomes, resamples, seed, clusters)
    return percentile(float(values[0]), replicates[:, 0], confidence, freedom)


def compare_figure(
    figure: OwnFigure,
    a: Any,
    b: Any,
    outcomes: Any,
    *,
    confidence: float,
    resamples: int,
    seed: int,
    clusters: Any = None,
) -> tuple[Estimate, float]:
    """Return the figure of ``a`` minus that of ``b``, and the p-value of none, by a paired bootstrap."""
    values, replicates, freedom = _resample(figure, [a, b], outcomes, resamples, seed, clusters)
    difference = float(values[0] - values[1])
    return percentile_paired(difference, replicates[:, 0] - replicates[:, 1], confidence, freedom)


def _resample(
    figure: OwnFigure, scores: Sequence[Any], outcomes: Any, resamples: int, seed: int, clusters: Any
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the figure of each score, of each on resampled inputs, (resamples, scores), and the freedom."""
    if outcomes is None:
        raise ValueError("correct must be given for a task of your own: its second argument. Got None.")
    beside = to_numpy(as_array(outcomes))
    columns = [to_numpy(as_array(each)) for each in scores]
    for column in columns:
        if column.ndim != 1 or len(column) != len(beside) or not len(column):
            raise ValueError(
                "scores and outcomes must be arrays of the same inputs. "
                f"Got shapes {column.shape} and {beside.shape}."
            )

    def figures(rows: Any) -> list[float]:
        return [_as_number(figure(column[rows], beside[rows])) for column in columns]

    rng = np.random.default_rng(seed)
    values = np.array(figures(slice(None)))
    together = check_clusters(clusters, len(beside))

    def draw() -> np.ndarray:
        if together is None:
            return rng.integers(0, len(beside), len(beside))
        return np.repeat(np.arange(len(beside)), together.draw(rng, 1)[0])

    drawn = np.array([figures(draw()) for _ in range(resamples)])
    known = np.isfinite(drawn).all(axis=1)  # a resample of one kind of input may have no figure
    if not np.isfinite(values).all() or 2 * known.sum() < resamples:
        raise ValueError(
            f"figure must return finite numbers. Got {values.tolist()}, and no number for "
            f"{resamples - int(known.sum())} of {resamples} resamples."
        )
    return values, drawn[known], np.inf if together is None else together.number - 1


def _as_number(found: Any) -> float:
    """Return what a figure of your own has returned as a number."""
    try:
        return float(found)
    except (TypeError, ValueError):
        shape = getattr(found, "shape", None)
        what = type(found).__name__ if shape is None else f"an array of shape {tuple(shape)}"
        raise TypeError(f"figure must return one number, as a mean over inputs. Got {what}.") from None
