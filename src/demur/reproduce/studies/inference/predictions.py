"""What is kept of a fitted method: its average prediction, and the parts of the uncertainty of each input."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.decompose import decompose
from demur.posteriors import EvidentialNetwork
from demur.predictions import Gaussian

PARTS = {"k": "K", "i": "I", "m": "M", "total": "total", "aleatoric": "aleatoric part"}
"""The parts that are compared; total and aleatoric part are those of the pairwise measure."""
MEASURES = {"k": "pairwise", "i": "average", "m": "reverse"}
_CORRECTED_UP_TO = 50
"""Members up to which K, I and M are corrected for their number: with more of them, it changes little."""

Kept = dict[str, np.ndarray]
"""Arrays by name: the `PARTS`, each (inputs,); `average`, (inputs, classes), of classes; `means`,
(members, inputs), and `weights` if members have them, of numbers. Or `score` alone, (inputs,), of a method
that ranks inputs and has no members."""


def summarise_posterior(posterior: Any, inputs: np.ndarray, noise: float | None) -> Kept:
    """Return what is kept of a posterior's predictions for inputs; see `summarise_members`."""
    import torch

    if isinstance(posterior, EvidentialNetwork):
        return _summarise_distribution(next(posterior.predict(torch.from_numpy(inputs))))
    return summarise_members(*read_members(posterior, inputs), noise)


def read_members(posterior: Any, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the outputs of all members, (members, inputs, outputs), and weights if there are any."""
    import torch

    outputs, weights = [], []
    with torch.no_grad():
        for chunk in posterior.predict(torch.from_numpy(inputs)):
            given, weight = chunk if isinstance(chunk, tuple) else (chunk, None)
            if isinstance(given, Gaussian):
                given = given.values[..., :1]  # the means; the noise is known
            outputs.append(np.asarray(given, float))
            weights.append(weight)
    together = None if weights[0] is None else np.concatenate([np.asarray(each, float) for each in weights])
    return np.concatenate(outputs), together


def summarise_members(outputs: np.ndarray, weights: np.ndarray | None, noise: float | None) -> Kept:
    """Return what is kept of members.

    Parameters
    ----------
    outputs
        (members, inputs, outputs): logits, or means of one number.
    weights
        (members,) or (members, inputs); None: equal.
    noise
        Standard deviation of the numbers about the means; None: outputs are logits.
    """
    if noise is None:
        probs = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        probs /= probs.sum(axis=-1, keepdims=True)
        own = {"average": average_members(probs, weights)}
        given: dict[str, Any] = {"logits": outputs}
        members: tuple[Any, ...] = ()
    else:
        means = outputs[..., 0]
        own = {"means": means} | ({} if weights is None else {"weights": weights})
        given, members = {}, (Gaussian(means, variance=np.full(means.shape, noise**2)),)
    few = 2 < len(outputs) <= _CORRECTED_UP_TO
    found = {
        letter: decompose(*members, measure=measure, weights=weights, unbiased=few, **given)
        for letter, measure in MEASURES.items()
    }
    return own | _collect_parts(found)


def _summarise_distribution(distribution: Any) -> Kept:
    """Return what is kept of a distribution over class probabilities, such as a `Dirichlet`."""
    found = {letter: decompose(distribution, measure=measure) for letter, measure in MEASURES.items()}
    return {"average": np.asarray(distribution.mean)} | _collect_parts(found)


def average_members(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the mean over members, the first axis."""
    if weights is None:
        return values.mean(axis=0)
    shaped = weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
    return (shaped * values).sum(axis=0) / shaped.sum(axis=0)


def _collect_parts(found: dict[str, Any]) -> Kept:
    parts = {letter: np.asarray(each.epistemic) for letter, each in found.items()}
    whole = found["k"]
    return parts | {"total": np.asarray(whole.total), "aleatoric": np.asarray(whole.aleatoric)}
