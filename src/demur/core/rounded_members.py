"""The least epistemic part that fits members whose probabilities were rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.least_divergence import least_terms
from demur.core.rounding import SATURATED, check_rounding
from demur.core.rules import LOG, Rule
from demur.measures import Measure
from demur.predictions import Members, MultiLabel

_FIGURES = {("each", "each"): "K", ("each", "bma"): "I", ("bma", "each"): "M"}
_AT_ONCE = 1 << 18  # numbers of which bounds are held at a time


def apply_rounding(
    rounding: Any, members: Members, rule: Rule, measure: Measure, *, unbiased: bool, stderr: bool
) -> float | str | None:
    """Return how far probabilities may be off: a half-width, ``SATURATED``, or None where nobody said.

    Also lets the members know, since rounded rows need not sum to 1 as exactly. Raises where it was asked for
    and there is no least value to find. Without being asked, saturated probabilities are exact then.
    """
    prediction = members.prediction
    width = prediction._rounding if is_from_probs(members) else None
    if rounding is not None:
        width = check_rounding(rounding, prediction.precision)
        if not is_from_probs(members):
            raise ValueError(f"rounding goes with probabilities. Got {prediction!r}. Leave rounding out.")
    elif width == SATURATED and not check_rounding("dtype", prediction.precision):
        width = 0.0  # the numbers came as integers
    if not width:
        return width
    unfit = _find_obstacle(members, rule, measure, unbiased=unbiased, stderr=stderr)
    if unfit and width != SATURATED:
        raise ValueError(f"rounding finds the least K, I or M that fits. {unfit}")
    members.prediction = prediction.with_values(prediction.values)
    members.prediction._rounding = width
    return None if unfit else width


def _find_obstacle(
    members: Members, rule: Rule, measure: Measure, *, unbiased: bool, stderr: bool
) -> str | None:
    """Return why there is no least value to find, and what to do; None where there is one."""
    if rule is not LOG and not isinstance(members.prediction, MultiLabel):
        return f"Got rule {rule.name!r}, under which a probability of 0 costs little. Leave rounding out."
    if measure.sides() not in _FIGURES:
        return f"Got {measure!r}. Take measure='pairwise', 'average' or 'reverse'."
    if stderr:
        return "Got stderr=True: a bound has no standard error. Leave one of them out, or pass logits."
    if unbiased and measure.sides() != ("each", "each"):
        return "Got unbiased=True, which goes with it for measure='pairwise' only."
    return None


def is_from_probs(members: Members) -> bool:
    """Tell whether predictions came as probabilities, which rounding may have turned into 0."""
    prediction = members.prediction
    return "probs" in prediction.names if isinstance(prediction, MultiLabel) else prediction.kind == "probs"


def may_be_rounded(members: Members) -> bool:
    """Tell whether a probability of 0 may be one by rounding, as that of an integer is not."""
    if not is_from_probs(members) or members.prediction._rounding == 0:
        return False
    return "float" in members.prediction.precision


def refuse_rounding(members: Members) -> None:
    """Raise where the least value that fits is wanted."""
    width = members.prediction._rounding if is_from_probs(members) else None
    if width and width != SATURATED:
        raise ValueError(
            "rounding needs all members at once, and Moments add them up as they come. "
            f"Got rounding {width:g}. Use demur.decompose, or pass logits."
        )


def is_given_rounded(measure: Measure, sides: list[Any]) -> bool:
    """Tell whether a probability of 0 of a given side, checked members or Moments, may be one by rounding."""
    if any(isinstance(side, Members) and may_be_rounded(side) for side in sides):
        return True
    return any(getattr(given, "_from_probs", False) for given in (measure.predictor, measure.truth))


def least_class_terms(members: Members, measure: Measure, rounding: float | str, unbiased: bool) -> Array:
    """Return the least epistemic part that fits, class by class, (inputs, classes).

    Inputs whose numbers are all exact have inf: their part is as computed from those.
    """
    if members.stays:
        found = _of_part(members, measure, rounding)
        xp = arrays.namespace(found)
        if rounding == SATURATED:
            found = xp.where(_find_saturated(xp, members)[..., None], found, xp.full_like(found, np.inf))
    else:
        xp, found = np, np.full((members.inputs, members.classes), np.inf)
        every = np.arange(members.inputs)
        places = np.flatnonzero(_find_saturated(np, members)) if rounding == SATURATED else every
        some = members.only(places)
        for begin, end in some.parts(_AT_ONCE) if places.size else ():
            found[places[begin:end]] = _of_part(some.part(begin, end), measure, rounding)
    if not unbiased:
        return found
    # The U-statistic is K times what depends on the weights alone, and so is its least value.
    shares = _shares_of(xp, members)
    return found / (1 - xp.sum(shares * shares, axis=0))[..., None]


def _find_saturated(xp: Any, members: Members) -> Array:
    """Tell of each input whether a member of positive weight has a probability of 0 or 1."""
    values = members.prediction.values if members.stays else arrays.to_numpy(members.prediction.values)
    some = xp.any(values == 0, axis=-1)
    return xp.any(some if members.ignored is None else some & ~members.ignored, axis=0)


def _of_part(members: Members, measure: Measure, rounding: float | str) -> Array:
    """Return the same for a part of the inputs that fits in memory."""
    prediction = members.prediction if members.stays else members.prediction.on_host()
    p = arrays.widened(prediction.values)
    xp = arrays.namespace(p)
    if members.ignored is not None:  # which may hold anything
        p = xp.where(members.ignored[..., None], xp.ones_like(p), p)
    shares = _shares_of(xp, members)
    figure, inputs, classes = _FIGURES[measure.sides()], p.shape[1], p.shape[2]
    paired = classes == 2 or isinstance(prediction, MultiLabel)
    if paired:
        pairs = xp.reshape(p, (*p.shape[:2], classes // 2, 2))
        low, high = _bounds_of_logits(xp, pairs, rounding, prediction.precision)
    else:
        low, high = (_log(xp, each) for each in _between(xp, p, rounding, prediction.precision))
    shares = xp.broadcast_to(shares[..., None], low.shape)
    if members.stays:
        terms = least_terms(xp, low, high, shares, figure, paired=paired)
    else:
        # Most classes of most inputs overlap, and need no search.
        weighs = shares > 0
        differ = np.where(weighs, low, -np.inf).max(axis=0) > np.where(weighs, high, np.inf).min(axis=0)
        terms = np.zeros((2 if paired else 1, *low.shape[1:]))
        some = low[:, differ], high[:, differ], shares[:, differ]
        terms[:, differ] = least_terms(np, *some, figure, paired=paired)
    found = terms[0, ...] if not paired else xp.stack([terms[1, ...], terms[0, ...]], axis=-1)
    return xp.reshape(found, (inputs, classes))


def _bounds_of_logits(xp: Any, pairs: Array, rounding: float | str, precision: str) -> tuple[Array, Array]:
    """Return the bounds of the logit of the second of two classes.

    From the smaller probability of the two, which has the digits; the other is what is left of 1.
    """
    present = pairs[..., 1] <= pairs[..., 0]
    small = xp.where(present, pairs[..., 1], pairs[..., 0])
    low, high = (_log(xp, p) - _log(xp, 1 - p, p) for p in _between(xp, small, rounding, precision))
    return xp.where(present, low, -high), xp.where(present, high, -low)


def _between(xp: Any, p: Array, rounding: float | str, precision: str) -> tuple[Array, Array]:
    """Return the least and the greatest probability that a number may stand for."""
    if rounding == SATURATED:
        width = xp.where(p == 0, xp.full_like(p, check_rounding("dtype", precision)), xp.zeros_like(p))
    else:
        width = xp.full_like(p, float(rounding))
    low, high = p - width, p + width
    return xp.where(low > 0, low, xp.zeros_like(p)), xp.where(high < 1, high, xp.ones_like(p))


def _log(xp: Any, p: Array, rest: Array | None = None) -> Array:
    """Return the logarithm, -inf of 0; ``rest`` is the complement where that has more digits."""
    positive = p > 0
    if rest is None:
        log = xp.log(xp.where(positive, p, xp.ones_like(p)))
    else:
        log = xp.log1p(-xp.where(positive, rest, xp.zeros_like(p)))
    return xp.where(positive, log, xp.full_like(p, -float("inf")))


def _shares_of(xp: Any, members: Members) -> Array:
    """Return weights that sum to 1 over members, (members, inputs)."""
    weights = members.weights
    if weights is None:
        values = members.prediction.values
        like = arrays.widened(values[..., 0]) if members.stays else np.empty(values.shape[:2])
        return xp.full_like(like, 1 / members.count)
    return weights / xp.sum(weights, axis=0)
