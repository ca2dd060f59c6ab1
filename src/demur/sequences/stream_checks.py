"""What a stream of positions refuses: weights and shapes that do not fit, and where predictions are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core import arrays
from demur.decompose import decompose
from demur.predictions import Categorical


def check_prior(weights: Any, members: int, inputs: int) -> np.ndarray:
    """Return weights (members, inputs) that sum to 1 over members."""
    if weights is None:
        return np.full((members, inputs), 1 / members)
    found = arrays.to_numpy(arrays.as_array(weights)).astype(np.float64)
    if found.shape not in ((members,), (members, inputs)):
        raise ValueError(
            f"weights must have shape {(members,)} or {(members, inputs)}, one per member or one per member "
            f"and input. Got {found.shape}."
        )
    if not np.isfinite(found).all() or (found < 0).any() or not (found.max(axis=0) > 0).all():
        raise ValueError("weights must be finite, not negative, and not all zero.")
    whole = np.broadcast_to(found.reshape((members, -1)), (members, inputs))
    return whole / whole.sum(axis=0)


def refuse_empty(shape: tuple[int, ...]) -> None:
    """Raise where an axis of predictions is empty."""
    if 0 in shape:
        raise ValueError(
            "Expected at least one member, input, position and token of the vocabulary. "
            f"Got shape {tuple(shape)}."
        )


def locate_error(
    error: ValueError, prediction: Categorical, mask: np.ndarray, begin: int = 0, whose: str = ""
) -> ValueError:
    """Return the error of the first position at which predictions are wrong; the same one if none is.

    Parameters
    ----------
    error
        What was raised about some of the positions.
    prediction, mask
        Shape (members, inputs, positions, vocabulary), and which positions count, (inputs, positions).
    begin
        How many positions came before in the array that the user gave.
    whose
        What the message begins with.
    """
    for n, at in np.argwhere(mask).tolist():
        own = prediction.with_values(arrays.to_numpy(prediction.values[:, n, at]))
        own.precision = prediction.precision
        try:
            decompose(own, measure="average")
        except ValueError as found:
            return ValueError(f"{whose}Input {n}, position {begin + at}: {found}")
    return error
