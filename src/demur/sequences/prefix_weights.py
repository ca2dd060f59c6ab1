"""Weights of members by how likely each of them found the tokens so far: the average by sequence."""

from __future__ import annotations

import numpy as np


def weigh_prefixes(
    prior: np.ndarray, seen: np.ndarray, likelihoods: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """Return weights of members given the tokens before each position, (members, inputs, positions).

    The largest of an input and position is 1, so that none of a long text are all 0. What stands where the
    mask leaves a position out means nothing.

    Parameters
    ----------
    prior, seen
        Weights of members, and log-likelihoods of the tokens before all positions, (members, inputs).
    likelihoods
        Log-likelihoods of the token at each position, (members, inputs, positions).
    mask
        True where a position counts, (inputs, positions).
    """
    before = np.zeros_like(likelihoods)
    np.cumsum(likelihoods[..., :-1], axis=-1, out=before[..., 1:])
    with np.errstate(divide="ignore"):
        scores = np.log(prior)[..., None] + seen[..., None] + before
    top = scores.max(axis=0, keepdims=True)
    unknown = np.isneginf(top[0])
    if (unknown & mask).any():
        place = [int(i) for i in np.argwhere(unknown & mask)[0]]
        raise ValueError(
            f"Every member excludes a token of input {place[0]}, so that nothing is known about "
            "what comes after it. Take average='step', or end the text before that token."
        )
    return np.exp(scores - np.where(unknown, 0.0, top))
