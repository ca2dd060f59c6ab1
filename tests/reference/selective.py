"""AUGRC and PRR by their papers' definitions: curves point by point, averaged over all orders of ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

import numpy as np


def list_orders(scores: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Yield all orders of the inputs that agree with the scores, the most certain first."""
    for order in permutations(range(len(scores))):
        if all(scores[i] <= scores[j] for i, j in pairwise(order)):
            yield order


def area_under_generalized_risk(scores: Sequence[float], correct: Sequence[bool]) -> float:
    """Average the area under the share of kept and wrong inputs over coverage (Traub et al., 2024)."""
    number, found = len(scores), []
    for order in list_orders(scores):
        coverage, risk = [0.0], [0.0]
        for kept in range(1, number + 1):
            coverage.append(kept / number)
            risk.append(sum(not correct[i] for i in order[:kept]) / number)
        found.append(np.trapezoid(risk, coverage))
    return float(np.mean(found))


def prediction_rejection_ratio(scores: Sequence[float], correct: Sequence[bool]) -> float:
    """Average AR_uns / AR_orc (Malinin et al., 2017), where rejected inputs go to an oracle."""
    number = len(scores)
    base = sum(not right for right in correct) / number
    rejected = np.arange(number + 1) / number
    by_chance = base * (1 - rejected)
    by_oracle = np.maximum(base - rejected, 0.0)
    ratios = []
    for order in list_orders(scores):
        left = [sum(not correct[i] for i in order[: number - count]) / number for count in range(number + 1)]
        gained = np.trapezoid(by_chance, rejected) - np.trapezoid(left, rejected)
        ratios.append(gained / (np.trapezoid(by_chance, rejected) - np.trapezoid(by_oracle, rejected)))
    return float(np.mean(ratios))
