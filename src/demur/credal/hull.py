"""The convex hull of the members: its highest entropy, with a certificate.

The entropy of ``q = sum_i w_i p_i`` is concave in the weights, so that its maximum over them is at most

    max_i CE(p_i, q)        at every ``q`` of the hull, against H(q) = sum_i w_i CE(p_i, q) attained,

and the difference is a duality gap: no solver has to be trusted. The weights are found by a primal-dual
interior-point method (Mehrotra's predictor and corrector), for many inputs at a time. They stay positive, so
that the mixture allows every class that some member allows and zero probabilities need no care.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from demur.credal.compiled_calls import PRODUCTS
from demur.kernels.compiling import find_loop

_LARGEST_GAP = 1e-6  # nats, and relative to the difference between highest and lowest entropy
_ROUNDING = 1e-13  # gaps of numbers of order one cannot be told from 0 below this
_MOST_STEPS = 60  # ten are usual
_BACK_OFF = 0.995  # how far to go towards the boundary
PRODUCTS_FOR_THREADS = 1 << 18  # products from which OpenBLAS starts threads
_PLAIN_PRODUCT = 0.4e-9  # seconds that NumPy takes for a product without these threads


class Mixtures(NamedTuple):
    """Mixtures of the members of each input, and how far they are from the highest entropy."""

    weights: np.ndarray  # (inputs, members)
    q: np.ndarray  # (inputs, classes)
    cost: np.ndarray  # CE(p_i, q), (inputs, members)

    @property
    def gap(self) -> np.ndarray:
        """The duality gap, a sum of terms that are not negative."""
        above = self.cost.max(axis=1, keepdims=True) - self.cost
        return np.sum(self.weights * above, axis=1)


def highest_entropy_weights(p: np.ndarray, lowest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (inputs, members) of the mixture of highest entropy, and its duality gap (inputs,).

    Parameters
    ----------
    p
        Members' probabilities, (inputs, members, classes).
    lowest
        Lowest entropy of a member, (inputs,): the gap shall be small beside the distance from it.
    """
    inputs, members, _ = p.shape
    mixtures = mixtures_of(p, np.full((inputs, members), 1.0 / members))
    weights, gap = mixtures.weights, mixtures.gap
    # Multipliers of w >= 0, and of sum w = 1; they start dual feasible, off the boundary by the gap.
    nu = mixtures.cost.max(axis=1) + gap
    slack = nu[:, None] - mixtures.cost
    open_ = np.arange(inputs)
    for _ in range(_MOST_STEPS):
        height = np.sum(mixtures.weights * mixtures.cost, axis=1) - lowest[open_]
        going = mixtures.gap > np.clip(_LARGEST_GAP * height, _ROUNDING, _LARGEST_GAP)
        if not going.all():
            open_, p, slack, nu = open_[going], p[going], slack[going], nu[going]
            mixtures = Mixtures(*(part[going] for part in mixtures))
            if not open_.size:
                break
        moved, slack, nu = _step(p, mixtures, slack, nu)
        mixtures = mixtures_of(p, moved)
        better = mixtures.gap < gap[open_]
        weights[open_[better]] = mixtures.weights[better]
        gap[open_[better]] = mixtures.gap[better]
    return weights, gap


def mixtures_of(p: np.ndarray, weights: np.ndarray) -> Mixtures:
    """Mix the members, and charge each of them for the mixture."""
    weights = weights / weights.sum(axis=1, keepdims=True)
    q = mix(weights, p)
    log_q = np.log(np.where(q > 0, q, 1.0))  # no member allows a class at 0, so that it costs nothing
    return Mixtures(weights, q, -_expected_losses(p, log_q))


def mix(weights: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the sums of members by weight, (inputs, classes); like `gram`, without threads of a library."""
    return np.einsum("bi,biy->by", weights, p)


def _expected_losses(p: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return what each member expects to lose, (inputs, members), for losses (inputs, classes)."""
    return np.einsum("biy,by->bi", p, losses)


def _multiply_by_transpose(rows: np.ndarray) -> np.ndarray:
    """Return ``rows @ rows'`` for each input."""
    products = rows.shape[1] * rows.shape[1] * rows.shape[2]
    if products < PRODUCTS_FOR_THREADS:
        return np.matmul(rows, rows.swapaxes(1, 2))
    if find_loop(PRODUCTS, len(rows) * products * _PLAIN_PRODUCT, repeated=True) is None:
        return np.einsum("biy,bjy->bij", rows, rows)
    from demur.credal.gram import gram

    return gram(rows)


def _step(
    p: np.ndarray, mixtures: Mixtures, slack: np.ndarray, nu: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights, slack and nu after one step towards ``nu - cost = slack``, ``weights * slack = 0``."""
    weights, q, cost = mixtures
    solve = newton_solver(p, q, slack / weights)
    ones = solve(np.ones_like(weights))
    residual = nu[:, None] - cost - slack

    def direction(target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Solve the linearised conditions with ``target`` for the products of weights and slack."""
        free = solve(target / weights - slack - residual)
        d_nu = free.sum(axis=1) / ones.sum(axis=1)
        d_weights = free - d_nu[:, None] * ones
        return d_weights, (target - slack * (weights + d_weights)) / weights, d_nu

    d_weights, d_slack, _ = direction(np.zeros_like(weights))
    before = np.mean(weights * slack, axis=1)
    ahead = weights + _reach(weights, d_weights)[:, None] * d_weights
    after = np.mean(ahead * (slack + _reach(slack, d_slack)[:, None] * d_slack), axis=1)
    centre = before * (after / before) ** 3
    d_weights, d_slack, d_nu = direction(centre[:, None] - d_weights * d_slack)
    length = np.minimum(1.0, _BACK_OFF * np.minimum(_reach(weights, d_weights), _reach(slack, d_slack)))
    return (
        weights + length[:, None] * d_weights,
        slack + length[:, None] * d_slack,
        nu + length * d_nu,
    )


def _reach(values: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return how much of a change, at most all of it, keeps all values from falling below 0."""
    return 1.0 / np.maximum(1.0, np.max(-change / values, axis=1))


def newton_solver(
    p: np.ndarray, q: np.ndarray, diagonal: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:  # fmt: skip
    """Return what solves ``(P diag(1/q) P' + diag(diagonal)) x = b`` for x, (inputs, members).

    The matrix is members by members or, by Woodbury's identity, classes by classes: the smaller one. Its
    own diagonal is raised by a few roundings, since identical members leave it singular. That changes the
    direction of a step, never the certificate.
    """
    raised = 1.0 + 16 * np.finfo(float).eps
    if p.shape[1] <= p.shape[2]:
        half = p / np.sqrt(np.where(q > 0, q, np.inf))[:, None]
        matrix = _multiply_by_transpose(half)
        places = np.arange(p.shape[1])
        matrix[:, places, places] = matrix[:, places, places] * raised + diagonal
        return lambda b: np.linalg.solve(matrix, b[..., None])[..., 0]
    half = p / np.sqrt(diagonal)[..., None]
    matrix = _multiply_by_transpose(half.swapaxes(1, 2))
    places = np.arange(p.shape[2])
    matrix[:, places, places] = matrix[:, places, places] * raised + np.where(q > 0, q, 1.0)

    def by_classes(b: np.ndarray) -> np.ndarray:
        scaled = b / diagonal
        inner = np.linalg.solve(matrix, mix(scaled, p)[..., None])[..., 0]
        return scaled - _expected_losses(p, inner) / diagonal

    return by_classes
