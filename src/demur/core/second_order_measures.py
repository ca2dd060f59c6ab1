"""The uncertainty that a distribution over predictions describes, without drawing members from it."""

from __future__ import annotations

from typing import Any

from demur.core.given import given_sides, refer_sides
from demur.core.parts_as_text import Reading
from demur.core.rules import Array, resolve_rule
from demur.core.second_order_state import state_of_distribution
from demur.core.state import Means
from demur.measures import (
    Decomposition,
    Given,
    Measure,
    check_base,
    check_separable,
    divergence_terms,
    evaluate,
    name_unit,
    resolve,
    sides_of,
)
from demur.predictions import NormalInverseGamma, SecondOrder


def decompose_distribution(
    distribution: SecondOrder, measure: str | Measure, rule: str, base: float | None
) -> Decomposition:
    """Return the decomposition; see ``demur.decompose``."""
    if isinstance(distribution, NormalInverseGamma):
        return _decompose_gaussians(distribution, measure, rule, base)
    chosen, means, given, scale = _prepare(distribution, measure, rule, base)
    parts = evaluate(chosen, means, given)
    reading = Reading(name_unit(resolve_rule(rule).name, base))
    whole = Decomposition(parts.aleatoric + parts.epistemic, *parts, _reading=reading)
    return whole.map(lambda part: _shape_like_batch(part, distribution, scale))


def attribute_distribution(
    distribution: SecondOrder, measure: str | Measure, rule: str, base: float | None
) -> Array:
    """Return the epistemic part class by class; see ``demur.attribute``."""
    if isinstance(distribution, NormalInverseGamma):
        raise ValueError("attribute takes predictions of classes or labels. Got a NormalInverseGamma.")
    check_separable(resolve_rule(rule))
    chosen, means, given, scale = _prepare(distribution, measure, rule, base)
    apart, together = divergence_terms(*sides_of(chosen, means, given))
    return _shape_like_batch(apart + together, distribution, scale)


def _decompose_gaussians(
    distribution: NormalInverseGamma, measure: str | Measure, rule: str, base: float | None
) -> Decomposition:
    """Return the decomposition of a distribution over Gaussians."""
    if rule != "log":
        raise ValueError(f"rule must be 'log' for predicted numbers with a density. Got {rule!r}.")
    predictor, truth = resolve(measure).sides()
    if "given" in (predictor, truth):
        raise ValueError(
            "measure must be 'pairwise', 'average' or 'reverse' for a NormalInverseGamma. Got a given side."
        )
    entropy, information, divergence = distribution.compute_parts()
    aleatoric = entropy if predictor == "each" else entropy + information
    epistemic = {
        ("each", "each"): divergence,
        ("each", "bma"): information,
        ("bma", "each"): divergence - information,  # K is at least 2 I: nothing cancels
        ("bma", "bma"): 0 * information,
    }[predictor, truth]
    scale = check_base(base, resolve_rule(rule))
    reading = Reading(name_unit(rule, base))
    whole = Decomposition(aleatoric + epistemic, aleatoric, epistemic, _reading=reading)
    return whole.map(lambda part: distribution._to_result(part * scale))


def _prepare(
    distribution: SecondOrder, measure: str | Measure, rule: str, base: float | None
) -> tuple[Measure, Means, Given, float]:
    """Return the measure, the averages of the distribution and of given sides, and the unit."""
    chosen, loss = resolve(measure), resolve_rule(rule)
    scale = check_base(base, loss)
    *batch, classes = distribution.shape
    state = state_of_distribution(distribution, loss)
    given = refer_sides(given_sides(chosen, loss, tuple(batch), classes), loss, state.reference)
    return chosen, state.means(), given, scale


def _shape_like_batch(part: Array, distribution: SecondOrder, scale: float) -> Array:
    """Return one array, (inputs,) or (inputs, classes), with the batch's shape, like the parameters."""
    return distribution._to_result((part * scale).reshape((*distribution.shape[:-1], *part.shape[1:])))


def refuse_member_arguments(distribution: SecondOrder, *arguments: Any) -> None:
    """Raise if an argument is given that is about members, of which a distribution has no list."""
    names = ("logits", "log_probs", "weights", "unbiased", "stderr", "groups", "axis", "rounding")
    for name, value in zip(names, arguments, strict=True):
        if value is not None and value is not False and not (name == "axis" and value == 0):
            raise ValueError(
                f"{name} goes with an array of members. Got a {type(distribution).__name__}, which describes "
                f"all of them at once: leave {name} out."
            )


def refuse_axes(distribution: SecondOrder, class_axis: int, member_axis: int | None) -> None:
    """Raise if an axis is given: a distribution has no members, and its classes are last."""
    name = type(distribution).__name__
    if member_axis is not None:
        raise ValueError(f"member_axis goes with an array of members. Got a {name}: leave member_axis out.")
    if class_axis not in (-1, len(distribution.shape) - 1):
        raise ValueError(
            f"class_axis goes with an array of members. Got a {name}, whose classes are last: move them "
            f"there before, as in numpy.moveaxis(array, {class_axis}, -1)."
        )
