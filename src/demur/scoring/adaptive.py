"""When an input has enough members: once more of them would hardly change the ranking of the inputs."""

from __future__ import annotations

import numpy as np

FIRST_MEMBERS, MORE_MEMBERS = 16, 8
"""Members that every input gets, since the noise of fewer cannot be estimated, and members drawn in each
further round for the inputs that need more. Half of each where the posterior knows the spread of its logits,
since most inputs then need no more."""

ERROR_GROUPS = 4
"""Groups of members for the standard error of one input; its neighbours add to the estimate."""

_PRIOR_FREEDOM = 16.0
"""Degrees of freedom given to the neighbours' average variance, beside the input's own ``ERROR_GROUPS - 1``.

Without it, inputs stop whose few members agree by chance: on ImageNet features this loses all of the gain."""

_NEIGHBOUR_SHARE = 0.05
"""Share of the inputs, on either side in the ranking, over which density and variance are averaged."""

INPUTS_REMEMBERED = 4096
"""Finished inputs, at most, that later batches are compared with."""


class Stopping:
    """Decides which inputs need more members.

    An error ``e`` in an input's score moves its rank by ``e f``, as a share of all inputs, where ``f`` is the
    density of scores there. If a single draw has variance ``v``, ``m`` members leave a mean square error of
    the rank of ``a**2 / m``, with ``a = f sqrt(v)``. The fewest draws for which its mean over inputs is
    ``tolerance**2`` are

        m = a mean(a) / tolerance**2

    (Neyman, 1934, for strata of single inputs), and an input stops once it has as many. Spearman's rank
    correlation with infinitely many members is then about ``1 - 6 tolerance**2``.

    Density and mean are those of the inputs of the batch and of the last 4096 inputs finished before. The
    variance of an input is shrunk towards the average of its neighbours in the ranking.

    Parameters
    ----------
    tolerance
        Root mean square error of an input's rank that may remain, as a share of the inputs.
    arrays
        What ``to_arrays()`` returned in the interrupted run; empty: nothing is finished yet.
    """

    def __init__(self, tolerance: float, arrays: dict[str, np.ndarray] | None = None) -> None:
        self.tolerance = tolerance
        nothing = np.empty((3, 0))
        self.finished = (arrays or {}).get("stopping", nothing)  # scores, variances and ``a`` of inputs

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return what is known of finished inputs, for a checkpoint."""
        return {"stopping": self.finished}

    def count_needed(self, scores: np.ndarray, errors: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Return how many members each input of a batch needs.

        Parameters
        ----------
        scores, errors
            (inputs,) each: epistemic parts so far, and their standard errors.
        used
            (inputs,): members so far.

        Returns
        -------
        needed
            (inputs,): 0 where a score is infinite, since no further member changes that.
        """
        return self._judge(scores, errors, used)[1]

    def finish(self, scores: np.ndarray, errors: np.ndarray, used: np.ndarray) -> None:
        """Remember the scores of a finished batch."""
        (scores, variances, moves), _ = self._judge(scores, errors, used)
        fresh = np.stack([scores, variances, moves])[:, np.isfinite(scores)]
        self.finished = np.concatenate([self.finished, fresh], axis=1)[:, -INPUTS_REMEMBERED:]

    def _judge(
        self, scores: np.ndarray, errors: np.ndarray, used: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
        """Return scores, variances and ``a`` of a batch, and how many members its inputs need."""
        finite = np.isfinite(scores)
        own = np.where(finite, errors, 0.0) ** 2 * used
        moves = np.zeros_like(own)
        if finite.any():
            pool = np.concatenate([self.finished[0], scores[finite]])
            variances = np.concatenate([self.finished[1], own[finite]])
            moves[finite] = estimate_rank_noise(scores[finite], own[finite], pool, variances)
        typical = np.concatenate([self.finished[2], moves[finite]])
        needed = np.zeros_like(own)
        moving = moves > 0
        needed[moving] = moves[moving] * typical.mean() / self.tolerance**2
        return (scores, own, moves), needed


def estimate_rank_noise(
    scores: np.ndarray, variances: np.ndarray, pool: np.ndarray, pool_variances: np.ndarray
) -> np.ndarray:
    """Return how far a single draw moves the rank: the density of the pool's scores times their deviation.

    0 where nothing varies; infinite where scores vary but are all equal.
    """
    order = np.argsort(pool, kind="stable")
    sorted_scores = pool[order]
    reach = max(4, int(_NEIGHBOUR_SHARE * len(pool)))
    place = np.searchsorted(sorted_scores, scores)
    low = np.clip(place - reach, 0, len(pool) - 1)
    high = np.clip(place + reach, 0, len(pool) - 1)
    sums = np.concatenate([[0.0], np.cumsum(pool_variances[order])])
    around = (sums[high + 1] - sums[low]) / (high + 1 - low)
    shrunk = (_PRIOR_FREEDOM * around + (ERROR_GROUPS - 1) * variances) / (_PRIOR_FREEDOM + ERROR_GROUPS - 1)
    share, width = (high - low) / len(pool), sorted_scores[high] - sorted_scores[low]
    found = np.zeros_like(scores)
    varies = (shrunk > 0) & (share > 0)
    with np.errstate(divide="ignore"):
        found[varies] = share[varies] / width[varies] * np.sqrt(shrunk[varies])
    return found


def check_tolerance(tolerance: float, *, order: str, members: int | None) -> None:
    """Raise unless this tolerance can be used."""
    if not (isinstance(tolerance, int | float) and 0 < tolerance < 0.5):
        raise ValueError(
            f"tolerance must be above 0 and below 0.5, a share of the inputs: 0.04, say. Got {tolerance!r}."
        )
    if order != "batch":
        raise ValueError(
            "tolerance takes order='batch': a member that predicts the whole data set cannot skip an input. "
            f"Got order={order!r}."
        )
    if members is None:
        raise ValueError("tolerance must know how many members there are. Give Samples(..., members=...).")
