"""Gaussians with a full covariance matrix."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from demur.core.rules import Array, Terms
from demur.families.family import Family


class FullGaussianRule(Family):
    """Parameters are the mean, then the rows of the covariance matrix.

    The statistics are ``z`` and ``z z'`` with ``z`` the outcome less the reference's mean, each coordinate in
    units of the reference's scale. Coordinates are not mixed: where scales differ by orders of magnitude,
    between members or coordinates, small ones would drown in large ones.
    """

    joint: ClassVar[bool] = True

    def event(self, parameters: int) -> tuple[int, ...]:
        return (_dimension(parameters),)

    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        mean, covariance = split(parameters)
        return mean, diagonal(covariance)

    def entropy(self, xp: Any, logits: Array) -> Array:
        _, covariance = split(logits)
        scale, lower = _factorise(xp, covariance)
        logs = xp.log(diagonal(lower)) + xp.log(scale)
        return xp.sum(logs + math.log(2 * math.pi * math.e) / 2, axis=-1)

    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        (mean, covariance), (centre, unit) = split(p), split(q)
        scale, lower = _factorise(xp, unit)
        own_scale, own_lower = _factorise(xp, covariance)
        inverse, own_inverse = xp.linalg.inv(lower), xp.linalg.inv(own_lower)
        t = ((mean - centre) / scale)[..., None]
        wider = (covariance - unit) / outer(scale)
        standard = transpose(inverse) @ inverse  # the precisions of both
        precision = transpose(own_inverse) @ own_inverse * outer(scale / own_scale)
        white = inverse @ wider @ transpose(inverse)
        near = xp.max(xp.abs(white), axis=(-2, -1)) < 0.5 / white.shape[-1]
        # Their difference, by what the covariances differ where that is little.
        change = xp.where(near[..., None, None], precision @ wider @ standard, standard - precision)
        a = join(xp, t[..., 0], wider + t @ transpose(t))
        u = join(xp, (precision @ t)[..., 0], symmetrise(change) / 2)
        logs = xp.log(diagonal(own_lower) / diagonal(lower)) + xp.log(own_scale / scale)
        values = xp.linalg.eigvalsh(xp.where(near[..., None, None], symmetrise(white), 0 * white))
        close = xp.sum(values - xp.log1p(values), axis=-1)
        volume = xp.where(near, close, xp.sum(diagonal(white) - 2 * logs, axis=-1))
        away = xp.sum((inverse @ t) ** 2, axis=(-2, -1))
        return Terms(a, u, (volume + away)[..., None] / 2)

    def change_coordinates(
        self, xp: Any, a: Array, u: Array, source: Array, reference: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        """Change coordinates from ``z`` to ``s z + d``, each by itself."""
        (mean, covariance), (centre, unit) = split(source), split(reference)
        new = xp.sqrt(diagonal(unit))
        s, d = xp.sqrt(diagonal(covariance)) / new, (mean - centre) / new
        (a_first, a_second), (u_first, u_second) = split(a), split(u)
        a_first, u_second = s * a_first, u_second / outer(s)
        cross = a_first[..., :, None] * d[..., None, :]
        a = join(xp, a_first, a_second * outer(s) + cross + transpose(cross))
        turned = 2 * (u_second @ d[..., None])[..., 0]
        return a, join(xp, u_first / s - turned, u_second)

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        mean, covariance = split(reference)
        return mean + xp.sqrt(diagonal(covariance)) * split(a)[0]

    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        (mean, covariance), (other, unlike) = split(p), split(q)
        share = covariance @ xp.linalg.inv(covariance + unlike)
        middle = covariance - symmetrise(share @ (covariance - unlike))
        moved = (share @ (other - mean)[..., None])[..., 0]
        return join(xp, mean + moved, middle)


def _factorise(xp: Any, covariance: Array) -> tuple[Array, Array]:
    """Return the scale of each coordinate, and the lower factor of the correlation matrix."""
    scale = xp.sqrt(diagonal(covariance))
    return scale, xp.linalg.cholesky(covariance / outer(scale))


def _dimension(parameters: int) -> int:
    """Return d of d means and d * d covariances."""
    return (math.isqrt(4 * parameters + 1) - 1) // 2


def split(array: Array) -> tuple[Array, Array]:
    """Return the vector and the matrix."""
    d = _dimension(array.shape[-1])
    return array[..., :d], array[..., d:].reshape((*array.shape[:-1], d, d))


def join(xp: Any, vector: Array, matrix: Array) -> Array:
    """Return a vector and a matrix as one axis."""
    flat = matrix.reshape((*matrix.shape[:-2], matrix.shape[-1] * matrix.shape[-2]))
    return xp.concat([vector, flat], axis=-1)


def diagonal(matrix: Array) -> Array:
    """Return the diagonal."""
    d = matrix.shape[-1]
    return matrix.reshape((*matrix.shape[:-2], d * d))[..., :: d + 1]


def identity(xp: Any, like: Array) -> Array:
    """Return identity matrices, as many as there are."""
    ones = xp.ones_like(like)
    return xp.tril(ones) * xp.triu(ones)


def outer(vector: Array) -> Array:
    """Return all products of two entries."""
    return vector[..., :, None] * vector[..., None, :]


def transpose(matrix: Array) -> Array:
    """Return the transposed matrices."""
    return matrix.swapaxes(-1, -2)


def symmetrise(matrix: Array) -> Array:
    """Return the symmetric part."""
    return (matrix + transpose(matrix)) / 2
