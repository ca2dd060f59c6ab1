"""The proper losses, and how far one prediction is from another under each.

A rule charges ``loss(p)[y]`` to a prediction ``p`` when class ``y`` happens. Its divergence is what ``q`` is
charged beyond ``p`` when ``p`` draws the outcome, ``D(p, q) = <p, loss(q)> - <p, loss(p)>``: the
Kullback-Leibler divergence for the log loss. Sums over members are kept relative to a reference prediction
``q`` (see ``demur.core.state``), so a rule gives, for a prediction ``p``,

    a = p - q,    u = loss(q) - loss(p) up to a constant common to the classes,    phi = D(p, q) >= 0,

each exactly 0 where ``p`` is ``q``. Arrays are of any library; ``xp`` is its namespace.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from demur.core.arrays import Array
from demur.core.logarithms import epsilon, generalised_kl_term
from demur.core.probabilities import (
    lost_in_difference,
    odds_beside_top,
    one_hot,
    own_variance,
    softmax,
    sum_classes,
    vote,
)

RuleName = Literal["log", "brier", "spherical", "zero_one"]
"""Names of the rules that demur has, for type checkers and editors; ``register_rule`` adds others."""


class Terms(NamedTuple):
    """How predictions differ from a reference; classes are last, or 1 where ``phi`` is a sum over them."""

    a: Array
    u: Array
    phi: Array
    excluded: Array | None = None


@dataclass(frozen=True)
class Rule(ABC):
    """A proper loss; subclasses say what it charges. Predictions come as logits; see `reference`.

    Parameters
    ----------
    name
        What users, errors and files call it.
    separable
        Whether ``phi`` is a sum of one term per class, so that ``attribute`` has a meaning.
    compiled
        Whether the compiled loops compute this very rule; False for every rule but the log rule.
    excludes
        Whether a class of probability 0 can cost infinitely much, so that a reference must allow every
        class that some member allows.
    """

    name: str
    separable: bool
    compiled: bool = field(default=False, kw_only=True)
    excludes: bool = field(default=False, kw_only=True)

    nats: ClassVar[bool] = False  # a logarithm, which has a base
    mixes: ClassVar[bool] = True  # the average of predictions follows from the means of the terms
    integrates: ClassVar[bool] = False  # it takes all members at once instead
    caps: ClassVar[bool] = False  # I is an upper bound, of which the entropy of the weights is another
    votes: ClassVar[bool] = False  # divergences are differences of numbers near 1, whose rounding they keep

    @abstractmethod
    def entropy(self, xp: Any, logits: Array) -> Array:
        """Return ``<p, loss(p)>``, exact relative to itself also where ``p`` is nearly certain."""

    @abstractmethod
    def reference(self, xp: Any, logits: Array) -> Array:
        """Return the reference that stands for the prediction with these logits."""

    def probabilities(self, xp: Any, reference: Array) -> Array:
        """Return the reference's probabilities."""
        return reference

    @abstractmethod
    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        """Return the terms of predictions relative to the reference that stands for the chosen logits.

        ``lost`` is what the differences of these two lack, of logits that were rounded.
        """

    @abstractmethod
    def terms_between(self, xp: Any, source: Array, reference: Array) -> Terms:
        """Return the terms of one reference relative to another."""

    @abstractmethod
    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        """Return the terms of the average prediction, ``q + a``; ``mean`` is the same by itself, if known."""

    def likelihood(self, xp: Any, terms: Terms, reference: Array) -> Array | None:
        """Return probabilities, not as ``q + a``, where a measure needs the logarithm of their average."""
        return None

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        """Return the average prediction, from the mean of ``a``."""
        return self.probabilities(xp, reference) + a

    def change_coordinates(
        self, xp: Any, a: Array, u: Array, source: Array, reference: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        """Return ``a`` and ``u`` relative to one reference in the coordinates of another."""
        return a, u

    def as_given(self, average: Array) -> Array:
        """Return an average prediction in the form that the user gives predictions in."""
        return average

    def by_outcome(self, xp: Any, terms: Array) -> Array:
        """Return terms of the classes, (inputs, ...), as terms of what is predicted."""
        return terms

    def summarise(self, p: Array, shares: Array) -> tuple[Array, Array, Array, Array] | None:
        """Return mean entropy, K, I and M, (inputs,) each, straight from probabilities; None: no short way.

        ``p`` is NumPy's, (members, inputs, classes); ``shares`` (members, inputs) sums to 1 over members.
        """
        return None

    def shape_as_given(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an array of logits as the user knows it."""
        return shape


class LogRule(Rule):
    """``loss(p)[y] = -log p[y]``, in nats. A reference is kept as logits aligned at its top class, 0 there.

    Not as ``q``, which would underflow, nor as ``log q``: identical members have identical aligned logits,
    so that every difference from them is exactly 0.
    """

    nats: ClassVar[bool] = True

    def log(self, xp: Any, reference: Array) -> Array:
        """Return ``log q``."""
        others = odds_beside_top(xp, reference)
        return reference - xp.log1p(xp.sum(others, axis=-1, keepdims=True))

    def entropy(self, xp: Any, logits: Array) -> Array:
        others = odds_beside_top(xp, logits)
        below = logits - xp.max(logits, axis=-1, keepdims=True)
        # No lower than the logarithm of the smallest number, so that 0 log 0 comes out as 0.
        floor = -700.0 if epsilon(xp, logits) < 1e-10 else -80.0
        below = xp.where(below > floor, below, xp.full_like(below, floor))
        rest = xp.sum(others, axis=-1)
        return xp.log1p(rest) - xp.sum(others * below, axis=-1) / (1 + rest)

    def reference(self, xp: Any, logits: Array) -> Array:
        floor, _ = _reach(xp, logits)
        below = logits - xp.max(logits, axis=-1, keepdims=True)
        return xp.where(below > floor, below, xp.full_like(below, floor))

    def probabilities(self, xp: Any, reference: Array) -> Array:
        return xp.exp(self.log(xp, reference))

    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        q, ratio, d, shift = self.growth(xp, logits, chosen, lost)
        excluded = logits == -float("inf")
        u = xp.where(excluded, xp.zeros_like(d), d - xp.log1p(shift))
        return Terms(q * ratio, u, q * generalised_kl_term(xp, ratio, u), excluded)

    def growth(
        self, xp: Any, logits: Array, chosen: Array, lost: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Return ``q``, ``(p - q) / q``, ``d`` and ``sum q expm1(d)``: differences before exponentials.

        ``d`` is how far logits are from the chosen ones, but for what moves all classes alike.
        """
        floor, far = _reach(xp, logits)
        reference = self.reference(xp, chosen)
        q = self.probabilities(xp, reference)
        top = one_hot(xp, xp.argmax(reference, axis=-1), reference.shape[-1])
        own_top = xp.max(logits, axis=-1, keepdims=True)
        at_top = xp.max(xp.where(top, logits, -float("inf")), axis=-1, keepdims=True)
        offset = xp.where(own_top - at_top < far, at_top, own_top)
        excluded = logits == -float("inf")
        finite = xp.where(excluded, offset, logits)
        d = (finite - offset) - reference
        if epsilon(xp, logits) > 1e-10:  # float32, which has few digits of members that agree left by now
            chosen_top = xp.max(chosen, axis=-1, keepdims=True)
            kept = xp.where(reference > floor, chosen, chosen_top)
            d = d + (lost_in_difference(xp, finite, offset) - lost_in_difference(xp, kept, chosen_top))
        d = d if lost is None else d + lost
        exponent = xp.where(excluded | (d < floor), xp.full_like(d, floor), d)
        growth = xp.expm1(exponent)
        shift = xp.sum(q * growth, axis=-1, keepdims=True)
        return q, (growth - shift) / (1 + shift), d, shift

    def terms_between(self, xp: Any, source: Array, reference: Array) -> Terms:
        log_q = self.log(xp, reference)
        q, u = xp.exp(log_q), self.log(xp, source) - log_q
        ratio = xp.expm1(u)
        return Terms(q * ratio, u, q * generalised_kl_term(xp, ratio, u))

    def likelihood(self, xp: Any, terms: Terms, reference: Array) -> Array | None:
        p = xp.exp(self.log(xp, reference) + terms.u)
        return p if terms.excluded is None else xp.where(terms.excluded, xp.zeros_like(p), p)

    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        log_q = self.log(xp, reference)
        # Not a / q, whose derivative has a square of q, which is 0 long before q is.
        q, ratio = xp.exp(log_q), a * xp.exp(-log_q)
        gone = ratio <= -1  # no member allows the class: 0 log 0 = 0
        u = xp.log1p(xp.where(gone, xp.zeros_like(ratio), ratio))
        phi = q * xp.where(gone, -ratio, generalised_kl_term(xp, ratio, u))
        if mean is not None:
            # Where a member that thought the class likely has been left out, a has none of its digits.
            least = float(xp.finfo(mean.dtype).tiny)
            direct = xp.log(xp.where(mean > least, mean, least)) - log_q
            alike = xp.abs(u - direct) < 64 * epsilon(xp, u) * (1 - log_q)
            u = xp.where(alike, u, direct)
        return Terms(a, u, phi)


LOG = LogRule("log", separable=True, compiled=True, excludes=True)


class BoundedRule(Rule):
    """A rule that charges no more than a constant; differences of predictions are taken as the log rule does.

    So they have all their digits where members agree, or are nearly certain.
    """

    @abstractmethod
    def apart(self, xp: Any, a: Array, p: Array, q: Array) -> Terms:
        """Return the terms of ``p`` relative to ``q``, of which ``a`` is the exact difference."""

    def reference(self, xp: Any, logits: Array) -> Array:
        return LOG.reference(xp, logits)

    def probabilities(self, xp: Any, reference: Array) -> Array:
        p = softmax(xp, reference)
        return xp.where(
            reference > _reach(xp, reference)[0], p, xp.zeros_like(p)
        )  # else the class is excluded

    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        q, ratio, *_ = LOG.growth(xp, logits, chosen, lost)
        return self.relative(xp, q * ratio, softmax(xp, logits), self.reference(xp, chosen))

    def terms_between(self, xp: Any, source: Array, reference: Array) -> Terms:
        a = LOG.terms_between(xp, source, reference).a
        return self.relative(xp, a, self.probabilities(xp, source), reference)

    def relative(self, xp: Any, a: Array, p: Array, reference: Array) -> Terms:
        """Return the terms of ``p``; the log rule's ``a`` is the more exact one next to ``q``."""
        q = self.probabilities(xp, reference)
        near = xp.abs(p - q) < 0.5 * q
        return self.apart(xp, xp.where(near, a, p - q), p, q)

    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        q = self.probabilities(xp, reference)
        return self.apart(xp, a, q + a, q)


class BrierRule(BoundedRule):
    """``loss(p)[y] = sum_k (p[k] - 1[k = y])**2``."""

    def entropy(self, xp: Any, logits: Array) -> Array:
        return _gini(xp, logits)

    def apart(self, xp: Any, a: Array, p: Array, q: Array) -> Terms:
        return Terms(a, 2 * a, a * a)

    def summarise(self, p: Array, shares: Array) -> tuple[Array, Array, Array, Array] | None:
        # From the heaviest member: exactly 0 for those that are identical, and little is left to cancel.
        apart = p - p[shares.argmax(axis=0), np.arange(p.shape[1])]
        mean = np.einsum("mbc,mb->bc", apart, shares)
        squares = np.einsum("mb,mb->b", sum_classes(apart * apart), shares)
        variance = squares - np.vecdot(mean, mean)
        variance[variance < 4 * np.finfo(p.dtype).eps * squares] = 0.0  # what rounding leaves of nothing
        own = 1 - sum_classes(np.multiply(p, p, out=apart))
        # Squares may sum to 1 and a rounding.
        entropy = np.einsum("mb,mb->b", np.maximum(own, 0), shares)
        return entropy, 2 * variance, variance, variance


class _SphericalRule(BoundedRule):
    """``loss(p)[y] = 1 - p[y] / |p|``."""

    def entropy(self, xp: Any, logits: Array) -> Array:
        g = _gini(xp, logits)  # 1 - |p|**2
        return g / (1 + xp.sqrt(1 - g))

    def apart(self, xp: Any, a: Array, p: Array, q: Array) -> Terms:
        length, of_q = _norm(xp, p), _norm(xp, q)
        longer = xp.sum(a * (p + q), axis=-1, keepdims=True) / (length + of_q)
        direction = q / of_q
        # |p| - <p, q / |q|>, from the part of p that stands off q: no difference of nearly equal numbers.
        off = a - xp.sum(a * direction, axis=-1, keepdims=True) * direction
        along = xp.sum(p * direction, axis=-1, keepdims=True)
        phi = xp.sum(off * off, axis=-1, keepdims=True) / (length + along)
        return Terms(a, (a - direction * longer) / length, phi)


class ZeroOneRule(BoundedRule):
    """``loss(p)[y] = 1 - 1[y is a most probable class] / (how many are)``."""

    votes: ClassVar[bool] = True

    def entropy(self, xp: Any, logits: Array) -> Array:
        rest = xp.sum(odds_beside_top(xp, logits), axis=-1)
        return rest / (1 + rest)

    def apart(self, xp: Any, a: Array, p: Array, q: Array) -> Terms:
        u = vote(xp, p) - vote(xp, q)
        return Terms(a, u, xp.sum(p * u, axis=-1, keepdims=True))

    def summarise(self, p: Array, shares: Array) -> tuple[Array, Array, Array, Array] | None:
        top, weights = np.max(p, axis=-1), shares[..., None]
        votes = (p >= top[..., None] * (1 - 8 * np.finfo(p.dtype).eps)).astype(p.dtype)  # as `vote` has ties
        votes /= sum_classes(votes)[..., None]
        # Means by the same additions in the same order: none of the differences below is negative.
        mean, mean_vote = _add_in_order(p * weights), _add_in_order(votes * weights)
        mean_top = _add_in_order(top * shares)
        top_of_mean = np.max(mean, axis=-1)
        k, m = (np.vecdot(high[:, None] - mean, mean_vote) for high in (mean_top, top_of_mean))
        return np.add.reduce((1 - top) * shares, axis=0), k, mean_top - top_of_mean, m


def _add_in_order(numbers: np.ndarray) -> np.ndarray:
    """Return sums over the first axis, one after the other; NumPy adds up a single column in pairs."""
    return np.add.reduce(numbers, axis=0) if numbers[0].size > 1 else np.add.accumulate(numbers, axis=0)[-1]


def _gini(xp: Any, logits: Array) -> Array:
    """Return ``1 - |p|**2``, the sum of ``p (1 - p)``."""
    return xp.sum(own_variance(xp, logits), axis=-1)


def _norm(xp: Any, p: Array) -> Array:
    """Return the Euclidean length over classes."""
    return xp.sqrt(xp.sum(p * p, axis=-1, keepdims=True))


def _reach(xp: Any, array: Array) -> tuple[float, float]:
    """Return the lowest log-probability of a reference below its top class, and what counts as far.

    The exponential of their difference is a finite number of the array's type.
    """
    return (-690.0, 13.0) if epsilon(xp, array) < 1e-10 else (-75.0, 13.0)


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        LOG,
        BrierRule("brier", separable=True),
        _SphericalRule("spherical", separable=False),
        ZeroOneRule("zero_one", separable=False),
    )
}


def resolve_rule(rule: str | Rule) -> Rule:
    """Return the rule of that name."""
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str) and rule in RULES:
        return RULES[rule]
    raise ValueError(describe_unknown("rule", rule, list(RULES)))


def describe_unknown(what: str, name: object, names: list[str]) -> str:
    """Say that a name is unknown, which one is nearest if it is near, and which there are."""
    lower = {each.lower(): each for each in reversed(names)}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.6)
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    return f"{what} must be one of {', '.join(map(repr, names))}. Got {name!r}.{hint}"
