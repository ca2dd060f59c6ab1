"""Mean entropy, K, I and M of single steps: each position of each input is a prediction of its own."""

from __future__ import annotations

import numpy as np

from demur import kernels
from demur.core.jackknife import Estimates
from demur.core.rules import LOG
from demur.core.state import State
from demur.decompose import decompose, split_inputs
from demur.measures import Given, Measure, resolve
from demur.moments import Moments
from demur.predictions import Categorical, Members


def compute_step_figures(members: Members) -> np.ndarray:
    """Return mean entropy, K, I and M of members that have the same weights in every role, (4, steps)."""
    found, left = kernels.summarise(members, LOG)
    if left.size:
        rest = split_inputs(members.only(left), LOG, 1, [None, None])
        parts = kernels.in_threads(
            lambda part, _: figures_of_sums(kernels.state_of(part, LOG, 1))[:3], *zip(*rest, strict=True)
        )
        found[:, left] = np.concatenate(parts, axis=1)
    entropy, k, i = found
    return np.stack([entropy, k, i, k - i])


def figures_of_sums(state: State) -> np.ndarray:
    """Return mean entropy, K, I and M from the sums over members, (4, steps)."""
    estimates = Estimates(state)
    pairwise, average = (estimates.parts(resolve(name), Given()) for name in ("pairwise", "average"))
    k, i = pairwise.epistemic, average.epistemic
    return np.stack([pairwise.aleatoric, k, i, k - i])


def compute_prefix_figures(prediction: Categorical, prior: np.ndarray, prefix: np.ndarray) -> np.ndarray:
    """Return mean entropy, K, I and M where members were weighted by a prefix, (4, steps).

    The chain rule for the KL divergence of two members' whole sequences weighs each step by how likely the
    *predictor* found the tokens before it; members that play the truth keep the weights they had before any
    token. Then sums over steps, averaged over sequences of the average, are exactly the measures of whole
    sequences, K = I + M, and none is negative.

    Parameters
    ----------
    prediction
        Shape (members, steps, vocabulary).
    prior, prefix
        Weights before any token and given the tokens before each step, (members, steps).
    """
    exact = 0 if prediction.kind == "probs" else None  # whoever asks for M is warned then, not here
    own = decompose(prediction, measure="average", weights=prefix, rounding=exact)
    truth = Moments().update(prediction, weights=prior)
    reverse = decompose(prediction, measure=Measure("bma", truth), weights=prefix, rounding=exact).epistemic
    entropy, i, m = (np.asarray(part, np.float64) for part in (own.aleatoric, own.epistemic, reverse))
    return np.stack([entropy, i + m, i, m])
