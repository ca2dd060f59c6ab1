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

from demur.core.arrays import Array, is_traced
from demur.core.rules import Rule, Terms


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
        known = not is_traced(found.phi)
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


def variance_over(xp: Any, values: Array, shares: Array) -> Array:
    """Return the variance over members, the first axis, exact also where they are far from 0."""
    away = values - values[:1]
    away = away - xp.sum(shares * away, axis=0)
    return xp.sum(shares * away * away, axis=0)
