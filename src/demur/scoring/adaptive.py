"""When to stop drawing members for an input: once more of them would hardly change the order of inputs."""

from __future__ import annotations

import numpy as np

FIRST_MEMBERS, MORE_MEMBERS = 16, 8
"""Members that every input gets, since fewer leave nothing to judge its noise by, and members that are drawn
for the inputs that go on before they are judged again. Where the posterior knows their spread, half of each:
most inputs need no more."""

ERROR_GROUPS = 4
"""Groups of members for the standard error of one input; its neighbours say the rest."""

_PRIOR_FREEDOM = 16.0
"""Degrees of freedom given to the neighbours' average variance, beside the input's own ``ERROR_GROUPS - 1``.

Without it inputs stop whose few members agree by chance: on ImageNet features all of the gain is lost."""

_NEIGHBOUR_SHARE = 0.05
"""Share of the inputs, on either side in the order of scores, over which density and variance are taken."""

INPUTS_REMEMBERED = 4096
"""Finished inputs that later batches are compared with."""


class Stopping:
    """Which inputs need more members.

    An error ``e`` of an input's score moves its rank by ``e f``, as a share of all inputs, where ``f`` is the
    density of scores there. With variance ``v`` of a single draw, ``m`` members leave a mean square of
    ``a**2 / m``, ``a = f sqrt(v)``. The fewest draws for which its mean over inputs is ``tolerance**2`` are

        m = a mean(a) / tolerance**2

    (Neyman, 1934, for strata of single inputs), and an input goes on until it has as many. Spearman's rank
    correlation with endless members is then about ``1 - 6 tolerance**2``.

    Density and mean are taken over the inputs of the batch and those finished before, at most 4096 of them.
    The variance of an input is shrunk towards the average of its neighbours in the order of scores.

    Parameters
    ----------
    tolerance
        Root mean square of the share of the inputs that noise may move an input past.
    arrays
        What ``arrays()`` returned in the run before; empty: nothing is finished yet.
    """

    def __init__(self, tolerance: float, arrays: dict[str, np.ndarray] | None = None) -> None:
        self.tolerance = tolerance
        nothing = np.empty((3, 0))
        self.finished = (arrays or {}).get("stopping", nothing)  # scores, variances and a of inputs

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what is known of finished inputs, for a file."""
        return {"stopping": self.finished}

    def needed(self, scores: np.ndarray, errors: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Return how many members each input of a batch needs.

        Parameters
        ----------
        scores, errors
            (inputs,) each: epistemic parts so far and their standard errors, of all inputs of the batch.
        used
            (inputs,): members so far.

        Returns
        -------
        needed
            (inputs,): 0 where a score is infinite, since no member brings it back.
        """
        return self._judged(scores, errors, used)[1]

    def finish(self, scores: np.ndarray, errors: np.ndarray, used: np.ndarray) -> None:
        """Remember a batch that is done."""
        (scores, variances, moves), _ = self._judged(scores, errors, used)
        fresh = np.stack([scores, variances, moves])[:, np.isfinite(scores)]
        self.finished = np.concatenate([self.finished, fresh], axis=1)[:, -INPUTS_REMEMBERED:]

    def _judged(
        self, scores: np.ndarray, errors: np.ndarray, used: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
        """Return scores, variances and a of a batch, and how many members its inputs need."""
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
    """Return by how much a single draw moves ranks: density of the pool's scores times standard deviation.

    0 where nothing varies; infinite where scores that vary are all alike.
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
    """Raise unless draws can stop at this tolerance."""
    if not (isinstance(tolerance, int | float) and 0 < tolerance < 0.5):
        raise ValueError(
            f"tolerance must be above 0 and below 0.5, a share of the inputs, as 0.04. Got {tolerance!r}."
        )
    if order != "batch":
        raise ValueError(
            "tolerance takes order='batch': a member that goes through the whole data set cannot stop for "
            f"one input. Got order={order!r}."
        )
    if members is None:
        raise ValueError("tolerance must know how many members there are. Give Samples(..., members=...).")
