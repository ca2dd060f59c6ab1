"""Gaussians with a full covariance matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from demur.families.family import Family
from demur.rules import Array, Terms


@dataclass(frozen=True)
class FullGaussian(Family):
    """Parameters are the mean, then the rows of the covariance matrix.

    The statistics are ``z`` and ``z z'`` with ``z`` the outcome in the reference's own coordinates, in which
    it is a standard Gaussian. Factors are of correlation matrices, so that coordinates in units that differ
    by orders of magnitude cost no digits.
    """

    def event(self, parameters: int) -> tuple[int, ...]:
        return (dimension(parameters),)

    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        mean, covariance = split(parameters)
        return mean, diagonal(covariance)

    def entropy(self, xp: Any, logits: Array) -> Array:
        _, covariance = split(logits)
        scale, lower = factored(xp, covariance)
        logs = xp.log(diagonal(lower)) + xp.log(scale)
        return xp.sum(logs + math.log(2 * math.pi * math.e) / 2, axis=-1)

    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        (mean, covariance), (centre, unit) = split(p), split(q)
        scale, lower = factored(xp, unit)
        own_scale, own_lower = factored(xp, covariance)
        inverse = xp.linalg.inv(lower)
        t = inverse @ ((mean - centre) / scale)[..., None]
        wider = inverse @ ((covariance - unit) / outer(scale)) @ transposed(inverse)
        # The precision in the reference's coordinates, from factors: exact for any ratio of scales.
        root = xp.linalg.inv(own_lower) @ ((scale / own_scale)[..., None] * lower)
        precision = transposed(root) @ root
        second = symmetric(precision @ wider) / 2
        a = joined(xp, t[..., 0], wider + t @ transposed(t))
        u = joined(xp, (precision @ t)[..., 0], second)
        logs = xp.log(diagonal(own_lower) / diagonal(lower)) + xp.log(own_scale / scale)
        phi = volume_excess(xp, wider, 2 * xp.sum(logs, axis=-1)) + xp.sum(t * t, axis=(-2, -1))
        return Terms(a, u, phi[..., None] / 2)

    def carried(
        self, xp: Any, a: Array, u: Array, source: Array, reference: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        """Change coordinates from ``z`` to ``S z + d``."""
        (mean, covariance), (centre, unit) = split(source), split(reference)
        scale, lower = factored(xp, covariance)
        new_scale, new_lower = factored(xp, unit)
        inverse, new_inverse = xp.linalg.inv(lower), xp.linalg.inv(new_lower)
        ratio = (scale / new_scale)[..., None]
        forth, back = new_inverse @ (ratio * lower), inverse @ (new_lower / ratio)
        d = new_inverse @ ((mean - centre) / new_scale)[..., None]
        (a_first, a_second), (u_first, u_second) = split(a), split(u)
        moved = forth @ a_first[..., None]
        cross = moved @ transposed(d)
        second = transposed(back) @ u_second @ back
        first = transposed(back) @ u_first[..., None] - 2 * second @ d
        a_second = forth @ a_second @ transposed(forth) + cross + transposed(cross)
        return joined(xp, moved[..., 0], a_second), joined(xp, first[..., 0], second)

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        mean, covariance = split(reference)
        scale, lower = factored(xp, covariance)
        return mean + scale * (lower @ split(a)[0][..., None])[..., 0]

    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        (mean, covariance), (other, unlike) = split(p), split(q)
        share = covariance @ xp.linalg.inv(covariance + unlike)
        middle = covariance - symmetric(share @ (covariance - unlike))
        moved = (share @ (other - mean)[..., None])[..., 0]
        return joined(xp, mean + moved, middle)


def volume_excess(xp: Any, wider: Array, log_ratio: Array) -> Array:
    """Return ``tr(W) - log det(1 + W)``, from the eigenvalues of ``W`` where it is small."""
    direct = xp.sum(diagonal(wider), axis=-1) - log_ratio
    near = xp.max(xp.abs(wider), axis=(-2, -1)) < 0.5 / wider.shape[-1]
    values = xp.linalg.eigvalsh(xp.where(near[..., None, None], symmetric(wider), 0 * wider))
    return xp.where(near, xp.sum(values - xp.log1p(values), axis=-1), direct)


def factored(xp: Any, covariance: Array) -> tuple[Array, Array]:
    """Return the scale of each coordinate, and the lower factor of the correlation matrix."""
    scale = xp.sqrt(diagonal(covariance))
    return scale, xp.linalg.cholesky(covariance / outer(scale))


def dimension(parameters: int) -> int:
    """Return d of d means and d * d covariances."""
    return (math.isqrt(4 * parameters + 1) - 1) // 2


def split(array: Array) -> tuple[Array, Array]:
    """Return the vector and the matrix."""
    d = dimension(array.shape[-1])
    return array[..., :d], array[..., d:].reshape((*array.shape[:-1], d, d))


def joined(xp: Any, vector: Array, matrix: Array) -> Array:
    """Return a vector and a matrix as one axis."""
    flat = matrix.reshape((*matrix.shape[:-2], matrix.shape[-1] * matrix.shape[-2]))
    return xp.concat([vector, flat], axis=-1)


def diagonal(matrix: Array) -> Array:
    """Return the diagonal."""
    d = matrix.shape[-1]
    return matrix.reshape((*matrix.shape[:-2], d * d))[..., :: d + 1]


def outer(vector: Array) -> Array:
    """Return all products of two entries."""
    return vector[..., :, None] * vector[..., None, :]


def transposed(matrix: Array) -> Array:
    """Return the transposed matrices."""
    return matrix.swapaxes(-1, -2)


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part."""
    return (matrix + transposed(matrix)) / 2
