"""Thresholds with a promise for another source than that of the labelled inputs: by weights of these."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.tasks.betting import accuracy_factors, average_capital
from demur.tasks.guarantees import NoGuarantee, Threshold, choose_numbers_kept
from demur.tasks.thresholds import find_ends, find_threshold

_MARGIN = 4.0
"""How many times what has to be proved could be proved if all were right, so that errors may come."""


def check_weights(weights: Any, number: int, limit: float | None) -> tuple[np.ndarray, float]:
    """Return weights, one per score, and the largest that any input can have."""
    values = to_numpy(as_array(weights))
    if values.shape != (number,) or values.dtype.kind not in "fiu":
        raise ValueError(
            f"weights must be numbers of shape ({number},), one per score. Got {values.dtype} of shape "
            f"{values.shape}."
        )
    values = values.astype(float)
    odd = ~(np.isfinite(values) & (values >= 0))
    if odd.any() or not values.any():
        first = int(np.argmax(odd)) if odd.any() else 0
        raise ValueError(
            f"weights must be finite, not negative, and not all zero. Got {values[first]:g} at input {first}."
        )
    largest = float(values.max())
    if limit is None:
        return values, largest
    if not largest <= limit < math.inf:
        raise ValueError(
            f"weight_limit must be finite and at least the largest weight, {largest:g}. Got {limit:g}."
        )
    return values, float(limit)


def fit_weighted_threshold(
    target: float,
    confidence: float,
    scores: np.ndarray,
    right: np.ndarray,
    weights: np.ndarray,
    weight_limit: float,
    name: str,
) -> Threshold:
    """Return the threshold that keeps the most and has the accuracy in the source that weights point to.

    With w = dQ/dP for labelled inputs from P, the accuracy of the kept under Q is at least the target if and
    only if the mean of w (E - limit) over the kept is at most 0, limit = 1 - target. Against the claim that
    it is larger, bettors win with every right prediction; numbers kept are tested in the fixed order of
    `demur.tasks.guarantees.fit_threshold`, up to the first whose capital is below 1 / (1 - confidence). Those
    too few to reach four times its logarithm if all were right are passed over: that depends on no label.
    """
    order = np.argsort(scores, kind="stable")
    ranked, hits, limit = scores[order], right[order], 1 - target
    if_right, if_wrong = accuracy_factors(limit, weights[order] / weight_limit)
    tested = choose_numbers_kept(find_ends(ranked), len(ranked))
    capital = average_capital(np.log(np.where(hits[:, None], if_right, if_wrong)))[tested - 1]
    possible = average_capital(np.log(if_right))[tested - 1]
    needed = -math.log(1 - confidence)
    kept = 0
    enough = possible >= min(_MARGIN * needed, possible[-1])
    for number, found in zip(tested[enough], capital[enough], strict=True):
        if found < needed:
            break
        kept = int(number)
    if kept == 0:
        whose = f" for group {name}" if name else ""
        raise NoGuarantee(
            f"No threshold can promise an accuracy of {target:g} with confidence {confidence:g}{whose} under "
            "these weights. Ask for less, or give more inputs with known truth where weights are large.",
            name,
        )
    return Threshold(find_threshold(ranked, kept), kept, len(ranked), int(hits[:kept].sum()), target)
