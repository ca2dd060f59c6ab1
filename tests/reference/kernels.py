"""Kernel scores by loops over members and draws, straight from the definition.

A member is a list of its draws; with one draw it is a point, which is known exactly. Only pairs of different
draws count, also those of two members, unless their numbers of draws differ.
"""

import itertools
import math
from collections.abc import Callable

Member = list[float]
Kernel = Callable[[float, float], float]
Side = tuple[list[Member], list[float]]  # members and weights


def energy(x: float, y: float) -> float:
    return -abs(x - y)


def mean_kernel(p: Member, q: Member, kernel: Kernel) -> float:
    """E k(x, y) for x of one member and y of another, or of the same."""
    pairs = itertools.product(range(len(p)), range(len(q)))
    if len(p) == len(q) > 1:
        pairs = [(a, b) for a, b in pairs if a != b]
    values = [kernel(p[a], q[b]) for a, b in pairs]
    return math.fsum(values) / len(values)


def over_pairs(left: Side, right: Side, kernel: Kernel) -> float:
    """The mean kernel over members of both sides: that of their averages."""
    terms = [
        w * v * mean_kernel(p, q, kernel)
        for p, w in zip(*left, strict=True)
        for q, v in zip(*right, strict=True)
    ]
    return math.fsum(terms) / math.fsum(left[1]) / math.fsum(right[1])


def decompose_one(
    members: list[Member],
    weights: list[float] | None = None,
    *,
    measure: tuple[str | list[Member], str | list[Member]] = ("each", "each"),
    kernel: Kernel = energy,
) -> dict[str, float]:
    """Total, aleatoric and epistemic part of one input, as the expected score and what is left of it.

    The score of q for the outcome y is k(y, y) / 2 - E k(x, y) + E k(x, x') / 2; its mean over y of p is
    charged here for every p of the predictor and q of the truth.
    """
    weights = [1.0] * len(members) if weights is None else weights
    whole: Side = (members, weights)

    def mixtures(choice: str | list[Member]) -> list[tuple[float, Side]]:
        """Each distribution of a side, with its share."""
        if choice == "bma":
            return [(1.0, whole)]
        if choice == "each":
            total = math.fsum(weights)
            return [(w / total, ([p], [1.0])) for p, w in zip(members, weights, strict=True)]
        return [(1 / len(choice), ([p], [1.0])) for p in choice]  # type: ignore[list-item]

    def mean_itself(side: Side) -> float:
        own = [math.fsum(kernel(y, y) for y in p) / len(p) for p in side[0]]
        return math.fsum(w * k for k, w in zip(own, side[1], strict=True)) / math.fsum(side[1])

    def expected_score(p: Side, q: Side) -> float:
        return mean_itself(p) / 2 - over_pairs(p, q, kernel) + over_pairs(q, q, kernel) / 2

    predictor, truth = mixtures(measure[0]), mixtures(measure[1])
    total = math.fsum(a * b * expected_score(p, q) for a, p in predictor for b, q in truth)
    aleatoric = math.fsum(a * expected_score(p, p) for a, p in predictor)
    return {"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}
