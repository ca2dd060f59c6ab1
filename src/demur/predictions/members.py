"""Members in one form: (members, inputs, classes) with weights, from any shape and members' axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.categorical import Categorical
from demur.predictions.parametric import Parametric, as_real_array
from demur.predictions.places import Places, check_axis

_LIGHT, _HEAVY = 1e-100, 1e100  # weights whose squares are no problem


@dataclass(slots=True)
class Members:
    """Checked shapes: predictions (members, inputs, classes), weights (members, inputs) or None."""

    prediction: Any  # Categorical or Parametric
    weights: Array | None
    batch: tuple[int, ...]
    places: Places | None = None  # in the caller's array
    kept: bool = False  # in their library, since what they are set beside has gradients

    @property
    def count(self) -> int:
        """How many members there are."""
        return self.prediction.shape[0]

    @property
    def inputs(self) -> int:
        """How many inputs there are."""
        return self.prediction.shape[1]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.prediction.shape[2]

    @property
    def size(self) -> int:
        """How many numbers that makes."""
        return math.prod(self.prediction.values.shape)

    @property
    def stays(self) -> bool:
        """Whether to compute in the array's own library rather than on the processor with NumPy."""
        if self.kept or (self.weights is not None and self.weights.__class__ is not np.ndarray):
            return True  # there, since something has gradients
        return arrays.stays(self.prediction.values)

    def beside(self, target: Array) -> Members:
        """Return the members in the library and on the device of an array, to stay there."""
        values = arrays.matching(self.prediction.values, target)
        weights = None if self.weights is None else arrays.matching(self.weights, target)
        return Members(self.prediction.with_values(values), weights, self.batch, self.places, kept=True)

    def part(self, begin: int, end: int) -> Members:
        """Return the members for the inputs from ``begin`` to ``end``."""
        return self.only(slice(begin, end))

    def only(self, inputs: slice | np.ndarray) -> Members:
        """Return the members for some of the inputs."""
        values = self.prediction.values[:, inputs]
        weights = None if self.weights is None else self.weights[:, inputs]
        places = None if self.places is None else self.places.only(inputs, self.inputs)
        own = self.prediction.with_values(values)
        return Members(own, weights, (values.shape[1],), places, self.kept)

    def parts(self, size: int) -> Iterator[tuple[int, int]]:
        """Return ranges of inputs, all about as long, with at most ``size`` numbers each, or one input."""
        most = max(1, size // (self.count * self.classes))
        count = -(-self.inputs // most)
        edges = [self.inputs * i // count for i in range(count + 1)]
        yield from itertools.pairwise(edges)

    @property
    def ignored(self) -> Array | None:
        """True where a prediction has no weight."""
        return None if self.weights is None else self.weights == 0

    @property
    def weigh_nothing(self) -> bool:
        """Whether all weights are known to be zero, so that nothing is to be done."""
        weights = self.weights
        return weights is not None and not arrays.is_traced(weights) and not bool((weights > 0).any())

    def logits(self) -> Array:
        """Return checked logits in float64, in the array's own library if they stay there, else NumPy."""
        here = self.prediction if self.stays else self.prediction.on_host()
        return here._to_logits(self.ignored, self.places)

    def single_logits(self) -> Array:
        """Return checked logits in float32, where they are; for PyTorch."""
        here = self.prediction.with_values(self.prediction.values.float())
        return here._to_logits(self.ignored, self.places, widen=False)

    @property
    def kernel_precision(self) -> str:
        """The type, float32 or float64, in which compiled loops read the numbers; halves become float32."""
        return "float32" if self.prediction.precision in ("float32", "float16", "bfloat16") else "float64"

    @property
    def is_readable(self) -> bool:
        """Whether compiled loops can read the numbers where they are."""
        return self.prediction.precision in ("float32", "float64")

    def kernel_values(self) -> np.ndarray:
        """Return the numbers as NumPy float32 or float64 for the kernel, which checks them."""
        values = arrays.to_numpy(self.prediction.values)
        return values if values.dtype.kind == "f" else values.astype(np.float64)

    def plain_logits(self) -> np.ndarray:
        """Return logits in float64; those that came as logits are not checked."""
        if self.prediction.kind != "logits":
            return self.logits()
        return self.kernel_values().astype(np.float64, copy=False)


def gather(
    prediction: Categorical | Parametric,
    weights: Any,
    axis: int,
    class_axis: int = -1,
    *,
    may_be_zero: bool = False,
    single: bool = False,
) -> Members:
    """Move the members first and the classes last, flatten the batch, and check ranks and weights.

    ``may_be_zero``: an input may have no member of positive weight here, as others may come. ``single``: one
    member, without an axis of members.
    """
    shape = prediction.shape
    name = prediction.kind
    if len(shape) < 2 and not single:
        raise ValueError(
            f"{name} must have members and classes, at least 2 axes. Got shape {shape}. "
            "For a single model give [array], a list of one member."
        )
    place = None if single else check_axis("axis", axis, name, shape)
    classes_at = len(shape) - 1
    if class_axis != -1:
        classes_at = _check_class_axis(class_axis, prediction)
    if place == classes_at:
        if class_axis == -1:
            raise ValueError(f"axis must be the members' axis; the last one, {axis}, is the classes'.")
        raise ValueError(f"axis and class_axis must be two different axes. Got {axis} and {class_axis}.")
    values = prediction.values
    if classes_at != len(shape) - 1:
        values = arrays.namespace(values).moveaxis(values, classes_at, -1)
    if place is None:
        values = values[None]
    elif place:
        values = arrays.namespace(values).moveaxis(values, place - (classes_at < place), 0)
    count, *batch, classes = values.shape
    _check_not_empty(name, tuple(values.shape))
    if len(batch) != 1:
        values = values.reshape((count, math.prod(batch), classes))
    moved = prediction if values is prediction.values else prediction.with_values(values)
    places = Places(tuple(batch), place, classes_at, prediction._outcome_axes, prediction.values)
    own_weights = _check_weights(weights, values, tuple(batch), may_be_zero)
    return Members(moved, own_weights, tuple(batch), places)


def _check_class_axis(class_axis: Any, prediction: Categorical | Parametric) -> int:
    """Return where the classes are, counted from the front."""
    if type(prediction) is not Categorical:
        raise ValueError(
            f"class_axis goes with arrays of classes. Got {prediction!r}. Move labels or coordinates last "
            "before, as in numpy.moveaxis(array, 2, -1)."
        )
    return check_axis("class_axis", class_axis, prediction.kind, prediction.shape)


def _check_not_empty(name: str, shape: tuple[int, ...]) -> None:
    """Raise if an axis has no entries."""
    if 0 in shape:
        raise ValueError(
            f"{name} must have at least one member, input and class. Got shape {shape}, an empty axis."
        )


def _check_weights(weights: Any, values: Array, batch: tuple[int, ...], may_be_zero: bool) -> Array | None:
    """Return weights as (members, inputs), in the library that computes; None if all weigh the same."""
    if weights is None:
        return None
    weights = as_real_array("weights", weights)
    count, inputs = values.shape[:2]
    shape = tuple(weights.shape)
    if shape != (count,) and shape != (count, *batch):
        also = f" or {(count, *batch)}, one per member and input" if batch else ""
        raise ValueError(f"weights must have shape {(count,)}, one per member{also}. Got {shape}.")
    if not arrays.is_traced(weights):
        numbers = arrays.to_numpy(weights).astype(np.float64)
        check_weight_values(numbers, may_be_zero)
        alike = arrays.library(weights) == arrays.library(values)
        if not arrays.stays(values) and not (alike and arrays.stays(weights)):
            if not may_be_zero:
                numbers = scale_moderately(numbers)
            numbers = numbers.reshape((count, -1))
            return np.broadcast_to(numbers, (count, inputs))
    xp = arrays.namespace(values)
    moved = xp.asarray(arrays.to_numpy(weights)) if arrays.library(weights) == "numpy" else weights
    moved = arrays.widened(moved.to(values.device) if hasattr(moved, "to") else moved)
    return xp.broadcast_to(xp.reshape(moved, (count, -1)), (count, inputs))


def read_single_weight(weight: Any) -> Any:
    """Return the weight of a single member as an array of one."""
    if weight is None:
        return None
    found = as_real_array("weights", weight)
    if found.ndim > 1:
        raise ValueError(f"weights must be a number for one member. Got shape {tuple(found.shape)}.")
    return found if found.ndim == 1 else np.asarray([float(found)])


def scale_moderately(weights: np.ndarray) -> np.ndarray:
    """Return weights, of which only ratios count, so that their squares and sums are finite and not 0."""
    largest = weights.max(axis=0)
    if largest.min() >= _LIGHT and largest.max() <= _HEAVY:
        return weights
    return np.ldexp(weights, -np.frexp(largest)[1])


def check_weight_values(weights: np.ndarray, may_be_zero: bool) -> None:
    """Raise unless weights are finite, not negative, and not all zero for any input."""
    if not np.isfinite(weights).all():
        raise ValueError(f"weights must be finite. Got {weights[~np.isfinite(weights)][0]}.")
    if (weights < 0).any():
        raise ValueError(f"weights must not be negative. Got {weights[weights < 0][0]:g}.")
    if not may_be_zero and not (weights.max(axis=0) > 0).all():
        raise ValueError("weights must not be all zero. Give at least one member of each input a weight.")
    heavy = weights.max(axis=0) if may_be_zero else np.empty(0)  # else they are scaled
    strange = heavy[(heavy > _HEAVY) | ((heavy > 0) & (heavy < _LIGHT))]
    if strange.size:
        raise ValueError(
            f"weights in a stream must be 0 or from {_LIGHT:g} to {_HEAVY:g}. Got {strange[0]:g}. "
            "Multiply all of them, also those to come, by the same number."
        )
