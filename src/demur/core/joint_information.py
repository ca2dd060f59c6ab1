r"""Mutual information of all labels together, which is not the sum over labels.

With members ``i`` of share ``w_i``, an outcome ``y`` of all labels makes member ``i`` as likely as
``pi_i(y) = w_i p_i(y) / mean p(y)``, and the information is the mean over ``y``, drawn from the average, of

    f(y) = KL(pi(y), w) = sum_i w_i phi(log p_i(y) / mean p(y)),    phi(x) = exp(x) x - exp(x) + 1 >= 0.

So the mean of ``f`` over drawn outcomes is unbiased, each term is at least 0 and at most the logarithm of the
reciprocal of the smallest share, and identical members give exactly 0.
"""

from __future__ import annotations

import numpy as np

from demur.core.logarithms import generalised_kl_term


def enumerate_outcomes(log_pairs: np.ndarray) -> np.ndarray:
    """Return log-probabilities of all outcomes, (..., 2**labels), from those of labels, (..., labels, 2)."""
    found = np.zeros((*log_pairs.shape[:-2], 1))
    for label in range(log_pairs.shape[-2]):
        found = (found[..., None] + log_pairs[..., label, None, :]).reshape((*found.shape[:-1], -1))
    return found


def sample_information(
    log_pairs: np.ndarray, shares: np.ndarray, samples: int, random: np.random.Generator
) -> tuple[float, float]:
    """Return the mean and standard error of ``f`` over outcomes of one input.

    Parameters
    ----------
    log_pairs
        Log-probabilities of absent and present, (members, labels, 2).
    shares
        (members,), all above 0, which sum to 1.
    samples
        How many outcomes are drawn.
    """
    drawn = random.choice(len(shares), size=samples, p=shares)
    present = random.random((samples, log_pairs.shape[1])) < np.exp(log_pairs[drawn, :, 1])
    possible = np.isfinite(log_pairs)
    finite = np.where(possible, log_pairs, 0.0)
    log_p = np.where(present, 1.0, 0.0) @ (finite[..., 1] - finite[..., 0]).T + finite[..., 0].sum(axis=1)
    if not possible.all():
        excluded = np.where(present, 1.0, 0.0) @ (~possible[..., 1]).T + ~present @ (~possible[..., 0]).T
        log_p = np.where(excluded > 0, -np.inf, log_p)
    below = log_p - log_p.max(axis=1, keepdims=True)
    ratio = below - np.log1p(np.expm1(below) @ shares)[:, None]
    excluded = ratio == -np.inf
    phi = np.where(excluded, 1.0, generalised_kl_term(np, np.expm1(ratio), np.where(excluded, 0.0, ratio)))
    values = phi @ shares
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(samples))
