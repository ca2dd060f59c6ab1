"""How likely each member found the tokens that came."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core import arrays
from demur.kernels import in_parallel

_NUMBERS_AT_ONCE = 1 << 16
"""Logits that are looked at together: so many stay in a processor's cache."""


def look_up_tokens(values: np.ndarray, kind: str, tokens: np.ndarray) -> np.ndarray:
    """Return the log-probability of a token at each step, by member, in float64.

    Parameters
    ----------
    values
        Shape (members, steps, vocabulary), as ``kind`` says: ``"logits"``, ``"log_probs"`` or ``"probs"``.
    tokens
        Shape (steps,), indices into the vocabulary.
    """
    chosen = np.take_along_axis(values, tokens[None, :, None], axis=-1)[..., 0].astype(np.float64)
    if kind == "log_probs":
        return chosen
    if kind == "probs":
        with np.errstate(divide="ignore"):
            return np.log(chosen)
    return chosen - find_normalisers(values)


def find_normalisers(logits: np.ndarray) -> np.ndarray:
    """Return the log of the sum of the exponentials of logits, (members, steps), in float64."""
    found = np.empty(logits.shape[:2])

    block = max(1, _NUMBERS_AT_ONCE // (len(logits) * logits.shape[2]))

    def one(bounds: tuple[int, int]) -> None:
        scaled = np.empty((len(logits), block, logits.shape[2]), np.result_type(logits.dtype, np.float32))
        for begin in range(*bounds, block):
            own = logits[:, begin : min(begin + block, bounds[1])]
            top = own.max(axis=-1, keepdims=True)
            part = np.subtract(own, top, out=scaled[:, : own.shape[1]])
            # Summed in pairs: the error is of the size of the epsilon of the logits.
            sums = np.exp(part, out=part).sum(axis=-1).astype(np.float64)
            found[:, begin : begin + own.shape[1]] = top[..., 0].astype(np.float64) + np.log(sums)

    in_parallel(one, logits.shape[1], logits.size, 1)
    return found


def check_tokens(tokens: Any, mask: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return tokens as integers (inputs, positions), 0 where they are masked; raise where they are none."""
    found = arrays.to_numpy(arrays.as_array(tokens))
    if found.shape != mask.shape:
        raise ValueError(f"tokens must have shape {mask.shape}, inputs and positions. Got {found.shape}.")
    if found.dtype.kind not in "iu":
        raise TypeError(f"tokens must be integers, places in the vocabulary. Got {found.dtype}.")
    wrong = mask & ((found < 0) | (found >= vocabulary))
    if wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        advice = " Mask what is no token: mask=tokens >= 0." if found[tuple(place)] < 0 else ""
        raise ValueError(
            f"tokens must be from 0 to {vocabulary - 1}. Got {found[tuple(place)]} at {place}.{advice}"
        )
    return np.where(mask, found, 0).astype(np.int64)


def check_mask(mask: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return a mask (inputs, positions), true where a position counts."""
    if mask is None:
        return np.ones(shape, bool)
    found = arrays.to_numpy(arrays.as_array(mask))
    if found.shape != shape:
        raise ValueError(f"mask must have shape {shape}, inputs and positions. Got {found.shape}.")
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        raise ValueError("mask must be true (or 1) where a position counts and false (or 0) elsewhere.")
    return found.astype(bool)
