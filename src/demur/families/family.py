"""What a family of distributions gives, so that the sums and measures of classes serve it as they are.

If ``-log p(y) = <l, T(y)> + b(y)``, with ``b`` common to all members, then relative to a reference ``q``

    a = E_p[T] - E_q[T],    u = l(q) - l(p), the difference of natural parameters,    phi = KL(p, q) >= 0,

play the parts that they play for classes (see ``demur.core.rules``): the same sums, the same formula.

Parameters
----------
of a prediction are the last axis, in place of logits; a reference is the parameters of a member. The inner
product of ``a`` and ``u`` has a meaning, its terms have none: a family may change coordinates with the
reference.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from demur.core.rules import Array, Rule, Terms


class Family(Rule):
    """A family of distributions; subclasses say what its parameters mean."""

    nats: ClassVar[bool] = True
    mixes: ClassVar[bool] = False
    joint: ClassVar[bool] = False  # an outcome is a vector: the last axis of what the user gives
    advice: ClassVar[str] = "demur.information_bounds gives bounds of I from all members at once."

    def event(self, parameters: int) -> tuple[int, ...]:
        """Return the shape of an outcome, from the number of parameters."""
        return ()

    def shape_as_given(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], *self.event(shape[-1]))

    @abstractmethod
    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        """Return mean and variance of the outcome, with the event's axis last, 1 where it is a number."""

    @abstractmethod
    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        """Return the member of the family halfway between two, in natural parameters."""

    def tighten_upper_bound(self, xp: Any, upper: Array, parameters: Array, shares: Array) -> Array:
        """Return the lower of an upper bound of mutual information and one that the family knows of."""
        return upper

    @abstractmethod
    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        """Return the terms of predictions relative to others, by their parameters."""

    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        found = self.relative(xp, logits, chosen)
        known = not type(found.phi).__name__.endswith("Tracer")
        if known and not all(bool(xp.all(xp.isfinite(part))) for part in found[:3]):
            raise ValueError(
                f"{self.name} predictions must have divergences below 1e300. Got members that are farther "
                "apart. Leave such members out."
            )
        return found

    def reference(self, xp: Any, logits: Array) -> Array:
        return logits

    def terms_between(self, xp: Any, source: Array, reference: Array) -> Terms:
        return self.terms(xp, source, reference)

    @abstractmethod
    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        """Return the mean of the outcome under the average prediction."""

    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        raise ValueError(
            f"The average of {self.name} predictions is not {self.name}, so that sums over members do not "
            f"give a measure that has 'bma' in it. {self.advice} Or take measure='pairwise'."
        )


def log_ratio(xp: Any, p: Array, q: Array, change: Array | None = None) -> Array:
    """Return ``log(p / q)`` of positive numbers, exact also where they nearly agree.

    ``change`` is ``p - q``, where that is known to more digits than ``p`` and ``q`` have.
    """
    relative = (p - q if change is None else change) / q
    near = xp.abs(relative) < 0.5
    return xp.where(near, xp.log1p(xp.where(near, relative, 0 * relative)), xp.log(p) - xp.log(q))


def excess(xp: Any, p: Array, q: Array, change: Array | None = None) -> Array:
    """Return ``r - 1 - log r >= 0`` for ``r = p / q``: KL of exponentials of these means."""
    change = p - q if change is None else change
    small, series = near_one(xp, change / q)
    return xp.where(small, series, change / q - log_ratio(xp, p, q, change))


def surplus(xp: Any, p: Array, q: Array, change: Array | None = None) -> Array:
    """Return ``r log r - (r - 1) >= 0`` for ``r = p / q``: KL of Poissons of these rates, over ``q``."""
    change = p - q if change is None else change
    relative = change / q
    small, series = near_one(xp, relative)
    direct = p / q * log_ratio(xp, p, q, change) - relative
    return xp.where(small, relative * relative - (1 + relative) * series, direct)


def near_one(xp: Any, x: Array) -> tuple[Array, Array]:
    """Tell where ``x`` is small, and return ``x - log(1 + x)`` there, by its series.

    Its eight terms leave 1e-14 of the value at 0.02, where the direct form is as exact.
    """
    small = xp.abs(x) < 0.02
    x = xp.where(small, x, 0 * x)
    total = 0 * x
    for power in range(9, 1, -1):
        total = 1 / power - x * total
    return small, x * x * total


def variance_over(xp: Any, values: Array, shares: Array) -> Array:
    """Return the variance over members, the first axis, exact also where they are far from 0."""
    away = values - values[:1]
    away = away - xp.sum(shares * away, axis=0)
    return xp.sum(shares * away * away, axis=0)
