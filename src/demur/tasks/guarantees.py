"""Thresholds of a score, and what each of them promises for new inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any, NoReturn

import numpy as np

from demur.tasks.thresholds import find_ends, find_threshold

_SMALLEST_SHARE_KEPT = 0.3  # the smallest share kept that is tested: fewer inputs prove little and help few
_NUMBERS_TESTED = 100  # numbers kept that are tested, evenly spaced from there to all
_MORE_INPUTS = "or give more inputs with known truth"


class NoGuarantee(ValueError):
    """No threshold can promise what was asked for; the message says what could be promised.

    Attributes
    ----------
    group : str
        The group that nothing can be promised for; "" where there are no groups.
    """

    def __init__(self, message: str, group: str = "") -> None:
        super().__init__(message)
        self.group = group


@dataclass(frozen=True)
class Threshold:
    """One threshold: scores above it are deferred; None defers all.

    Parameters
    ----------
    value : float or None
        The threshold.
    kept, number : int
        How many of the inputs that it was fitted on are kept, out of how many.
    right : int
        How many of the kept ones are right.
    promise : float or None
        What holds for new inputs, in the terms of the policy's goal; None where nothing is promised.
    """

    value: float | None
    kept: int
    number: int
    right: int
    promise: float | None


def fit_threshold(
    goal: str, target: float, confidence: float, scores: np.ndarray, right: np.ndarray, name: str
) -> Threshold:
    """Return the threshold of one group."""
    order = np.argsort(scores, kind="stable")
    ranked, hits = scores[order], np.append(0, np.cumsum(right[order]))
    number = len(ranked)
    ends = find_ends(ranked)

    def threshold(kept: int, promise: float | None) -> Threshold:
        return Threshold(find_threshold(ranked, kept), kept, number, int(hits[kept]), promise)

    if goal == "coverage":
        kept = int(ends[np.searchsorted(ends / number, target)])  # a share of k / n keeps k, not k + 1
        if hits[kept] == 0:
            why = (
                f"None of the {kept} predictions that it would keep is right. Predicted numbers are hardly "
                "ever equal to the truth: say which are near enough, as correct=abs(predicted - truth) <= 0.1"
            )
            _refuse(name, f"an accuracy above 0 at a coverage of {target:g}", why)
        return threshold(kept, float(lower_bound(hits[kept], kept, confidence)))
    if goal == "risk":
        shares = np.arange(1, number + 2) / (number + 1)
        allowed = int(np.searchsorted(shares, target, side="right")) - 1
        if allowed < 0:
            _refuse(
                name,
                f"a risk of {target:g}",
                f"The least that can be promised is 1 in {number + 1}, by deferring nearly all: ask for "
                f"that, {_MORE_INPUTS}",
            )
        errors = np.flatnonzero(~right[order])
        if allowed >= len(errors):
            return threshold(number, target)
        kept = int(np.searchsorted(ranked, ranked[errors[allowed]]))  # all below the first error too many
        return threshold(kept, target)
    if goal == "cost":
        candidates = np.append(0, ends)
        kept = int(candidates[np.argmin(candidates - hits[candidates] + target * (number - candidates))])
        return threshold(kept, None)
    tested = choose_numbers_kept(ends, number)
    bounds = promisable_accuracy(hits[tested], tested, confidence)
    if bounds.max() >= target:
        return threshold(int(tested[bounds >= target][-1]), target)
    _refuse(
        name,
        f"an accuracy of {target:g} with confidence {confidence:g}",
        _instead_of_accuracy(hits[tested], tested, bounds, number),
    )


def choose_numbers_kept(ends: np.ndarray, number: int) -> np.ndarray:
    """Return the numbers kept that are tested, in their order; they depend on scores alone.

    Never on labels, so that the promise holds; never on the target, so that a higher one keeps no more.
    """
    wanted = np.ceil(np.linspace(_SMALLEST_SHARE_KEPT * number, number, _NUMBERS_TESTED))
    return np.unique(ends[np.searchsorted(ends, np.clip(wanted, 1, number))])


def promisable_accuracy(right: np.ndarray, kept: np.ndarray, confidence: float) -> np.ndarray:
    """Return the highest accuracy that each number kept can promise, tested in order up to the first failure.

    A number that could not prove a target even if all of its inputs are right is no failure while they are:
    it would end the search before it began. To go on from there only with all of them right is stricter
    than to begin later, and a number kept that passes for a target passes for every lower one.
    """
    own = lower_bound(right, kept, confidence)
    so_far = np.minimum.accumulate(np.where(right < kept, own, np.inf))
    return np.minimum(own, so_far)


def _instead_of_accuracy(right: np.ndarray, kept: np.ndarray, bounds: np.ndarray, number: int) -> str:
    """Return the accuracy that could be promised, rounded down so that `fit` takes it, and what it keeps."""
    best = float(Decimal(float(bounds.max())).quantize(Decimal("0.0001"), ROUND_FLOOR))
    if best == 0:
        return f"Nothing can be promised, with {right[0]} of the most certain {kept[0]} predictions right"
    return (
        f"The most that can be promised is {best:g}, by keeping the most certain {kept[bounds >= best][-1]} "
        f"of {number} inputs: ask for that, {_MORE_INPUTS}"
    )


def lower_bound(right: Any, kept: Any, confidence: float) -> np.ndarray:
    """Return the one-sided Clopper-Pearson bound of each accuracy."""
    from scipy.special import betaincinv

    right, kept = np.asarray(right), np.asarray(kept)
    # Where none is right, the bound is 0, which the inverse does not take.
    return np.where(right > 0, betaincinv(np.maximum(right, 1), kept - right + 1, 1 - confidence), 0.0)


def write_threshold(value: float, last: float = -math.inf, digits: int = 4) -> str:
    """Return a threshold in decimal: rounded down, and with so many digits that the last score kept stays.

    Examples
    --------
    >>> write_threshold(0.25109249, last=0.2504), write_threshold(0.25109249, last=0.25109)
    ('0.251', '0.25109')
    """
    for number in range(digits, 17):
        lower = Context(prec=number, rounding=ROUND_FLOOR).create_decimal_from_float(value)
        if last <= float(lower) <= value:
            return f"{float(lower):.{number}g}"
    return repr(value)


def _refuse(name: str, wish: str, instead: str) -> NoReturn:
    """Raise `NoGuarantee`."""
    whose = f" for group {name}" if name else ""
    raise NoGuarantee(f"No threshold can promise {wish}{whose}. {instead}.", name)


def describe_promise(goal: str, confidence: float, threshold: Threshold) -> str:
    """Return in words what one threshold promises."""
    t = threshold
    if t.value == math.inf:
        rule = "defers nothing"
    else:
        rule = (
            "defers all" if t.value is None else f"defers scores above {write_threshold(t.value, digits=6)}"
        )
    if goal == "risk":
        return f"{rule}; in expectation at most {t.promise:.4g} of all inputs are kept and wrong."
    if goal == "cost":
        return f"{rule}, the cheapest on the {t.number} inputs it was fitted on; nothing is promised."
    return (
        f"{rule}; for inputs from the source that it was fitted on, accuracy of the kept is at least "
        f"{t.promise:.4g}, with confidence {confidence:g}."
    )
