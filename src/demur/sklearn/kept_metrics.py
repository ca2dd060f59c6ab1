"""Metrics of predictions some of which are deferrals."""

from __future__ import annotations

from typing import Any

import numpy as np


def coverage(y_true: Any, y_pred: Any, *, defer_label: Any) -> float:
    """Return the share of inputs that are kept.

    With ``sklearn.metrics.make_scorer`` it chooses, among models that promise the same accuracy, the one that
    defers least: ``make_scorer(demur.sklearn.coverage, defer_label=-1)``.

    Examples
    --------
    >>> from demur.sklearn import coverage
    >>> coverage([0, 1, 1, 0], [0, -1, 0, 0], defer_label=-1)
    0.75
    """
    return float(_find_kept(y_true, y_pred, defer_label).mean())


def kept_accuracy(y_true: Any, y_pred: Any, *, defer_label: Any) -> float:
    """Return the accuracy of the inputs that are kept; NaN where none is.

    Examples
    --------
    >>> from demur.sklearn import kept_accuracy
    >>> kept_accuracy([0, 1, 1, 0], [0, -1, 1, 1], defer_label=-1)
    0.6666666666666666
    """
    kept = _find_kept(y_true, y_pred, defer_label)
    right = np.asarray(y_true)[kept] == np.asarray(y_pred)[kept]
    return float(right.mean()) if kept.any() else float("nan")


def _find_kept(y_true: Any, y_pred: Any, defer_label: Any) -> np.ndarray:
    """Return which predictions are no deferrals."""
    truth, predicted = np.asarray(y_true), np.asarray(y_pred)
    if truth.shape != predicted.shape or predicted.ndim != 1:
        raise ValueError(
            "y_true and y_pred must have one label for each input. "
            f"Got shapes {truth.shape} and {predicted.shape}."
        )
    return predicted != defer_label
