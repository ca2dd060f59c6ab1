"""Weights that turn labelled inputs of an old source into inputs of a new one, estimated by a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.arrays import as_array, to_numpy

_STEPS = 50


def shift_weights(old: Any, new: Any, *, penalty: float = 1.0) -> np.ndarray:
    """Estimate how much more frequent each old input is in a new source, (old inputs,), with mean about 1.

    A logistic regression tells old inputs from new ones, by their columns and the squares of these; its odds
    are the ratio of both densities (Bickel, Brückner and Scheffer, 2009). An estimate: the promise of a
    policy that is refitted with it is approximate, and nothing helps where new inputs are unlike all old
    ones.

    Parameters
    ----------
    old, new : (inputs,) or (inputs, columns) arrays
        What predictions and their errors depend on, as scores or features; the same columns in both.
    penalty : float
        Ridge penalty of the standardised coefficients: larger weighs all inputs more alike.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> weights = demur.shift_weights(rng.normal(0, 1, 5000), rng.normal(0.5, 1, 5000))
    >>> bool(abs(weights.mean() - 1) < 0.05)
    True
    """
    before, after = _check_table("old", old), _check_table("new", new)
    if before.shape[1] != after.shape[1]:
        raise ValueError(
            f"old and new must have the same columns. Got {before.shape[1]} and {after.shape[1]} of them."
        )
    if not penalty > 0:
        raise ValueError(f"penalty must be above 0. Got {penalty!r}.")
    both = np.concatenate([before, after])
    centre, scale = both.mean(axis=0), both.std(axis=0)
    linear = (both - centre) / np.where(scale > 0, scale, 1.0)
    design = np.column_stack([np.ones(len(both)), linear, linear**2])
    truth = np.concatenate([np.zeros(len(before)), np.ones(len(after))])
    coefficients = _fit_logistic(design, truth, penalty)
    log_odds = design[: len(before)] @ coefficients
    return np.exp(log_odds) * (len(before) / len(after))


def _fit_logistic(design: np.ndarray, truth: np.ndarray, penalty: float) -> np.ndarray:
    """Return the coefficients of a logistic regression, by Newton's method; the first has no penalty."""
    ridge = np.full(design.shape[1], penalty)
    ridge[0] = 0.0
    coefficients = np.zeros(design.shape[1])
    loss = np.inf
    for _ in range(_STEPS):
        linear = design @ coefficients
        chance = 1 / (1 + np.exp(-linear))
        gradient = design.T @ (chance - truth) + ridge * coefficients
        curvature = (design.T * (chance * (1 - chance))) @ design + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        while True:  # halve it where it goes too far
            tried = coefficients - step
            linear = design @ tried
            found = float(np.sum(np.logaddexp(0, linear) - truth * linear) + ridge @ tried**2 / 2)
            if found <= loss or np.abs(step).max() < 1e-12:
                break
            step /= 2
        coefficients, change, loss = tried, np.abs(step).max(), found
        if change < 1e-9:
            break
    return coefficients


def _check_table(name: str, values: Any) -> np.ndarray:
    table = to_numpy(as_array(values))
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or table.size == 0 or table.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be numbers of shape (inputs,) or (inputs, columns). Got {table.dtype} of shape "
            f"{table.shape}."
        )
    table = table.astype(float)
    if not np.isfinite(table).all():
        row = int(np.argmax(~np.isfinite(table).all(axis=1)))
        raise ValueError(f"{name} must be finite. Got something else at input {row}.")
    return table
