"""Dirichlet and Beta distributions over class probabilities: every measure in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.gamma_function import digamma, gamma_entropy, grow
from demur.core.probabilities import one_hot
from demur.predictions.second_order import (
    Expectations,
    Parameters,
    SecondOrder,
    check_closed_form,
    check_parameters,
    require,
)

CONCENTRATIONS_AT_ONCE = 1 << 15  # numbers worked on at a time, so that what lies between stays in the cache


class Dirichlet(SecondOrder):
    r"""A Dirichlet distribution over class probabilities for each input, as evidential networks predict it.

    With concentrations :math:`\alpha_y` that sum to the precision :math:`\alpha_0`,

    .. math:: K = \frac{C - 1}{\alpha_0}, \qquad
              I = \sum_y \frac{\alpha_y}{\alpha_0} \bigl( g(\alpha_y) - g(\alpha_0) \bigr), \qquad
              g(x) = \psi(x + 1) - \log x .

    Parameters
    ----------
    concentration
        Above 0, shape (..., classes): an array of NumPy, PyTorch or JAX. There is no axis of members.

    Examples
    --------
    >>> u = demur.decompose(demur.Dirichlet([[1.0, 1.0], [5.0, 5.0]]))
    >>> u.epistemic
    array([0.5, 0.1])
    >>> u.aleatoric.round(6)
    array([0.5     , 0.645635])
    """

    __slots__ = ("_given", "concentration")

    concentration: Array
    _given: Parameters

    def __init__(self, concentration: Any) -> None:
        self._given = check_parameters(concentration=concentration)
        self.concentration = self._given.source
        if not self.concentration.shape:
            raise ValueError(
                "concentration must have an axis of classes. Got a number. For two classes use demur.Beta."
            )
        check_positive("concentration", self.concentration)

    def __repr__(self) -> str:
        return f"Dirichlet(shape={self.shape}, {arrays.type_name(self.concentration)})"

    @property
    def _source(self) -> Array:
        return self.concentration

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.concentration.shape)

    @property
    def _stays(self) -> bool:
        return self._given.stays

    @property
    def mean(self) -> Array:
        """The average prediction, shape (..., classes)."""
        _, alpha = self._given.widen()
        return self._to_result(alpha / alpha.sum(-1)[..., None])

    @property
    def precision(self) -> Array:
        r"""The sum :math:`\alpha_0` of the concentrations, shape (...)."""
        _, alpha = self._given.widen()
        return self._to_result(alpha.sum(-1))

    @property
    def differential_entropy(self) -> Array:
        """Entropy of the density over class probabilities in nats, shape (...); it may be negative.

        Examples
        --------
        >>> demur.Dirichlet([[0.5, 0.5], [5.0, 5.0]]).differential_entropy.round(6)
        array([-0.241564, -0.48064 ])
        """
        # A Dirichlet is Gamma variables divided by their sum, which is independent of the ratios.
        xp, alpha = self._given.widen()
        whole = xp.sum(alpha, axis=-1)
        jacobian = (alpha.shape[-1] - 1) * digamma(xp, whole)
        return self._to_result(
            xp.sum(gamma_entropy(xp, alpha), axis=-1) - gamma_entropy(xp, whole) - jacobian
        )

    def _expectations(self, rule: str, stays: bool) -> Expectations:
        check_closed_form(rule, "Dirichlet")
        xp, alpha = self._given.widen(stays)
        if xp is not np or alpha.size <= CONCENTRATIONS_AT_ONCE:
            return _spread_of(xp, alpha, rule)
        rows = alpha.reshape(-1, alpha.shape[-1])
        step = max(1, CONCENTRATIONS_AT_ONCE // rows.shape[-1])
        parts = [_spread_of(np, rows[k : k + step], rule) for k in range(0, len(rows), step)]
        whole = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Expectations(*(each.reshape(*alpha.shape[:-1], *each.shape[1:]) for each in whole))


def _spread_of(xp: Any, alpha: Array, rule: str) -> Expectations:
    """Return the expectations under Dirichlet distributions with these concentrations, (..., classes)."""
    top = one_hot(xp, xp.argmax(alpha, axis=-1), alpha.shape[-1])
    others = xp.sum(xp.where(top, xp.zeros_like(alpha), alpha), axis=-1, keepdims=True)
    whole = xp.max(alpha, axis=-1, keepdims=True) + others
    rest = xp.where(top, others, whole - alpha)  # what the other classes have, not rounded away
    mean, remainder = alpha / whole, rest / whole
    grown = grow(xp, alpha, rest)
    if rule == "brier":
        variance = mean * remainder / (whole + 1)
        return Expectations(
            -grown.log, xp.zeros_like(alpha), 2 * variance, variance, xp.sum(variance * whole, axis=-1)
        )
    return Expectations(
        -grown.log,
        grown.excess - remainder / alpha,
        remainder / whole,
        mean * grown.excess,
        xp.sum(mean * grown.digamma, axis=-1),
    )


class Beta(SecondOrder):
    """A Beta distribution over the probability of outcome 1 of two: a Dirichlet over both.

    Parameters
    ----------
    a, b
        Above 0: pseudo-counts of outcomes 1 and 0. Numbers, or arrays that broadcast to the batch.

    Examples
    --------
    >>> demur.decompose(demur.Beta(5, 5)).epistemic
    array(0.1)
    """

    __slots__ = ("_dirichlet", "a", "b")

    def __init__(self, a: Any, b: Any) -> None:
        given = check_parameters(a=a, b=b)
        self.a, self.b = given.values
        check_positive("a", self.a)
        check_positive("b", self.b)
        xp = arrays.namespace(given.source)
        self._dirichlet = Dirichlet(xp.stack([self.b, self.a], axis=-1))  # outcomes 0 and 1, in this order

    def __repr__(self) -> str:
        return f"Beta({arrays.describe(self.a)}, {arrays.describe(self.b)})"

    @property
    def _source(self) -> Array:
        return self._dirichlet._source

    @property
    def shape(self) -> tuple[int, ...]:
        return self._dirichlet.shape

    @property
    def _stays(self) -> bool:
        return self._dirichlet._stays

    @property
    def mean(self) -> Array:
        """The average probability of outcome 1, shape (...)."""
        return self._dirichlet.mean[..., 1]

    @property
    def precision(self) -> Array:
        """``a + b``, shape (...)."""
        return self._dirichlet.precision

    @property
    def differential_entropy(self) -> Array:
        """Entropy of the density in nats, shape (...); it may be negative."""
        return self._dirichlet.differential_entropy

    def _expectations(self, rule: str, stays: bool) -> Expectations:
        check_closed_form(rule, "Beta")
        return self._dirichlet._expectations(rule, stays)


def check_positive(
    name: str,
    values: Array,
    advice: str = "An evidential network's concentration is its evidence plus 1.",
) -> None:
    """Raise unless all numbers are finite and above 0."""
    require(values > 0, values, f"{name} must be above 0", advice)
    advice = "A distribution without spread is a prediction: use demur.Categorical."
    require(values < float("inf"), values, f"{name} must be finite", advice)
