"""Mean entropy, K, I and M of single steps: each position of each input is a prediction of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demur import kernels
from demur.core.jackknife import Estimates
from demur.core.rules import LOG
from demur.core.state import State
from demur.decompose import decompose, split_inputs
from demur.measures import Given, Measure, resolve
from demur.moments import Moments
from demur.predictions import Categorical, Members, gather
from demur.sequences.compiled_calls import summarise_few
from demur.sequences.token_log_likelihoods import find_normalisers

_NUMBERS_AT_ONCE = 1 << 15
"""Probabilities that are looked at together: so many stay in a processor's cache."""
_ROWS_AT_ONCE = 32
"""Rows that the loop for few members leaves to others, which are copied together."""
_NEAR = 1e-3
"""Below, a series of three terms is taken, above, differences: both are then exact to 1e-9."""


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


def compute_few_figures(
    members: Sequence[np.ndarray],
    steps: np.ndarray,
    weights: np.ndarray | None = None,
    prior: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean entropy, K, I and M, (4, steps), and the normalisers of logits, (members, steps).

    Parameters
    ----------
    members
        Logits (rows, vocabulary) of each, which ``takes_few`` takes.
    steps
        The rows that count.
    weights, prior
        Of members given the tokens before, and before any token, (members, rows); None: all alike.
    """
    alike = np.ones((len(members), len(members[0])))
    roles = (alike, alike) if weights is None or prior is None else (weights, prior)
    figures, normalisers, left = summarise_few(members, steps, *roles)
    for begin in range(0, len(left), _ROWS_AT_ONCE):
        rows = left[begin : begin + _ROWS_AT_ONCE]
        logits = np.stack([each[rows] for each in members])
        own = Categorical(logits=logits)
        if weights is None or prior is None:
            figures[:, rows] = compute_step_figures(gather(own, None, 0))
        else:
            figures[:, rows] = compute_prefix_figures(own, prior[:, rows], weights[:, rows])
        normalisers[:, rows] = find_normalisers(logits)
    return figures[:, steps], normalisers[:, steps]


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
    m = _compute_reverse(prediction, prior, prefix)
    if m is None:  # members exclude tokens
        truth = Moments().update(prediction, weights=prior)
        given = Measure("bma", truth)
        m = np.asarray(
            decompose(prediction, measure=given, weights=prefix, rounding=exact).epistemic, np.float64
        )
    entropy, i = (np.asarray(part, np.float64) for part in (own.aleatoric, own.epistemic))
    return np.stack([entropy, i + m, i, m])


def _compute_reverse(prediction: Categorical, prior: np.ndarray, prefix: np.ndarray) -> np.ndarray | None:
    """Return the divergence of the average by prefix from members with prior weights, (steps,).

    With u = log(average / member), its terms average * (u + exp(-u) - 1) are not negative. Both logarithms
    are taken relative to the likeliest member of a token, so that equal members have a u of exactly 0. None
    where a member excludes a token.
    """
    if prediction.kind == "probs":
        return None
    values = prediction.values
    members, steps, vocabulary = values.shape
    prior, prefix = prior / prior.sum(axis=0), prefix / prefix.sum(axis=0)
    found, block = np.empty(steps), max(1, _NUMBERS_AT_ONCE // (members * vocabulary))
    for begin in range(0, steps, block):
        part = slice(begin, begin + block)
        logs = np.asarray(values[:, part], np.float64)
        logs = logs - find_normalisers(logs)[..., None]
        if not np.isfinite(logs).all():
            return None
        top = logs.max(axis=0)
        gaps = logs - top
        weights = prefix[:, part, None]
        ratio, change = (weights * np.exp(gaps)).sum(axis=0), (weights * np.expm1(gaps)).sum(axis=0)
        if not ratio.all():  # below the smallest number
            return None
        log_ratio = np.where(ratio < 0.5, np.log(ratio), np.log1p(np.maximum(change, -0.9)))
        average = np.exp(top) * ratio
        total = np.zeros(len(average))
        for share, gap in zip(prior[:, part], gaps, strict=True):
            u = log_ratio - gap
            total += share * _sum_terms(average, u, np.exp(top + gap))
        found[part] = total
    return found


def _sum_terms(average: np.ndarray, u: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Return the sum of ``average * u - average + member``, whose terms are not negative, over tokens."""
    near = np.abs(u) < _NEAR
    small = np.where(near, u, 0.0)
    series = average * (small * small * (0.5 - small * (1 / 6 - small / 24)))
    return np.where(near, series, average * (u - 1) + member).sum(axis=-1)
