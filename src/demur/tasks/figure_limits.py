"""Certain limits of figures of scores that are known by the bin only, not within one.

Whatever the scores within a bin, the best that they can be for a ranking is all positives above all
negatives, and the worst is the reverse: every figure lies between those of the two. Counts are per bin, from
the highest on. Errors are positives, as they are for ``misclassification``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from demur.tasks.kept_areas import area_of, excess_of, generalized_risk_of, sum_reciprocals
from demur.tasks.levels import area, average_precision, false_positive_rate

Counts = tuple[np.ndarray, np.ndarray]
"""Positives and negatives per bin or level, from the highest score on."""


@dataclass(frozen=True)
class Limits:
    """A figure of scores that were counted in bins.

    Parameters
    ----------
    lower, upper : float
        Between them it lies for certain. They are equal after a second pass.
    low, high : float or None
        With clusters, the ends of the interval over draws of clusters, around both limits.
    confidence : float
        How often such an interval holds the true value.

    Examples
    --------
    >>> limits = Limits(0.75, 0.7502, 0.7, 0.8)
    >>> limits, limits.value
    (0.7500 to 0.7502 [0.7000, 0.8000], 0.7501)
    """

    lower: float
    upper: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95

    @property
    def value(self) -> float:
        """The middle of the limits; the figure itself where they are equal."""
        return (self.lower + self.upper) / 2

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        ends = [f"{self.lower:.4f}", f"{self.upper:.4f}"]
        shown = ends[0] if ends[0] == ends[1] else " to ".join(ends)
        return shown if self.low is None else f"{shown} [{self.low:.4f}, {self.high:.4f}]"

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, float]:
        """Return the value and its limits, and the ends of the interval where there is one."""
        found = {"value": self.value, "lower": self.lower, "upper": self.upper}
        if self.low is None or self.high is None:
            return found
        return found | {"low": self.low, "high": self.high}


def _by_right(figure: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., float]:
    """Return a figure of right and wrong inputs, the most certain first, as one of positives (wrong ones)."""
    return lambda positive, negative: float(figure(negative[::-1], positive[::-1]))


FIGURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "auroc": area,
    "aupr": lambda positive, negative: float(average_precision(positive, negative)),
    "fpr95": lambda positive, negative: float(false_positive_rate(positive, negative)),
    "auc": _by_right(area_of),
    "excess": _by_right(excess_of),
    "augrc": _by_right(generalized_risk_of),
}
"""Figures of positives and negatives per level, from the highest score on."""


def place_apart(positive: np.ndarray, negative: np.ndarray, *, best: bool) -> Counts:
    """Return levels in which each bin has all positives above all negatives, or below them."""
    nobody = np.zeros_like(positive)
    upper, lower = (positive, nobody), (nobody, negative)
    if not best:
        upper, lower = lower, upper
    return tuple(np.stack(each, axis=-1).reshape(-1) for each in zip(upper, lower, strict=True))  # pyright: ignore[reportReturnType]


def limit_figure(name: str, positive: np.ndarray, negative: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest value of a figure."""
    ends = [FIGURES[name](*place_apart(positive, negative, best=best)) for best in (False, True)]
    if name == "aupr":
        ends[0] = _lowest_precision(positive, negative)
    return min(ends), max(ends)


def _lowest_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the least average precision: in each bin all negatives come first, then positives one by one.

    Positives of one score share the precision below the last of them, which is the highest, so that they
    must not be tied. With h positives among the t inputs before them, the sum of ``(h + k) / (t + k)`` over
    k = 1, ..., p is ``p - (t - h)`` times that of ``1 / (t + k)``.
    """
    hits = np.cumsum(positive) - positive
    others = np.cumsum(negative)
    parts = positive - others * sum_reciprocals(hits + others, positive)
    return float(np.sum(parts)) / int(positive.sum())
