"""The given side of a measure: a deployed model, a second set of members, or their sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from demur import kernels
from demur.core import arrays
from demur.core.rules import Array, Rule
from demur.core.second_order_state import state_of_distribution
from demur.core.state import State, arrays_of
from demur.measures import Given, Measure
from demur.predictions import (
    Categorical,
    Members,
    Places,
    as_prediction,
    as_second_order,
    gather,
    rule_for,
)

Side = Members | State | None


def given_sides(
    measure: Measure, rule: Rule, batch: tuple[int, ...], classes: int, places: Places | None = None
) -> list[Side]:
    """Return predictor and truth as checked members or sums; None where not given.

    ``places`` say where the classes of the members' array were, and so are those of given arrays.
    """
    return [
        None if isinstance(value, str) else given_side(name, value, rule, batch, classes, places)
        for name, value in (("predictor", measure.predictor), ("truth", measure.truth))
    ]


def given_side(
    name: str,
    value: Any,
    rule: Rule,
    batch: tuple[int, ...],
    classes: int,
    places: Places | None = None,
) -> Side:
    """Return one given side."""
    distribution = as_second_order(value)
    if distribution is not None:
        _check_shape(name, rule, distribution.shape, (*batch, classes))
        return state_of_distribution(distribution, rule)
    state = getattr(value, "state", None)
    if isinstance(state, State):
        if state.rule is not rule:
            raise ValueError(f"{name} must be Moments with rule {rule.name!r}. Got rule {state.rule.name!r}.")
        _check_shape(name, rule, tuple(state.reference.shape), (*batch, classes))
        check_every_input(state)
        return state
    if hasattr(value, "update") and hasattr(value, "merge"):
        raise ValueError(f"{name} must be Moments that have members. Got empty ones.")
    prediction = as_prediction(value)
    rule_for(prediction, rule)
    one = len(prediction.shape) == len(batch) + 1
    at = len(batch)
    if places is not None and type(prediction) is Categorical:
        at = places.class_axis_of_one()
    if prediction.shape[0 if one else 1 :] != (*batch[:at], classes, *batch[at:]):
        _check_shape(name, rule, prediction.shape, (*batch[:at], classes, *batch[at:]))
    class_axis = -1 if at == len(batch) else at if one else at + 1
    return gather(prediction, None, 0, class_axis, single=one)


def check_every_input(state: State) -> None:
    """Raise unless every input has a member of positive weight."""
    if not arrays.is_traced(state.count) and bool((state.count == 0).any()):
        raise ValueError(
            "Expected a member of positive weight for each input. "
            f"Got none for {int((state.count == 0).sum())} of them. Update with weights above 0 first."
        )


def _check_shape(name: str, rule: Rule, came: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise unless a given model is for the same inputs and classes."""
    if came != expected:
        raise ValueError(
            f"{name} must be a model for the same inputs and classes, shape {rule.shape_as_given(expected)}, "
            f"or a set of members with one more axis in front. Got {rule.shape_as_given(came)}."
        )


def part_of(side: Side, begin: int, end: int) -> Side:
    """Return a given side for some of the inputs."""
    return None if side is None else side.only(slice(begin, end))


def refer_sides(sides: list[Side], rule: Rule, reference: Array) -> Given:
    """Return the given sides as averages relative to the members' reference; two of them, to the first's."""
    states = [None if side is None else _sum_side(side, rule, reference) for side in sides]
    first = states[0]
    if first is not None and states[1] is not None:  # which may be far from the members, and alike
        reference = first.reference
    return Given(*(None if state is None else state.refer_to(reference).means() for state in states))


def with_gradients(sides: list[Side]) -> Array | None:
    """Return the numbers of a given side that has gradients, or None."""
    for side in sides:
        if isinstance(side, Members) and side.stays:
            return side.prediction.values
    return None


def move_to_library(state: State, target: Array) -> State:
    """Return sums in the library and on the device of an array."""
    there = {n: None if a is None else arrays.matching(a, target) for n, a in arrays_of(state).items()}
    return replace(state, xp=arrays.namespace(target), **there)


def refer_side(side: Members | State, rule: Rule, reference: Array) -> State:
    """Return one given side's sums relative to the members' reference."""
    return _sum_side(side, rule, reference).refer_to(reference)


def _sum_side(side: Members | State, rule: Rule, target: Array) -> State:
    """Return one given side's sums in the library and on the device of an array."""
    if isinstance(side, Members):
        numpy = arrays.library(target) == "numpy"
        side = kernels.state_of(side if numpy or side.stays else side.beside(target), rule, 1)
    elif arrays.library(side.reference) == "numpy" != arrays.library(target):
        side = move_to_library(side, target)
    if arrays.library(side.reference) != arrays.library(target):
        raise TypeError(
            f"Expected a given side and predictions of one library. Got {arrays.library(side.reference)} and "
            f"{arrays.library(target)}. Give both with gradients or both without."
        )
    return side
