"""Scores of the test rows, and how well they rank the errors."""

from __future__ import annotations

import math

import numpy as np

from demur.decompose import decompose
from demur.predictions import Gaussian
from demur.regression import information, variance
from demur.tasks.sparsification import area_between, order_losses, remaining_error

SCORES = {
    "k": "K", "i": "I", "epistemic-variance": "epistemic variance", "k-total": "total of K",
    "i-total": "total of I", "total-variance": "total variance",
}  # fmt: skip
"""Three scores of disagreement between members, and three totals."""
KEPT_FRACTIONS = np.linspace(0.05, 1.0, 96)
"""Fractions of rows kept at which curves are drawn."""


def _compute_scores(mean: np.ndarray, spread: np.ndarray) -> dict[str, np.ndarray]:
    """Return the scores of Gaussian members, each (rows,), from means and variances (members, rows)."""
    members = Gaussian(mean, variance=spread)
    pairwise, variances = decompose(members), variance(members)
    i = information(members).value
    return {
        "k": pairwise.epistemic, "i": i, "epistemic-variance": variances.epistemic,
        "k-total": pairwise.total, "i-total": pairwise.aleatoric + i, "total-variance": variances.total,
    }  # fmt: skip


def evaluate_split(
    mean: np.ndarray, spread: np.ndarray, y: np.ndarray
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the figures of one split, and curves on the grid as a share of the error of all rows."""
    from scipy.stats import rankdata

    errors = mean.mean(0) - y
    logs = -((y - mean) ** 2 / spread + np.log(2 * math.pi * spread)) / 2
    figures = {
        "rmse": math.sqrt(np.mean(errors**2)),
        "nll": -float(np.mean(np.logaddexp.reduce(logs, axis=0) - math.log(len(mean)))),
    }
    ranks = rankdata(np.abs(errors))
    loss, kept = errors**2, np.arange(1, len(y) + 1) / len(y)
    oracle = remaining_error(order_losses(np.abs(errors), loss), np.sqrt)
    curves = {"oracle": np.interp(KEPT_FRACTIONS, kept, oracle / oracle[-1])}
    for name, values in _compute_scores(mean, spread).items():
        curve = remaining_error(order_losses(values, loss), np.sqrt)
        figures[f"{name}|spearman"] = float(np.corrcoef(rankdata(values), ranks)[0, 1])
        figures[f"{name}|ause"] = area_between(curve, oracle)
        curves[name] = np.interp(KEPT_FRACTIONS, kept, curve / curve[-1])
    return figures, curves
