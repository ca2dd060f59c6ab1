"""The uncertainty that a distribution over predictions describes, without drawing members from it."""

from __future__ import annotations

from typing import Any

from demur.core.given import given_sides, refer_sides
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
    resolve,
    sides_of,
)
from demur.predictions import SecondOrder


def decompose_distribution(
    distribution: SecondOrder, measure: str | Measure, rule: str, base: float | None
) -> Decomposition:
    """Return the decomposition; see ``demur.decompose``."""
    chosen, means, given, scale = _prepare(distribution, measure, rule, base)
    parts = evaluate(chosen, means, given)
    whole = Decomposition(parts.aleatoric + parts.epistemic, *parts)
    return whole.map(lambda part: _shape_like_batch(part, distribution, scale))


def attribute_distribution(
    distribution: SecondOrder, measure: str | Measure, rule: str, base: float | None
) -> Array:
    """Return the epistemic part class by class; see ``demur.attribute``."""
    check_separable(resolve_rule(rule))
    chosen, means, given, scale = _prepare(distribution, measure, rule, base)
    apart, together = divergence_terms(*sides_of(chosen, means, given))
    return _shape_like_batch(apart + together, distribution, scale)


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
