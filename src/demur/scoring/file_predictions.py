"""Numbers from files as predictions: what kind they are, which are missing, and which are wrong."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from demur.core.rounding import check_rounding
from demur.predictions import Bernoulli, Categorical, Gaussian, MultiLabel, Points
from demur.stores import Outcome

Kind = Literal["logits", "probs", "log_probs"]


def make_prediction(
    outcome: Outcome,
    kind: Kind | None,
    values: np.ndarray,
    precision: str,
    rounding: float | str | None = None,
) -> Any:
    """Return predictions of what the files are said to hold.

    Parameters
    ----------
    outcome
        What is predicted.
    kind
        What the numbers are; None for numbers that are predicted themselves.
    values
        (..., classes), with one class for a yes or no and for a number, and two for mean and variance.
    precision
        The type that the numbers came in.
    rounding
        How far probabilities may be off, so that they need not quite sum to 1; None where nobody said.
    """
    if outcome == "points":
        return Points(values[..., 0])
    if outcome == "gaussian":
        found: Any = Gaussian(values[..., 0], variance=values[..., 1])
    elif outcome == "classes":
        found = Categorical(**{str(kind): values})
    else:
        if kind == "log_probs":
            kind, values = "logits", _to_logits_of_yes(values)
        family: Any = Bernoulli if outcome == "binary" else MultiLabel
        found = family(**{str(kind): values[..., 0] if outcome == "binary" else values})
    found.precision = precision
    if rounding is not None and kind == "probs":
        found._rounding = check_rounding(rounding, precision)
    return found


def _to_logits_of_yes(log_probs: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)) of log p; infinite where p is 0 or 1."""
    if (log_probs > 0).any():
        raise ValueError(
            f"log_probs must not be above 0. Got {log_probs[log_probs > 0][0]:g}. For logits pass logits=."
        )
    exact = log_probs.astype(np.float64)
    with np.errstate(divide="ignore"):
        return exact - np.log(-np.expm1(exact))


def fill_missing(outcome: Outcome, kind: Kind | None, values: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """Return values in which inputs without a prediction have some valid one, the same for all members."""
    found = values.copy()
    found[:, failed] = 0.0
    if kind == "probs":
        found[:, failed] = 0.5 if outcome in ("binary", "multilabel") else 1 / values.shape[-1]
    elif kind == "log_probs":
        found[:, failed] = np.log(0.5 if outcome in ("binary", "multilabel") else 1 / values.shape[-1])
    elif outcome == "gaussian":
        found[:, failed] = 1.0
    return found


def find_complaint(
    outcome: Outcome,
    kind: Kind | None,
    values: np.ndarray,
    precision: str,
    ignored: np.ndarray | None = None,
    *,
    rounding: float | str | None = None,
) -> str | None:
    """Return what is wrong with some predictions, (inputs, classes) or (classes,); None where nothing is."""
    try:
        found = make_prediction(outcome, kind, values, precision, rounding)
        if outcome == "points":
            used = values if ignored is None else values[~ignored]
            if not np.isfinite(used).all():
                return f"Points must be finite. Got {used[~np.isfinite(used)][0]:g}."
        elif ignored is None:
            found._to_logits()
        else:
            found.with_values(found.values[None])._to_logits(ignored[None])
    except ValueError as error:
        return str(error)
    return None
