"""Sums of a kernel over all pairs of numbers: sorted sums for the energy kernel, pairs for any other.

Each class holds the numbers of a set of members, (inputs, members, draws), and answers three questions for
any weights, (inputs, members): how uncertain each member is, how far members are from each other, and how
far their average is from that of another set. With ``G_ij = E k(x, y)``, x of member i and y of j, these are
``(E k(y, y) - G_ii) / 2``, ``sum_ij w_i w_j D_ij`` with ``D_ij = (G_ii + G_jj) / 2 - G_ij``, and
``sum_ij u_i u_j G_ij / 2`` with the weights ``u`` of both sets, those of one of them negative.

Only pairs of different draws count. Draws at the same place of two members may share their random numbers,
and are left out: of all pairs ``V`` and those at the same place ``P``, ``(m V - P) / (m - 1)`` remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.predictions.answers import Similarities
from demur.predictions.points import Kernel

NUMBERS_AT_ONCE = 1 << 22  # held for a block of inputs


class _Line:
    """Numbers in ascending order along the last axis, with the gaps between neighbours.

    Gaps are differences of neighbours, so a large common offset costs nothing, and equal numbers have none.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, axis=-1, kind="stable")
        self.gaps = np.diff(self.arrange(values), axis=-1)

    def arrange(self, values: np.ndarray) -> np.ndarray:
        """Return what belongs to the numbers in their order."""
        return np.take_along_axis(values, self.order, axis=-1)

    def below(self, weights: np.ndarray) -> np.ndarray:
        """Return the weight below each gap."""
        return np.cumsum(self.arrange(weights), axis=-1)[..., :-1]

    def mean_distance(self, weights: np.ndarray) -> np.ndarray:
        """Return ``sum_ij w_i w_j |x_i - x_j| / (sum w)**2``: each gap lies between so many pairs."""
        weights = np.broadcast_to(weights, self.order.shape)
        # Added up from above, so that a light member on top is not lost in a difference.
        above = np.flip(np.cumsum(np.flip(self.arrange(weights), -1), axis=-1), -1)[..., 1:]
        return 2 * _sum_products(self.gaps, self.below(weights) * above) / weights.sum(-1) ** 2


class EnergyMembers:
    """Members under ``k(x, y) = -|x - y|``, in the time that sorting takes and without an array of pairs."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.draws = values, values.shape[-1]
        self._pooled = _Line(values.reshape(len(values), -1))
        if self.draws == 1:
            self.entropies = np.zeros(values.shape[:2])
            return
        own, self._aligned = _Line(values), _Line(values.swapaxes(1, 2))
        below = np.arange(1, self.draws)
        pairs = self.draws * (self.draws - 1)
        self.entropies = _sum_products(own.gaps, below * (self.draws - below)) / pairs
        rank = np.argsort(own.order, axis=-1).reshape(len(values), -1)
        # What the square of a member's count grows by when its next draw is passed.
        self._steps = 2.0 * self._pooled.arrange(rank) + 1

    def pairwise(self, weights: np.ndarray) -> np.ndarray:
        """Return the mean divergence of two members."""
        if self.draws == 1:
            return self._pooled.mean_distance(weights)
        apart = 2 * _sum_products(self._pooled.gaps, self._variance_of_shares(weights))
        return self._of_different_draws(apart, self._distance_at_same_place(weights))

    def distance(self, weights: np.ndarray, other: EnergyMembers, weights_there: np.ndarray) -> np.ndarray:
        """Return the divergence of the two averages: the integral of the squared difference of their cdfs."""
        apart = _cdf_distance(self._flat(weights), other._flat(weights_there))
        if self.draws == other.draws:
            if self.draws == 1:
                return apart
            here, there = (
                (side.values.swapaxes(1, 2), np.broadcast_to(w[:, None], (len(w), self.draws, w.shape[1])))
                for side, w in ((self, weights), (other, weights_there))
            )
            return self._of_different_draws(apart, _cdf_distance(here, there).mean(-1))
        for side, own in ((self, weights), (other, weights_there)):
            apart = apart - side._excess(own) / 2
        return apart

    def _flat(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all draws and their weights, (inputs, members * draws)."""
        return self.values.reshape(len(self.values), -1), np.repeat(weights, self.draws, axis=-1)

    def _excess(self, weights: np.ndarray) -> np.ndarray:
        """Return how far the mean distance of different draws exceeds that of all of them."""
        if self.draws == 1:
            return np.zeros(len(weights))
        every = self._pooled.mean_distance(self._flat(weights)[1])
        return (every - self._distance_at_same_place(weights)) / (self.draws - 1)

    def _distance_at_same_place(self, weights: np.ndarray) -> np.ndarray:
        return self._aligned.mean_distance(weights[:, None]).mean(-1)

    def _of_different_draws(self, every: np.ndarray, same_place: np.ndarray) -> np.ndarray:
        return (self.draws * every - same_place) / (self.draws - 1)

    def _variance_of_shares(self, weights: np.ndarray) -> np.ndarray:
        """Return, per gap, the variance over members of their share of draws below it.

        With equal weights the sums are whole numbers, so equal shares have a variance of exactly 0. With
        others, equal shares are found by the same sums with equal weights.
        """

        def variance(own: np.ndarray) -> np.ndarray:
            own = np.repeat(own, self.draws, axis=-1)
            own = self._pooled.arrange(own)
            counts = np.cumsum(own, axis=-1)[..., :-1]
            squares = np.cumsum(own * self._steps, axis=-1)[..., :-1]
            whole = own.sum(-1, keepdims=True) / self.draws
            return (whole * squares - counts**2) / (whole * self.draws) ** 2

        used = (weights > 0).astype(np.float64)
        plain = variance(used)
        if np.array_equal(weights, used):
            return plain
        return np.where(plain == 0, 0.0, variance(weights))


class PairedMembers:
    """Members under any kernel, by all pairs of draws, one member against the others at a time."""

    def __init__(self, values: np.ndarray, kernel: Any) -> None:
        self.values, self.draws, self.kernel = values, values.shape[-1], kernel
        means = self._means_with(self)
        own = np.diagonal(means, axis1=1, axis2=2)
        itself = self._call(values, values).mean(-1)
        self.own = own
        self.entropies = (itself - own) / 2
        self._apart = (own[:, :, None] + own[:, None, :]) / 2 - means

    def pairwise(self, weights: np.ndarray) -> np.ndarray:
        """Return the mean divergence of two members."""
        return _average_pairs(weights, self._apart, weights)

    def distance(self, weights: np.ndarray, other: PairedMembers, weights_there: np.ndarray) -> np.ndarray:
        """Return the divergence of the two averages."""
        apart = (self.own[:, :, None] + other.own[:, None, :]) / 2 - self._means_with(other)
        within = self.pairwise(weights) + other.pairwise(weights_there)
        return _average_pairs(weights, apart, weights_there) - within / 2

    def _means_with(self, other: PairedMembers) -> np.ndarray:
        """Return the mean kernel of each two members over different draws, (inputs, members, members)."""
        counted = np.ones((self.draws, other.draws))
        if self.draws == other.draws > 1:
            np.fill_diagonal(counted, 0.0)
        rows = [
            np.einsum("ijab,ab->ij", self._call(one[:, None, :, None], other.values[:, :, None, :]), counted)
            for one in self.values.swapaxes(0, 1)
        ]
        return np.stack(rows, axis=1) / counted.sum()

    def _call(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = np.asarray(self.kernel(x, y), dtype=np.float64)
        expected = np.broadcast_shapes(x.shape, y.shape)
        if found.shape != expected:
            raise ValueError(
                f"kernel must return one number for each pair, shape {expected} for arrays of shapes "
                f"{x.shape} and {y.shape}. Got shape {found.shape}."
            )
        if not np.isfinite(found).all():
            raise ValueError("kernel must return finite numbers. Got NaN or infinity for some pair.")
        return found


KernelMembers = EnergyMembers | PairedMembers


def members_under(kernel: Kernel, values: np.ndarray) -> KernelMembers:
    """Return members, (inputs, members, draws), ready for sums under a kernel."""
    if isinstance(kernel, Similarities):
        kernel.check_inputs(values)
        return PairedMembers(values, kernel)
    return EnergyMembers(values) if isinstance(kernel, str) else PairedMembers(values, kernel)


def inputs_at_once(kernel: Kernel, members: int, draws: int) -> int:
    """Return how many inputs with so many members and draws make a block."""
    # The energy kernel keeps about ten arrays of the draws; another, all pairs of members and of one row.
    # Of answers, a table of all pairs.
    each = 8 * members * draws if isinstance(kernel, str) else members * (draws * draws + 2 * members)
    if isinstance(kernel, Similarities):
        each = 8 * (members * draws) ** 2
    return max(1, NUMBERS_AT_ONCE // each)


def _cdf_distance(here: tuple[np.ndarray, np.ndarray], there: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the integral of the squared difference of two weighted cdfs, over the last axis."""
    line = _Line(np.concatenate([here[0], there[0]], axis=-1))
    # Each cdf is a sum of its own weights alone: equal sets then have equal sums.
    cdfs = [
        line.below(np.concatenate([a, b], axis=-1))
        for a, b in ((here[1], 0 * there[1]), (0 * here[1], there[1]))
    ]
    one, two = (cdf / w.sum(-1, keepdims=True) for cdf, (_, w) in zip(cdfs, (here, there), strict=True))
    return _sum_products(line.gaps, (one - two) ** 2)


def _average_pairs(left: np.ndarray, pairs: np.ndarray, right: np.ndarray) -> np.ndarray:
    whole = left.sum(-1) * right.sum(-1)
    return np.einsum("ni,nij,nj->n", left, pairs, right, optimize=True) / whole


def _sum_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.einsum("...k,...k->...", left, right)
