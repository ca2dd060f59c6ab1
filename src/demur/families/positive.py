"""Counts, waiting times and other positive outcomes."""

from __future__ import annotations

import math
from typing import Any

from demur.core.gamma_function import digamma_difference, gamma_entropy, gamma_excess
from demur.core.logarithms import generalised_kl, itakura_saito, log_ratio
from demur.core.rules import Array, Terms
from demur.families.family import Family


class PoissonRule(Family):
    """The parameter is the rate; the statistic is the count, and ``b(y) = log y!`` is common to all."""

    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        return parameters, parameters

    def entropy(self, xp: Any, logits: Array) -> Array:
        """Sum the terms ``-p log p``, none negative, or their expansion where the rate is large."""
        rate = logits[..., 0]
        large = rate >= _LARGE_RATE
        few = xp.where(large, xp.ones_like(rate), rate)
        log_rate, terms = xp.log(few), xp.zeros_like(rate)
        for count in range(_MOST_COUNTS):
            log_p = count * log_rate - few - math.lgamma(count + 1)
            terms = terms - xp.exp(log_p) * log_p
        inverse = 1 / xp.where(large, rate, xp.full_like(rate, _LARGE_RATE))
        tail = xp.zeros_like(rate)
        for numerator, denominator in reversed(_EXPANSION):
            tail = (tail + numerator / denominator) * inverse
        return xp.where(large, (math.log(2 * math.pi * math.e) - xp.log(inverse)) / 2 - tail, terms)

    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        u = log_ratio(xp, p, q)
        return Terms(p - q, u, q * generalised_kl(xp, p, q))

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        return (reference + a)[..., 0]

    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        return p * xp.exp(log_ratio(xp, q, p) / 2)


# H = log(2 pi e rate) / 2 - sum of these over powers of the rate (Evans and Boersma, 1988); the next one is
# 1.9e4 / rate**11, or 5e-14 at the smallest rate it is used for, where H is 3.3.
_EXPANSION = (
    (1, 12), (1, 24), (19, 360), (9, 80), (863, 2520), (1375, 1008), (33953, 5040), (57281, 1440),
    (3250433, 11880), (1891755, 880),
)  # fmt: skip
_LARGE_RATE = 40.0
_MOST_COUNTS = 140  # what a rate of 40 puts on more counts is 1e-32


class ExponentialRule(Family):
    """The parameter is the rate; the statistic is the outcome."""

    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        mean = 1 / parameters
        return mean, mean * mean

    def entropy(self, xp: Any, logits: Array) -> Array:
        return 1 - xp.log(logits[..., 0])

    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        slower = q - p
        return Terms(slower / p / q, slower, itakura_saito(xp, q, p))

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        return (1 / reference + a)[..., 0]

    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        return p + (q - p) / 2


class GammaRule(Family):
    """Parameters are shape and rate; the statistics are the outcome's logarithm and the outcome.

    ``b(y) = log y`` is common to all members.
    """

    def outcome(self, xp: Any, parameters: Array) -> tuple[Array, Array]:
        shape, rate = parameters[..., :1], parameters[..., 1:]
        return shape / rate, shape / rate / rate

    def entropy(self, xp: Any, logits: Array) -> Array:
        shape, rate = logits[..., 0], logits[..., 1]
        return gamma_entropy(xp, shape) - xp.log(rate)

    def relative(self, xp: Any, p: Array, q: Array) -> Terms:
        (shape, rate), (shape_q, rate_q) = split_shape_and_rate(p), split_shape_and_rate(q)
        faster = log_ratio(xp, rate, rate_q)
        a_first = digamma_difference(xp, shape, shape_q) - faster
        # shape / rate - shape_q / rate_q, each difference taken where it arises.
        a_second = (shape - shape_q) / rate - shape_q * ((rate - rate_q) / rate / rate_q)
        # What the wrong shape costs at the right rate, and the wrong rate at the right shape.
        phi = gamma_excess(xp, shape_q, shape) + shape_q * itakura_saito(xp, rate_q, rate)
        phi = phi + (shape - shape_q) * ((rate_q - rate) / rate)
        a = xp.stack([a_first, a_second], axis=-1)
        u = xp.stack([shape - shape_q, rate_q - rate], axis=-1)
        return Terms(a, u, phi[..., None])

    def average(self, xp: Any, a: Array, reference: Array) -> Array:
        return reference[..., 0] / reference[..., 1] + a[..., 1]

    def halfway(self, xp: Any, p: Array, q: Array) -> Array:
        return p + (q - p) / 2


def split_shape_and_rate(parameters: Array) -> tuple[Array, Array]:
    """Return shape and rate."""
    return parameters[..., 0], parameters[..., 1]
