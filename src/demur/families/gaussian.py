"""Gaussians with independent coordinates; one coordinate is the ordinary case."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from demur.core.logarithms import itakura_saito
from demur.core.rules import Array, Terms
from demur.families.family import Family, variance_over


class DiagonalGaussianRule(Family):
    """Parameters are the means, then the variances, of each coordinate.

    The statistics are ``z`` and ``z**2`` with ``z`` the outcome less the reference's mean in units of its
    scale: means of 1e6 that differ by 1e-3 lose nothing.
    """

    joint: ClassVar[bool] = True

    def event(self, parameters: int) -> tuple[int, ...]:
        return (parameters // 2,)

    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        return _split(parameters)

    def entropy(self, xp: Any, logits: Array) -> Array:
        _, variance = _split(logits)
        return xp.sum(xp.log(variance) + math.log(2 * math.pi * math.e), axis=-1) / 2

    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        (mean, variance), (centre, unit) = _split(p), _split(q)
        t = (mean - centre) / xp.sqrt(unit)
        wider, ratio = (variance - unit) / unit, variance / unit
        a = xp.concat([t, wider + t * t], axis=-1)
        u = xp.concat([t / ratio, wider / ratio / 2], axis=-1)
        phi = xp.sum(itakura_saito(xp, variance, unit) + t * t, axis=-1, keepdims=True) / 2
        return Terms(a, u, phi)

    def change_coordinates(
        self, xp: Any, a: Array, u: Array, source: Array, reference: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        """Change coordinates from ``z`` to ``s z + d``."""
        (mean, variance), (centre, unit) = _split(source), _split(reference)
        s, d = xp.sqrt(variance / unit), (mean - centre) / xp.sqrt(unit)
        (a_first, a_second), (u_first, u_second) = _split(a), _split(u)
        a_first, u_second = s * a_first, u_second / (s * s)
        a = xp.concat([a_first, s * s * a_second + 2 * d * a_first], axis=-1)
        return a, xp.concat([u_first / s - 2 * d * u_second, u_second], axis=-1)

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        mean, variance = _split(reference)
        return mean + xp.sqrt(variance) * _split(a)[0]

    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        (mean, variance), (other, unlike) = _split(p), _split(q)
        share = variance / (variance + unlike)
        middle = variance - (variance - unlike) * share
        return xp.concat([mean + (other - mean) * share, middle], axis=-1)

    def tighten_upper_bound(self, xp: Any, upper: Array, parameters: Array, shares: Array) -> Array:
        """No distribution of a coordinate's variance has more entropy than a Gaussian.

        ``log Var - E log v`` is the sum of ``log(1 + Var[mean] / v)`` at the mean variance ``v`` and of what
        the variances cost beside it, neither negative.
        """
        mean, variance = _split(parameters)
        shares = shares[..., None]
        usual = variance[0] + xp.sum(shares * (variance - variance[:1]), axis=0)
        of_means = xp.log1p(variance_over(xp, mean, shares) / usual)
        of_spreads = xp.sum(shares * itakura_saito(xp, variance, usual[None, ...]), axis=0)
        return xp.minimum(upper, xp.sum(of_means + of_spreads, axis=-1) / 2)


class GaussianRule(DiagonalGaussianRule):
    """One coordinate, which is a number and no vector."""

    joint: ClassVar[bool] = False
    integrates: ClassVar[bool] = True
    advice: ClassVar[str] = "Give demur.decompose all members at once, and no Moments: it integrates."

    def event(self, parameters: int) -> tuple[int, ...]:
        return ()

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        return super().average(xp, a, reference)[..., 0]


def _split(array: Array) -> tuple[Array, Array]:
    """Return the two halves of the last axis."""
    half = array.shape[-1] // 2
    return array[..., :half], array[..., half:]
