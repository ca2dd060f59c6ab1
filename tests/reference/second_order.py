"""Distributions over predictions in mpmath: by their closed forms with sixty digits, and by integration.

The integrals know nothing of digamma functions or series: only the density and the definition.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt

DIGITS = 60


class Figures(NamedTuple):
    """Expected entropy, K, I and M in nats, of one input."""

    entropy: float
    pairwise: float
    average: float
    reverse: float


def dirichlet_entropy(alpha: npt.ArrayLike) -> float:
    """Differential entropy of a Dirichlet density: log B(alpha) + (a0 - C) psi(a0) - sum (a - 1) psi(a)."""
    with mpmath.workdps(DIGITS):
        values = [mpmath.mpf(float(a)) for a in np.asarray(alpha)]
        whole = mpmath.fsum(values)
        log_beta = mpmath.fsum(mpmath.loggamma(a) for a in values) - mpmath.loggamma(whole)
        rest = mpmath.fsum((a - 1) * mpmath.digamma(a) for a in values)
        return float(log_beta + (whole - len(values)) * mpmath.digamma(whole) - rest)


class Part(NamedTuple):
    """A share of a posterior over the probability x of outcome 1: a density on an interval, or points.

    Densities and values are functions of x and 1 - x, each exact where it is small.
    """

    share: float
    density: Callable[[Any, Any], Any] | None
    places: Sequence[float]


def beta(a: float, b: float, share: float = 1.0) -> Part:
    """A Beta density."""

    whole = functools.cache(lambda digits: mpmath.beta(a, b))

    def density(x: Any, rest: Any) -> Any:
        return x ** (mpmath.mpf(a) - 1) * rest ** (mpmath.mpf(b) - 1) / whole(mpmath.mp.dps)

    return Part(share, density, (0.0, 1.0))


def uniform(lo: float, hi: float, share: float = 1.0) -> Part:
    """A uniform density."""
    return Part(share, lambda x, rest: 1 / (mpmath.mpf(hi) - mpmath.mpf(lo)), (lo, hi))


def points(places: Sequence[float], share: float = 1.0) -> Part:
    """Equal point masses."""
    return Part(share, None, places)


def expectation(parts: Sequence[Part], value: Callable[[Any, Any], Any]) -> Any:
    """E value(x, 1 - x) under a mixture of densities and points, by tanh-sinh quadrature."""
    return mpmath.fsum(part.share * expectation_of(part, value) for part in parts)


def expectation_of(part: Part, value: Callable[[Any, Any], Any]) -> Any:
    """The same for one part; each half of the unit interval is integrated from its own end."""
    density, places = part.density, [mpmath.mpf(x) for x in part.places]
    if density is None:
        return mpmath.fsum(value(x, 1 - x) for x in places) / len(places)
    lo, hi = places
    half = mpmath.mpf(1) / 2

    def lower(x: Any) -> Any:
        return density(x, 1 - x) * value(x, 1 - x)

    def upper(rest: Any) -> Any:
        return density(1 - rest, rest) * value(1 - rest, rest)

    sums = mpmath.mpf(0)
    if lo < half:
        sums += mpmath.quad(lower, crowded(lo, min(hi, half)))
    if hi > half:
        sums += mpmath.quad(upper, crowded(1 - hi, min(1 - lo, half)))
    return sums


def crowded(lo: Any, hi: Any) -> list[Any]:
    """An interval with breaks that crowd towards 0, where there may be a pole."""
    return [lo, *(x for x in (mpmath.mpf(10) ** -k for k in (15, 4)) if lo < x < hi), hi]


def integrated(*parts: Part) -> Figures:
    """The figures of a posterior over the probability of outcome 1, from their definitions."""
    with mpmath.workdps(30):
        entropy = pairwise = average = mpmath.mpf(0)
        for side in (0, 1):

            def negentropy(*both: Any, side: int = side) -> Any:
                return both[side] * mpmath.log(both[side]) if both[side] > 0 else mpmath.mpf(0)

            mean = expectation(parts, lambda *both, side=side: both[side])
            inner = expectation(parts, negentropy)
            log = expectation(parts, lambda *both, side=side: mpmath.log(both[side]))
            entropy -= inner
            average += inner - mean * mpmath.log(mean)
            pairwise += inner - mean * log
        return Figures(*(float(v) for v in (entropy, pairwise, average, pairwise - average)))


def brier(*parts: Part) -> Figures:
    """The same under the Brier rule: entropy E[2 x (1 - x)], K = 4 Var(x), I = M = 2 Var(x)."""
    with mpmath.workdps(30):
        mean = expectation(parts, lambda x, _: x)
        variance = expectation(parts, lambda x, _: (x - mean) ** 2)
        entropy = expectation(parts, lambda x, rest: 2 * x * rest)
        return Figures(float(entropy), float(4 * variance), float(2 * variance), float(2 * variance))
