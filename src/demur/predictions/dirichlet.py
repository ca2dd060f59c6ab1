"""Dirichlet and Beta distributions over class probabilities: every measure in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.rules import one_hot
from demur.predictions import arrays
from demur.predictions.arrays import Array
from demur.predictions.gamma import digamma, gamma_entropy, growth
from demur.predictions.second_order import Parameters, SecondOrder, Spread, closed_forms, insist, parameters

BLOCK = 1 << 15  # numbers worked on at a time, so that what lies between stays in the cache


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

    __slots__ = ("concentration", "given")

    concentration: Array
    given: Parameters

    def __init__(self, concentration: Any) -> None:
        self.given = parameters(concentration=concentration)
        self.concentration = self.given.source
        if not self.concentration.shape:
            raise ValueError(
                "concentration must have an axis of classes. Got a number. For two classes use demur.Beta."
            )
        _check_positive("concentration", self.concentration)

    def __repr__(self) -> str:
        return f"Dirichlet(shape={self.shape}, {arrays.type_name(self.concentration)})"

    @property
    def source(self) -> Array:
        return self.concentration

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.concentration.shape)

    @property
    def stays(self) -> bool:
        return self.given.stays

    @property
    def mean(self) -> Array:
        """The average prediction, shape (..., classes)."""
        _, alpha = self.given.computed()
        return self.returned(alpha / alpha.sum(-1)[..., None])

    @property
    def precision(self) -> Array:
        r"""The sum :math:`\alpha_0` of the concentrations, shape (...)."""
        _, alpha = self.given.computed()
        return self.returned(alpha.sum(-1))

    @property
    def differential_entropy(self) -> Array:
        """Entropy of the density over class probabilities in nats, shape (...); it may be negative.

        Examples
        --------
        >>> demur.Dirichlet([[0.5, 0.5], [5.0, 5.0]]).differential_entropy.round(6)
        array([-0.241564, -0.48064 ])
        """
        # A Dirichlet is Gamma variables divided by their sum, which is independent of the ratios.
        xp, alpha = self.given.computed()
        whole = xp.sum(alpha, axis=-1)
        jacobian = (alpha.shape[-1] - 1) * digamma(whole)
        return self.returned(xp.sum(gamma_entropy(xp, alpha), axis=-1) - gamma_entropy(xp, whole) - jacobian)

    def spread(self, rule: str, stays: bool) -> Spread:
        closed_forms(rule, "Dirichlet")
        xp, alpha = self.given.computed(stays)
        if xp is not np or alpha.size <= BLOCK:
            return _spread_of(xp, alpha, rule)
        rows = alpha.reshape(-1, alpha.shape[-1])
        step = max(1, BLOCK // rows.shape[-1])
        parts = [_spread_of(np, rows[k : k + step], rule) for k in range(0, len(rows), step)]
        whole = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Spread(*(each.reshape(*alpha.shape[:-1], *each.shape[1:]) for each in whole))


def _spread_of(xp: Any, alpha: Array, rule: str) -> Spread:
    """Return the expectations under Dirichlet distributions with these concentrations, (..., classes)."""
    top = one_hot(xp, xp.argmax(alpha, axis=-1), alpha.shape[-1])
    others = xp.sum(xp.where(top, xp.zeros_like(alpha), alpha), axis=-1, keepdims=True)
    whole = xp.max(alpha, axis=-1, keepdims=True) + others
    rest = xp.where(top, others, whole - alpha)  # what the other classes have, not rounded away
    mean, remainder = alpha / whole, rest / whole
    grown = growth(xp, alpha, rest)
    if rule == "brier":
        variance = mean * remainder / (whole + 1)
        return Spread(
            -grown.log, xp.zeros_like(alpha), 2 * variance, variance, xp.sum(variance * whole, axis=-1)
        )
    return Spread(
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
        Above 0: counts, so to speak, of outcomes 1 and 0. Numbers, or arrays that broadcast: the batch.

    Examples
    --------
    >>> demur.decompose(demur.Beta(5, 5)).epistemic
    array(0.1)
    """

    __slots__ = ("a", "b", "dirichlet")

    def __init__(self, a: Any, b: Any) -> None:
        given = parameters(a=a, b=b)
        self.a, self.b = given.values
        _check_positive("a", self.a)
        _check_positive("b", self.b)
        xp = arrays.namespace(given.source)
        self.dirichlet = Dirichlet(xp.stack([self.b, self.a], axis=-1))  # outcomes 0 and 1, in this order

    def __repr__(self) -> str:
        return f"Beta({arrays.described(self.a)}, {arrays.described(self.b)})"

    @property
    def source(self) -> Array:
        return self.dirichlet.source

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dirichlet.shape

    @property
    def stays(self) -> bool:
        return self.dirichlet.stays

    @property
    def mean(self) -> Array:
        """The average probability of outcome 1, shape (...)."""
        return self.dirichlet.mean[..., 1]

    @property
    def precision(self) -> Array:
        """``a + b``, shape (...)."""
        return self.dirichlet.precision

    @property
    def differential_entropy(self) -> Array:
        """Entropy of the density in nats, shape (...); it may be negative."""
        return self.dirichlet.differential_entropy

    def spread(self, rule: str, stays: bool) -> Spread:
        closed_forms(rule, "Beta")
        return self.dirichlet.spread(rule, stays)


def _check_positive(name: str, values: Array) -> None:
    """Raise unless all numbers are finite and above 0."""
    advice = "An evidential network's concentration is its evidence plus 1."
    insist(values > 0, values, f"{name} must be above 0", advice)
    advice = "A distribution without spread is a prediction: use demur.Categorical."
    insist(values < float("inf"), values, f"{name} must be finite", advice)
