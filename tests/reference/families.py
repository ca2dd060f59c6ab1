"""Families of distributions by their textbook formulas in mpmath, and measures of them by loops over pairs.

Parameters are lists of floats, taken as exact: Gaussian (mean, variance), diagonal Gaussian (means,
variances), full Gaussian (means, rows of the covariance), multi-label (probabilities), Poisson and
exponential (rate), gamma (shape, rate).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

import demur

DIGITS = 50
PARTS = ("total", "aleatoric", "epistemic")

Parameters = list[float]


def gaussian_kl(p, q):
    (m, v), (n, w) = p, q
    return (v / w - 1 - mpmath.log(v / w) + (m - n) ** 2 / w) / 2


def gaussian_entropy(p):
    return mpmath.log(2 * mpmath.pi * mpmath.e * p[1]) / 2


def coordinates(p):
    half = len(p) // 2
    return list(zip(p[:half], p[half:], strict=True))


def matrices(p):
    d = next(d for d in range(1, 50) if d + d * d == len(p))
    return mpmath.matrix(p[:d]), mpmath.matrix(d, d) + mpmath.matrix([p[d + d * i :][:d] for i in range(d)])


def full_kl(p, q):
    (m, v), (n, w) = matrices(p), matrices(q)
    inverse = w**-1
    ratio = inverse * v
    trace = sum(ratio[i, i] for i in range(m.rows))
    away = ((m - n).T * inverse * (m - n))[0]
    return (trace - m.rows - mpmath.log(mpmath.det(v) / mpmath.det(w)) + away) / 2


def full_entropy(p):
    m, v = matrices(p)
    return mpmath.log((2 * mpmath.pi * mpmath.e) ** m.rows * mpmath.det(v)) / 2


def label_kl(p, q):
    def one(a, b):
        return 0 if a == 0 else mpmath.inf if b == 0 else a * mpmath.log(a / b)

    return sum(one(a, b) + one(1 - a, 1 - b) for a, b in zip(p, q, strict=True))


def label_entropy(p):
    return -sum(a * mpmath.log(a) for x in p for a in (x, 1 - x) if a > 0)


def poisson_kl(p, q):
    return p[0] * mpmath.log(p[0] / q[0]) - p[0] + q[0]


def poisson_entropy(p):
    """``-sum p log p`` over all counts that matter at 50 digits."""
    rate = p[0]
    wide = 16 * mpmath.sqrt(rate) + 80
    total, log_p = mpf(0), None
    for count in range(max(0, int(rate - wide)), int(rate + wide)):
        if log_p is None:
            log_p = count * mpmath.log(rate) - rate - mpmath.loggamma(count + 1)
        else:
            log_p += mpmath.log(rate / count)
        total -= mpmath.exp(log_p) * log_p
    return total


def exponential_kl(p, q):
    return mpmath.log(p[0] / q[0]) + q[0] / p[0] - 1


def gamma_kl(p, q):
    (a, b), (c, d) = p, q
    logs = mpmath.loggamma(c) - mpmath.loggamma(a) + c * mpmath.log(b / d)
    return (a - c) * mpmath.digamma(a) + logs + a * (d - b) / b


def gamma_entropy(p):
    a, b = p
    return a - mpmath.log(b) + mpmath.loggamma(a) + (1 - a) * mpmath.digamma(a)


@dataclass(frozen=True)
class Case:
    """One family: its formulas, how to draw parameters, and how to make predictions of them."""

    kl: Callable
    entropy: Callable
    draw: Callable[..., np.ndarray]  # (rng, *shape) to (*shape, parameters)
    make: Callable[..., Any]  # (array of parameters, conversion) to predictions
    mean: Callable = field(default=lambda p: p[..., 0])  # of the outcome


def spread(rng, *shape):
    return np.exp(rng.normal(size=shape))


def covariances(rng, *shape, d=3):
    root = rng.normal(size=(*shape, d, d + 2))
    return root @ root.swapaxes(-1, -2) / d


def draw_full(rng, *shape, d=3):
    flat = covariances(rng, *shape, d=d).reshape((*shape, d * d))
    return np.concatenate([rng.normal(size=(*shape, d)), flat], axis=-1)


def make_full(p, to):
    d = next(d for d in range(1, 50) if d + d * d == p.shape[-1])
    matrix = p[..., d:].reshape((*p.shape[:-1], d, d))
    return demur.MultivariateGaussian(to(p[..., :d]), covariance=to(matrix))


CASES = {
    "Gaussian": Case(
        gaussian_kl,
        gaussian_entropy,
        lambda rng, *shape: np.stack([rng.normal(size=shape), spread(rng, *shape)], -1),
        lambda p, to: demur.Gaussian(to(p[..., 0]), to(p[..., 1])),
    ),
    "diagonal Gaussian": Case(
        lambda p, q: sum(map(gaussian_kl, coordinates(p), coordinates(q))),
        lambda p: sum(map(gaussian_entropy, coordinates(p))),
        lambda rng, *shape: np.concatenate([rng.normal(size=(*shape, 3)), spread(rng, *shape, 3)], -1),
        lambda p, to: demur.MultivariateGaussian(to(p[..., :3]), to(p[..., 3:])),
        mean=lambda p: p[..., :3],
    ),
    "full Gaussian": Case(full_kl, full_entropy, draw_full, make_full, mean=lambda p: p[..., :3]),
    "multi-label": Case(
        label_kl,
        label_entropy,
        lambda rng, *shape: rng.uniform(0.02, 0.98, size=(*shape, 3)),
        lambda p, to: demur.MultiLabel(to(p)),
        mean=lambda p: p,
    ),
    "Poisson": Case(
        poisson_kl,
        poisson_entropy,
        lambda rng, *shape: 6 * spread(rng, *shape, 1),
        lambda p, to: demur.Poisson(to(p[..., 0])),
    ),
    "exponential": Case(
        exponential_kl,
        lambda p: 1 - mpmath.log(p[0]),
        lambda rng, *shape: spread(rng, *shape, 1),
        lambda p, to: demur.Exponential(to(p[..., 0])),
        mean=lambda p: 1 / p[..., 0],
    ),
    "gamma": Case(
        gamma_kl,
        gamma_entropy,
        lambda rng, *shape: 3 * spread(rng, *shape, 2),
        lambda p, to: demur.Gamma(to(p[..., 0]), to(p[..., 1])),
        mean=lambda p: p[..., 0] / p[..., 1],
    ),
}


def parts(name: str, predictor: list, truth: list, weights: tuple[list, list]) -> dict[str, float]:
    """Total, aleatoric and epistemic part of every predictor meeting every truth, pair by pair."""
    case = CASES[name]
    with mpmath.workdps(DIGITS):
        rows, columns = ([[mpf(float(x)) for x in p] for p in side] for side in (predictor, truth))
        left, right = ([mpf(float(w)) for w in side] for side in weights)
        aleatoric = mpmath.fdot(left, [case.entropy(p) for p in rows]) / sum(left)
        epistemic = mpmath.fsum(
            w * v * case.kl(p, q)
            for w, p in zip(left, rows, strict=True)
            for v, q in zip(right, columns, strict=True)
            if w * v
        ) / (sum(left) * sum(right))
        found = (aleatoric + epistemic, aleatoric, epistemic)
        return dict(zip(PARTS, map(float, found), strict=True))


def pairwise(name: str, members: list, weights: list | None = None) -> dict[str, float]:
    """The pairwise measure of one input."""
    weights = [1.0] * len(members) if weights is None else weights
    return parts(name, members, members, (weights, weights))


def pairwise_unbiased(name: str, members: list, weights: list | None = None) -> dict[str, float]:
    """The same with the U-statistic for its epistemic part."""
    weights = [1.0] * len(members) if weights is None else weights
    found = pairwise(name, members, weights)
    epistemic = found["epistemic"] / (1 - sum(w * w for w in weights) / sum(weights) ** 2)
    return found | {"epistemic": epistemic, "total": found["aleatoric"] + epistemic}


def over_inputs(function: Callable, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Apply a function of lists to each input of arrays (members, inputs, ...)."""
    rows = [function(*(a[:, i].tolist() for a in arrays)) for i in range(arrays[0].shape[1])]
    return {part: np.array([row[part] for row in rows]) for part in PARTS}


class Mixture:
    """The average of Gaussians of one input: Gauss-Legendre in mpmath between all points that matter."""

    def __init__(self, mean, variance, weights=None, others=()) -> None:
        weights = [mpf(float(w)) for w in ([1.0] * len(mean) if weights is None else weights)]
        self.weights = [w / sum(weights) for w in weights]
        rows = [*zip(mean, variance, strict=True), *others]
        known = [(mpf(float(m)), mpf(float(v))) for m, v in rows]
        steps = (-12, -9, -7, -5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 5, 7, 9, 12)
        edges = sorted({m + c * mpmath.sqrt(v) for m, v in known for c in steps})
        nodes, lengths = (list(map(mpf, side)) for side in np.polynomial.legendre.leggauss(24))
        self.lengths, self.members = [], [[] for _ in known]
        for low, high in itertools.pairwise(edges):
            half = (high - low) / 2
            self.lengths += [half * x for x in lengths]
            for (m, v), densities in zip(known, self.members, strict=True):
                scale = 1 / mpmath.sqrt(2 * mpmath.pi * v)
                densities += [scale * mpmath.exp(-((low + half * (1 + x) - m) ** 2) / (2 * v)) for x in nodes]
        averaged = self.members[: len(mean)]
        self.average = [mpmath.fdot(self.weights, column) for column in zip(*averaged, strict=True)]

    def kl(self, left, right) -> Any:
        """KL between two densities at all points."""
        logs = (p * mpmath.log(p / q) for p, q in zip(left, right, strict=True))
        return mpmath.fdot(self.lengths, logs)

    def information(self) -> Any:
        """``sum_i w_i KL(p_i, average)``."""
        return sum(w * self.kl(p, self.average) for w, p in zip(self.weights, self.members, strict=False))

    def reverse(self) -> Any:
        """``sum_i w_i KL(average, p_i)``."""
        return sum(w * self.kl(self.average, p) for w, p in zip(self.weights, self.members, strict=False))

    def entropy(self) -> Any:
        return -mpmath.fdot(self.lengths, [p * mpmath.log(p) for p in self.average])
