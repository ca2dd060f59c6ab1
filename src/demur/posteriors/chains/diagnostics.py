"""Whether several Markov chains agree: split R-hat, and how many independent draws they are worth."""

from __future__ import annotations

import math

import numpy as np


def split_rhat(draws: np.ndarray) -> np.ndarray:
    """Return the rank-normalised split R-hat of each quantity; below about 1.01, the chains agree.

    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), "Rank-normalization, folding, and localization:
    an improved R-hat", the larger of Eq. 4 on ranks and on folded ranks.

    Parameters
    ----------
    draws
        (chains, draws, ...), at least 4 draws per chain.

    Returns
    -------
    numpy.ndarray
        Shape (...); NaN where all draws are equal.
    """
    halves = _split_chains(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.fmax(_compare_chains(_normalise_ranks(halves)), _compare_chains(_normalise_ranks(folded)))


def effective_size(draws: np.ndarray) -> np.ndarray:
    """Return how many independent draws the chains are worth for the mean of each quantity.

    Vehtari et al. (2021), Eq. 10, on ranks ("bulk" size), with the sum of autocorrelations cut as Geyer
    (1992) has it: at the first negative pair, and made monotone.

    Parameters
    ----------
    draws
        (chains, draws, ...), at least 4 draws per chain.

    Returns
    -------
    numpy.ndarray
        Shape (...); at most draws times log10(draws), for chains whose draws alternate.
    """
    halves = _normalise_ranks(_split_chains(draws))
    chains, length = halves.shape[:2]
    flat = halves.reshape(chains, length, -1)
    found = np.array([_effective_size_of_one(flat[..., k]) for k in range(flat.shape[2])])
    return found.reshape(halves.shape[2:])


def _split_chains(draws: np.ndarray) -> np.ndarray:
    """Return each chain as two, so that one that drifts disagrees with itself."""
    draws = np.asarray(draws, float)
    if draws.ndim < 2 or draws.shape[1] < 4:
        raise ValueError(f"draws must have shape (chains, draws, ...), 4 draws or more. Got {draws.shape}.")
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normalise_ranks(draws: np.ndarray) -> np.ndarray:
    """Return the normal scores of the ranks among all draws of all chains."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    ranks = rankdata(flat, axis=0)
    return ndtri((ranks - 3 / 8) / (len(flat) + 1 / 4)).reshape(draws.shape)


def _compare_chains(draws: np.ndarray) -> np.ndarray:
    """Return the square root of the total variance over that within chains."""
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((length - 1) / length + between / within)


def _effective_size_of_one(draws: np.ndarray) -> float:
    """Return the effective size of one quantity, (chains, draws)."""
    chains, length = draws.shape
    within = draws.var(axis=1, ddof=1).mean()
    if not within > 0:
        return math.nan
    total = within * (length - 1) / length + draws.mean(axis=1).var(ddof=1)
    centred = draws - draws.mean(axis=1, keepdims=True)
    padded = np.fft.rfft(centred, 2 * length, axis=1)
    covariance = np.fft.irfft(padded * padded.conj(), 2 * length, axis=1)[:, :length].mean(axis=0) / length
    # As the estimate of the autocorrelation of all chains together, Eq. 10.
    correlation = 1 - (within - covariance * length / (length - 1)) / total
    correlation[0] = 1.0
    pairs = correlation[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if negative.size else pairs)
    time = max(2 * pairs.sum() - 1, 1 / math.log10(chains * length))
    return chains * length / time
