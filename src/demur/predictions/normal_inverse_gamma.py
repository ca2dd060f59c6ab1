"""Normal-inverse-gamma distributions over Gaussian predictions: every measure in closed form."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.gamma_function import digamma, digamma_difference, gamma_excess
from demur.predictions.dirichlet import check_positive
from demur.predictions.second_order import Expectations, Parameters, SecondOrder, check_parameters, require

_LARGE_SHAPE = 32.0
_SHAPE_SERIES = (1 / 8, -1 / 64, 1 / 128, -17 / 2048, 31 / 2048)  # of alpha**-1, -3, -5, -7, -9


class GaussianParts(NamedTuple):
    """Expectations over the Gaussians that a distribution describes, shape (...), in nats."""

    entropy: Array  # expected entropy of a Gaussian
    information: Array  # I
    divergence: Array  # K


class NormalInverseGamma(SecondOrder):
    r"""A distribution over the mean and variance of a Gaussian, as evidential regression predicts it.

    The variance is :math:`\sigma^2 \sim \Gamma^{-1}(\alpha, \beta)`, the mean
    :math:`\mu \sim \mathcal N(\gamma, \sigma^2 / \nu)`; the average prediction is Student's t. With
    :math:`\alpha > 1`,

    .. math:: K = \frac{1}{2 (\alpha - 1)} + \frac{2 \alpha - 1}{2 \nu (\alpha - 1)}

    and K is infinite otherwise. Neither K nor I depends on :math:`\beta`, the unit of the outcome.

    Parameters
    ----------
    mean
        :math:`\gamma`, the predicted number, any shape; an array of NumPy, PyTorch or JAX.
    nu
        :math:`\nu > 0`: how many observations the mean is worth.
    alpha, beta
        Above 0: shape and scale of the variance.

    Examples
    --------
    >>> u = demur.decompose(demur.NormalInverseGamma([0.0, 0.0], nu=[10.0, 0.1], alpha=3.0, beta=2.0))
    >>> u.epistemic
    array([ 0.375, 12.75 ])
    >>> demur.NormalInverseGamma(0.0, nu=10.0, alpha=3.0, beta=2.0).epistemic_variance
    array(0.1)
    """

    __slots__ = ("_given", "alpha", "beta", "nu")

    _over_classes: ClassVar[bool] = False

    nu: Array
    alpha: Array
    beta: Array
    _given: Parameters

    def __init__(self, mean: Any, nu: Any, alpha: Any, beta: Any) -> None:
        self._given = check_parameters(mean=mean, nu=nu, alpha=alpha, beta=beta)
        _, self.nu, self.alpha, self.beta = self._given.values
        require(abs(self.mean) < float("inf"), self.mean, "mean must be finite", "See why it is not.")
        advice = "Give the outputs of a network to demur.posteriors.evidential.make_normal_inverse_gamma."
        for name in ("nu", "alpha", "beta"):
            check_positive(name, getattr(self, name), advice)

    def __repr__(self) -> str:
        return f"NormalInverseGamma(shape={self.shape}, {arrays.type_name(self.mean)})"

    @property
    def _source(self) -> Array:
        return self._given.source

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mean.shape)

    @property
    def _stays(self) -> bool:
        return self._given.stays

    @property
    def mean(self) -> Array:
        """The mean of the average prediction, shape (...)."""
        return self._given.values[0]

    @property
    def aleatoric_variance(self) -> Array:
        r"""Expected variance :math:`\beta / (\alpha - 1)`, (...); infinite where :math:`\alpha \le 1`."""
        xp, _, _, alpha, beta = self._given.widen()
        return self._to_result(_divide_by_excess(xp, beta, alpha))

    @property
    def epistemic_variance(self) -> Array:
        r"""Variance of the mean :math:`\beta / (\nu (\alpha - 1))`, (...)."""
        xp, _, nu, alpha, beta = self._given.widen()
        return self._to_result(_divide_by_excess(xp, beta / nu, alpha))

    def _expectations(self, rule: str, stays: bool) -> Expectations:
        raise ValueError(
            "A given side must be a prediction, or a distribution over class probabilities. "
            "Got a NormalInverseGamma. Its own measures are 'pairwise', 'average' and 'reverse'."
        )

    def compute_parts(self) -> GaussianParts:
        """Return what the measures are made of, in float64 or the widest type there is."""
        xp, _, nu, alpha, beta = self._given.widen()
        entropy = (math.log(2 * math.pi) + 1 + xp.log(beta) - digamma(xp, alpha)) / 2
        information = _information_of_variance(xp, alpha) + xp.log1p(1 / nu) / 2
        divergence = _divide_by_excess(xp, 1 + (2 * alpha - 1) / nu, alpha) / 2
        return GaussianParts(entropy, information, divergence)


def _divide_by_excess(xp: Any, numerator: Array, alpha: Array) -> Array:
    """Return ``numerator / (alpha - 1)``, infinite where the expected variance is."""
    finite = alpha > 1
    excess = xp.where(finite, alpha - 1, xp.ones_like(alpha))
    return xp.where(finite, numerator / excess, xp.full_like(alpha, float("inf")))


def _information_of_variance(xp: Any, alpha: Array) -> Array:
    """Return what an outcome with known mean tells of the variance, in nats.

    It is ``a d - 1/2 + e`` with ``d = digamma(a + 1/2) - digamma(a)`` and the excess e of log Gamma(a) over
    its tangent at a + 1/2. The first two cancel for large shapes: there they are a series in 1 / a.
    """
    large = alpha > _LARGE_SHAPE
    a = xp.where(large, xp.ones_like(alpha), alpha)
    direct = a * digamma_difference(xp, a + 0.5, a) - 0.5
    far = xp.where(large, alpha, xp.full_like(alpha, _LARGE_SHAPE))
    series = 0 * far
    for coefficient in reversed(_SHAPE_SERIES):
        series = series / far / far + coefficient
    return xp.where(large, series / far, direct) + gamma_excess(xp, alpha, alpha + 0.5)
