"""Where the numbers of members stand in the array that the user gave: errors count as the user does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array


@dataclass(slots=True)
class Places:
    """How (members, inputs, classes) came from an array of any shape.

    Parameters
    ----------
    batch
        Shape of the inputs.
    axis
        The members' axis in the user's array, from the front; None: it was one member, without such an axis.
    class_axis
        The axis of the classes there, from the front.
    outcome_axes
        How many axes there belong to the outcome: 1 for classes, 0 for one number.
    source
        The user's array, to look for another axis of classes.
    inputs
        Which inputs these are, by their place in the flat batch; None: all of them.
    """

    batch: tuple[int, ...]
    axis: int | None
    class_axis: int
    outcome_axes: int
    source: Array
    inputs: np.ndarray | None = None

    def only(self, inputs: slice | np.ndarray, count: int) -> Places:
        """Return the places of some of the inputs, of which there are ``count``."""
        own = np.arange(count) if self.inputs is None else self.inputs
        return replace(self, inputs=own[inputs])

    def find(self, place: tuple[int, ...]) -> list[int | str]:
        """Return the index in the user's array of a place in (members, inputs, ...)."""
        member, flat, *outcome = place
        flat = flat if self.inputs is None else int(self.inputs[flat])
        found: list[Any] = [int(each) for each in np.unravel_index(flat, self.batch)] if self.batch else []
        outcome = outcome[: self.outcome_axes]
        at = self.class_axis_of_one()
        found[at:at] = outcome if at == len(self.batch) else outcome or [":"]
        if self.axis is not None:
            found.insert(self.axis, member)
        return found

    def class_axis_of_one(self) -> int:
        """Return where the classes are in the array of a single member, without an axis of members."""
        return self.class_axis - (self.axis is not None and self.axis < self.class_axis)

    def find_other_class_axis(self, tolerance: float) -> int | None:
        """Return an axis along which all probabilities sum to 1, if there is one besides the last."""
        source = arrays.to_numpy(self.source)
        for axis in range(source.ndim):
            if axis not in (self.axis, self.class_axis):
                sums = source.sum(axis=axis, dtype=np.float64)
                if (np.abs(sums - 1) <= tolerance).all():
                    return axis
        return None


def choose_members_axis(axis: int, member_axis: int | None) -> int:
    """Return the members' axis, which goes by two names."""
    if member_axis is None:
        return axis
    if axis not in (0, member_axis):
        raise ValueError(
            f"axis and member_axis are two names of one argument. Got {axis!r} and {member_axis!r}. "
            "Give one of them."
        )
    return member_axis


def check_axis(name: str, axis: Any, of: str, shape: tuple[int, ...]) -> int:
    """Return an axis of a shape, counted from the front."""
    if not isinstance(axis, Integral) or not -len(shape) <= int(axis) < len(shape):
        raise ValueError(f"{name} must be an axis of {of}, shape {shape}. Got {axis!r}.")
    return int(axis) % len(shape)
