"""Predictions by the parameters of a family of distributions, checked as classes are."""

from __future__ import annotations

import copy
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.probabilities import one_hot
from demur.core.rules import Rule
from demur.families import FAMILIES
from demur.predictions.categorical import DROP_OR_IGNORE, raise_if_bad
from demur.predictions.places import Places


class Parametric:
    """Parameters of each prediction, on the last axis of one array; subclasses say which.

    It stands where ``Categorical`` does: members, inputs and weights are arranged in the same way.
    """

    __slots__ = ("names", "precision", "rule", "values")
    _outcome_axes: ClassVar[int] = 2  # that an error may count: the rows and columns of a covariance

    values: Array
    names: tuple[str, ...]  # of the parameters; all but the mean are positive
    rule: Rule
    precision: str  # the type that the numbers came in

    def __init__(self, family: str, /, **parameters: Any) -> None:
        """Check shapes and types, and put the parameters on one axis."""
        given = {name: as_real_array(name, value) for name, value in parameters.items()}
        first = max(given, key=lambda name: sum(2 + (size > 1) for size in given[name].shape))
        shape = tuple(given[first].shape)
        for name, array in given.items():
            # An axis of length 1 is shared, as one variance by all inputs of a member; no axis is left out.
            shared = zip(array.shape, shape, strict=False)
            if array.ndim and (
                array.ndim != len(shape) or any(own not in (1, whole) for own, whole in shared)
            ):
                raise ValueError(
                    f"{name} must have the shape of {first}, {shape}, with 1 on axes along which it is the "
                    f"same, or be one number. Got {tuple(array.shape)}."
                )
        self._fill_with(family, tuple(given), stack_parameters(list(given.values()), shape))

    def _fill_with(self, family: str, names: tuple[str, ...], values: Array) -> None:
        """Keep parameters that are on one axis already."""
        self.rule, self.names, self.values = FAMILIES[family], names, values
        self.precision = arrays.type_name(values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.rule.shape_as_given(self.shape)}, {self.precision})"

    @property
    def kind(self) -> str:
        """What messages call it."""
        return type(self).__name__

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of parameters."""
        return tuple(self.values.shape)

    def with_values(self, values: Array) -> Any:
        """Return predictions of the same kind and precision with other parameters."""
        other = copy.copy(self)
        other.values = values
        return other

    def on_host(self) -> Any:
        """Return the same predictions as a NumPy array, copied only if necessary."""
        values = arrays.to_numpy(self.values)
        return self if values is self.values else self.with_values(values)

    def _members_axis(self, axis: int) -> int:
        """Return the members' axis, counted from the front, of what the user gave."""
        return find_members_axis(self.kind, axis, self.rule.shape_as_given(self.shape), len(self.shape) - 1)

    def _to_logits(self, ignored: Array | None = None, places: Places | None = None) -> Array:
        """Return checked parameters, the family's logits, in float64 or the widest type there is.

        Predictions without weight, (members, inputs), are not checked. They get the parameters of another
        member, so that they add exactly 0.
        """
        values = arrays.widened(self.values)
        xp = arrays.namespace(values)
        if not arrays.is_traced(values):
            self._check(xp, values, ignored, places)
        values = self._standardise(xp, values)
        if ignored is None:
            return values
        first = xp.argmin(xp.astype(ignored, xp.int32), axis=0)
        chosen = (xp.moveaxis(one_hot(xp, first, values.shape[0]), -1, 0) & ~ignored)[..., None]
        some = xp.sum(xp.where(chosen, values, xp.zeros_like(values)), axis=0)
        some = xp.where(xp.all(ignored, axis=0)[..., None], self._placeholder(xp, some), some)
        return xp.where(ignored[..., None], some[None, ...], values)

    def _standardise(self, xp: Any, values: Array) -> Array:
        """Return parameters as the family takes them."""
        return values

    def _placeholder(self, xp: Any, like: Array) -> Array:
        """Return some valid parameters, for inputs that no member has weight for."""
        return xp.ones_like(like)

    def _check(
        self, xp: Any, values: Array, ignored: Array | None = None, places: Places | None = None
    ) -> None:
        """Raise the error that says what is wrong with the numbers, if anything is."""
        size = values.shape[-1] // len(self.names)
        for index, name in enumerate(self.names):
            numbers = values[..., index * size : (index + 1) * size]
            check_finite(xp, name, numbers, ignored, places)
            if name != "mean":
                _check_positive(xp, name, numbers, ignored, places)


def check_finite(xp: Any, name: str, values: Array, ignored: Array | None, places: Places | None) -> None:
    """Raise unless numbers are finite."""
    expected = f"{name} must be finite"
    raise_if_bad(xp, ~xp.isfinite(values), values, expected, DROP_OR_IGNORE, places, ignored)


def _check_positive(xp: Any, name: str, values: Array, ignored: Array | None, places: Places | None) -> None:
    """Raise unless numbers are above 0."""
    advice = "A distribution without spread has no density." if name in ("variance", "scale") else (
        "Leave such a member out, or give it weight 0."
    )  # fmt: skip
    raise_if_bad(xp, ~(values > 0), values, f"{name} must be above 0", advice, places, ignored)


def find_members_axis(kind: str, axis: int, shape: tuple[int, ...], axes: int) -> int:
    """Return the members' axis, counted from the front, among the first ``axes`` of a shape."""
    if not axes:
        raise ValueError(
            f"{kind} must have members, at least 1 axis. Got shape {shape}. "
            "For a single model add a members axis, as in mean[None]."
        )
    if not isinstance(axis, Integral) or not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis must be an axis of {kind}, shape {shape}. Got {axis!r}.")
    if axis % len(shape) >= axes:
        raise ValueError(f"axis must be the members' axis; the last one, {axis}, is the outcome's.")
    return axis % len(shape)


def as_real_array(name: str, value: Any) -> Array:
    """Return an array of real numbers."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    array = arrays.as_array(value)
    if not arrays.type_name(array).startswith(("float", "bfloat", "int", "uint", "bool")):
        raise TypeError(f"{name} must hold real numbers. Got {arrays.type_name(array)}.")
    return array


def stack_parameters(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """Return arrays side by side on a new last axis, in one library and type; numbers fill the shape."""
    xp, parts = to_one_kind(parts)
    return xp.stack([xp.broadcast_to(part, shape) for part in parts], axis=-1)


def to_one_kind(parts: list[Array]) -> tuple[Any, list[Array]]:
    """Return arrays in the library and on the device of the first that is not NumPy's, and in one type."""
    libraries = [arrays.library(part) for part in parts]
    leader = next((p for p, name in zip(parts, libraries, strict=True) if name != "numpy"), parts[0])
    parts = [arrays.matching(part, leader).reshape(tuple(part.shape)) for part in parts]
    xp = arrays.namespace(leader)
    # Plain numbers follow the type of the arrays beside them.
    typed = [p for p in parts if p.ndim and arrays.is_floating(p)] or parts
    kind = typed[0].dtype
    for part in typed[1:]:
        kind = xp.result_type(kind, part.dtype)
    if not arrays.is_floating(xp.zeros(1, dtype=kind)):
        kind = xp.float64 if arrays.library(leader) != "jax" else None
    if kind is None:
        return xp, [part * 1.0 for part in parts]
    return xp, [xp.astype(part, kind) for part in parts]
