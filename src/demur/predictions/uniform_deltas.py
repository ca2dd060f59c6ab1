"""Posteriors over the probability of outcome 1 of two: uniform on an interval, and point masses."""

from __future__ import annotations

from typing import Any

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.categorical import Categorical
from demur.predictions.members import Members, gather
from demur.predictions.second_order import (
    Expectations,
    Parameters,
    SecondOrder,
    check_closed_form,
    check_parameters,
    require,
)

_NARROW = (
    0.3  # half width over mean, below which a series of this many terms is exact, and closed forms are not
)
_SERIES_TERMS = 16


class Uniform(SecondOrder):
    r"""A uniform distribution over the probability of outcome 1 of two.

    For a class whose probability has mean :math:`m` and ends at :math:`m (1 \pm t)`, its shares are

    .. math:: I_y = m \sum_{k \ge 1} \frac{t^{2k}}{2k (4k^2 - 1)}, \qquad
              K_y = m \sum_{k \ge 1} \frac{t^{2k}}{4k^2 - 1}

    with elementary sums, used where ``t`` is not small.

    Parameters
    ----------
    lo, hi
        ``0 <= lo < hi <= 1``. Numbers, or arrays that broadcast: the batch.

    Examples
    --------
    >>> u = demur.decompose(demur.Uniform(0, 1))
    >>> u.total, u.aleatoric, u.epistemic
    (array(1.), array(0.5), array(0.5))
    """

    __slots__ = ("_given", "hi", "lo")

    _given: Parameters

    def __init__(self, lo: Any, hi: Any) -> None:
        self._given = check_parameters(lo=lo, hi=hi)
        self.lo, self.hi = self._given.values
        require(self.lo >= 0, self.lo, "lo must not be below 0", "It is a probability.")
        require(self.hi <= 1, self.hi, "hi must not be above 1", "It is a probability.")
        advice = "hi is not above it. For a single point use demur.Deltas."
        require(self.lo < self.hi, self.lo, "lo must be below hi", advice)

    def __repr__(self) -> str:
        return f"Uniform({arrays.describe(self.lo)}, {arrays.describe(self.hi)})"

    @property
    def _source(self) -> Array:
        return self._given.source

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.lo.shape, 2)

    @property
    def _stays(self) -> bool:
        return self._given.stays

    @property
    def mean(self) -> Array:
        """The average probability of outcome 1, shape (...)."""
        _, lo, hi = self._given.widen()
        return self._to_result((lo + hi) / 2)

    @property
    def differential_entropy(self) -> Array:
        """Entropy of the density in nats, ``log(hi - lo)``, shape (...): not above 0."""
        xp, lo, hi = self._given.widen()
        return self._to_result(xp.log(hi - lo))

    def _expectations(self, rule: str, stays: bool) -> Expectations:
        check_closed_form(rule, "Uniform")
        xp, lo, hi = self._given.widen(stays)
        low, high = xp.stack([1 - hi, lo], axis=-1), xp.stack([1 - lo, hi], axis=-1)
        width = (hi - lo)[..., None]
        mean = (low + high) / 2
        # Beside a nearly certain class, what is left of it is known better than the class itself.
        other = xp.stack([mean[..., 1], mean[..., 0]], axis=-1)
        log_mean = xp.where(mean < 0.5, xp.log(mean), xp.log1p(-xp.minimum(other, xp.full_like(other, 0.5))))
        if rule == "brier":
            variance = width * width / 12 + xp.zeros_like(mean)
            entropy = 2 * (mean[..., 0] * mean[..., 1] - variance[..., 0])
            return Expectations(log_mean, xp.zeros_like(mean), 2 * variance, variance, entropy)
        gap, covariance, information = _interval_terms(xp, width / (low + high), low / mean, high / mean)
        entropy = -xp.sum(mean * (log_mean + information), axis=-1)
        return Expectations(log_mean, -gap, mean * covariance, mean * information, entropy)


def _interval_terms(xp: Any, t: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Return ``-E log x``, ``E[(x - 1) log x]`` and ``E[x log x]``, x uniform on ``low, high = 1 -+ t``."""
    narrow = t < _NARROW
    square = xp.where(narrow, t * t, xp.zeros_like(t))
    gap = covariance = information = xp.zeros_like(t)
    for k in range(_SERIES_TERMS, 0, -1):  # Horner's rule, the smallest terms first
        gap = square * (gap + 1 / (2 * k * (2 * k + 1)))
        covariance = square * (covariance + 1 / (4 * k * k - 1))
        information = square * (information + 1 / (2 * k * (4 * k * k - 1)))
    wide = xp.where(narrow, xp.ones_like(t), t)
    log_low = xp.log(xp.where(narrow | (low <= 0), xp.ones_like(low), low))  # 0 log 0 = 0
    log_high = xp.log(xp.where(narrow, xp.ones_like(high), high))
    first = (high * log_high - low * log_low) / (2 * wide)
    second = (high * high * log_high - low * low * log_low) / (4 * wide)
    return (
        xp.where(narrow, gap, 1 - first),
        xp.where(narrow, covariance, second - first + 0.5),
        xp.where(narrow, information, second - 0.5),
    )


class Deltas(SecondOrder):
    """Point masses for the probability of outcome 1 of two: a set of members, in other words.

    Parameters
    ----------
    points
        Between 0 and 1, shape (points, ...): the axis of points comes first, then the batch, if any.
    weights
        Shape (points,), or (points, ...) where each input has its own; None: all the same.

    Examples
    --------
    >>> coin = demur.Deltas([0.0, 1.0])          # it has two equal sides, but which?
    >>> demur.decompose(coin).epistemic
    array(inf)
    >>> demur.decompose(coin, measure="average").epistemic
    array(0.69314718)
    """

    __slots__ = ("_given", "points", "weights")

    _given: Parameters

    def __init__(self, points: Any, weights: Any = None) -> None:
        self._given = check_parameters(points=points)
        self.points = self._given.source
        if not self.points.shape:
            raise ValueError("points must have an axis of points. Got a number. Give a list: [0.3].")
        inside = (self.points >= 0) & (self.points <= 1)
        require(inside, self.points, "points must be between 0 and 1", "They are probabilities.")
        self.weights = None if weights is None else arrays.as_array(weights)
        self._as_members()

    def __repr__(self) -> str:
        return f"Deltas({arrays.describe(self.points)})"

    @property
    def _source(self) -> Array:
        return self.points

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.points.shape[1:], 2)

    @property
    def _stays(self) -> bool:
        return self._given.stays

    @property
    def mean(self) -> Array:
        """The average probability of outcome 1, shape (...)."""
        xp, points = self._given.widen()
        weights = self._as_members().weights
        if weights is None:
            return self._to_result(xp.mean(points, axis=0))
        weights = weights.reshape(points.shape)
        return self._to_result(xp.sum(weights * points, axis=0) / xp.sum(weights, axis=0))

    @property
    def differential_entropy(self) -> Array:
        """Entropy of the density, which is minus infinity for points, shape (...)."""
        xp, points = self._given.widen()
        return self._to_result(xp.full_like(points[0], -float("inf")))

    def _as_members(self, stays: bool | None = None) -> Members:
        """Return the points as members that predict two classes."""
        xp, points = self._given.widen(stays)
        zero, one = points <= 0, points >= 1
        log_one = xp.where(zero, -float("inf"), xp.log(xp.where(zero, xp.ones_like(points), points)))
        log_zero = xp.where(one, -float("inf"), xp.log1p(-xp.where(one, xp.zeros_like(points), points)))
        both = xp.stack([log_zero, log_one], axis=-1)
        return gather(Categorical(log_probs=both), self.weights, 0)
