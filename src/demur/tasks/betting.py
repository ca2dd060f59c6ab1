"""Bets against a claim about a mean: capital that can grow only if the claim is wrong.

Capital starts at 1. While the claim holds, its expectation never grows, so by Ville's inequality it reaches
1 / delta with probability at most delta, at any time and however often somebody looks (Waudby-Smith and
Ramdas, 2024, "Estimating means of bounded random variables by betting"). Proofs: docs/watch-mathematics.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

LARGEST_CAPITAL = 1e300
"""Capital beyond this is given away, which keeps every promise and the numbers finite."""
_STAKES = np.geomspace(5e-4, 0.9, 24)
"""Shares of the largest stake that never loses all, one for each bettor: from small harm to total failure."""
_STAKES_ON_ACCURACY = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])
"""The same for bets that predictions are right: the best stake is one minus the risk over its limit."""
_LAST_START = 1 << 24
"""Bettors start again at each of the first so many observations, with capital 1 / (k * _SUM_OF_STARTS)."""
_SUM_OF_STARTS = math.log(_LAST_START) + 0.5772156649015329
"""An upper bound of the harmonic sum to _LAST_START - 1, so that all starts together cost at most 1."""


def list_stakes() -> np.ndarray:
    """Return the stakes, (bettors,), as shares of the largest one."""
    return _STAKES.copy()


def start_capital(number: int) -> float:
    """Return the capital that starts to bet at the `number`-th observation, counted from 1.

    Examples
    --------
    >>> round(start_capital(1) / start_capital(1000))
    1000
    """
    return 1 / (number * _SUM_OF_STARTS) if number < _LAST_START else 0.0


@dataclass
class Bettors:
    """Several bettors that start again at every observation: a bet on a change at a time that nobody knows.

    Before observation k, each of J bettors gets ``start_capital(k) / J`` of fresh capital, from the cash that
    was set aside at the beginning; then all its capital S_j is multiplied by its factor:

        S_j <- (S_j + start_capital(k) / J) * factor_j,        capital = cash + sum_j S_j

    Parameters
    ----------
    capital : (bettors,) array
        What each of them has.
    cash : float
        What is not yet at stake.
    count : int
        Observations so far.
    """

    capital: np.ndarray
    cash: float = 1.0
    count: int = 0

    def bet(self, factors: np.ndarray) -> float:
        """Take one observation by the factor of each bettor, and return the capital of all."""
        self.count += 1
        fresh = min(start_capital(self.count), self.cash)
        self.cash -= fresh
        self.capital = np.minimum((self.capital + fresh / len(self.capital)) * factors, LARGEST_CAPITAL)
        return self.total

    @property
    def total(self) -> float:
        """Capital of all."""
        return min(self.cash + float(self.capital.sum()), LARGEST_CAPITAL)

    def copy(self) -> Bettors:
        """Return bettors of the same capital that go on by themselves."""
        return Bettors(self.capital.copy(), self.cash, self.count)


def error_factors(limit: float, least_probability: float, probability: float) -> np.ndarray:
    """Return by what the capitals are multiplied, (2, bettors): the prediction was right, it was wrong.

    Against the claim that kept inputs are wrong with probability at most `limit`, from an input that was
    audited with a known `probability`, at least `least_probability`. With E = 1 where it was wrong,

        factor = 1 + stake * least_probability / limit * (E - limit) / probability

    whose mean over audited or not (factor 1) and over E is 1 + constant * (P(E = 1) - limit).

    Examples
    --------
    >>> error_factors(0.05, 0.1, 0.1)[:, -1].round(2)       # the bettor of the largest stake, 0.9
    array([ 0.1, 18.1])
    """
    share = _STAKES * (least_probability / probability)
    return np.stack([1 - share, 1 + share * ((1 - limit) / limit)])


def locate_start(factors: np.ndarray) -> int:
    """Return at which observation the bettors that won the most started, counted from 0.

    Parameters
    ----------
    factors : (observations, bettors) array
        What `Bettors.bet` was given, in order.
    """
    growth = np.cumsum(np.log(factors), axis=0)
    before = np.vstack([np.zeros(growth.shape[1]), growth[:-1]])
    number = np.arange(1, len(factors) + 1)
    start = np.log(np.where(number < _LAST_START, 1 / number, np.finfo(float).tiny))
    return int(np.argmax(np.logaddexp.reduce(growth[-1] - before, axis=1) + start))


def accuracy_factors(limit: float, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return by what capitals are multiplied, (inputs, bettors) each: the prediction was right, was wrong.

    Against the claim that inputs are wrong with probability `limit` at least: bettors win as predictions are
    right. With the stake s of a bettor, E = 1 where the prediction is wrong, and the weight of an input as a
    `share` of the largest weight there is (for audits: least probability / probability),

        factor = 1 + s * share * (limit - E) / (1 - limit)

    Parameters
    ----------
    limit : float
        The probability of an error that is claimed, at least.
    share : (inputs,) array
        Weights over the largest one, from 0 to 1.
    """
    stake = share[:, None] * _STAKES_ON_ACCURACY
    return 1 + stake * (limit / (1 - limit)), 1 - stake


def average_capital(log_factors: np.ndarray) -> np.ndarray:
    """Return the logarithm of the mean capital of bettors that all start at once, after each observation."""
    return np.logaddexp.reduce(np.cumsum(log_factors, axis=0), axis=1) - np.log(log_factors.shape[1])
