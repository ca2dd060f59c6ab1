"""Predictions of classes, as probabilities, logits or log-probabilities; shapes and numbers are checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.places import Places

# How far probabilities of one prediction may sum from 1: what rounding every one of a thousand classes to
# this type can do, with room; normalised again in float64 afterwards.
_SUM_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}

DROP_OR_IGNORE = "Drop that input, or give that member weight 0 for it (weights: one per member and input)."
_LOGITS_OR_NUMBERS = "For logits pass logits=. For numbers without a variance use demur.Points."


class Categorical:
    """Predicted distributions over classes, as probabilities, logits or log-probabilities.

    Parameters
    ----------
    probs, logits, log_probs
        Exactly one of them, an array of NumPy, PyTorch or JAX; classes are last. Logits of ``-inf`` and
        probabilities of 0 are classes that the model excludes. Probabilities are checked to sum to 1
        within a tolerance of their type (float64 1e-6, float32 1e-4, float16 and bfloat16 2e-2), then
        normalised in float64.

    Examples
    --------
    >>> demur.Categorical(logits=np.zeros((5, 2, 3)))
    Categorical(logits, shape=(5, 2, 3), float64)
    """

    __slots__ = ("_rounding", "kind", "precision", "values")
    _outcome_axes: ClassVar[int] = 1  # of the user's array

    values: Array
    kind: str
    _rounding: float | str | None  # how far probabilities may be off; None: nobody said
    precision: str  # the type that the numbers came in, which sets the tolerance

    def __init__(self, probs: Any = None, *, logits: Any = None, log_probs: Any = None) -> None:
        self._rounding = None
        self.kind, value = _the_given_one(probs, logits, log_probs)
        if self.kind == "probs" and isinstance(value, Categorical):
            self.kind, self.values, self.precision = value.kind, value.values, value.precision
            self._rounding = value._rounding
            return
        if self.kind == "probs" and _is_torch_categorical(value):
            # Its other parametrisation is derived, with probabilities clamped: take what it was made from.
            self.kind = "probs" if "probs" in vars(value) else "logits"
            value = vars(value)[self.kind]
        self.values = arrays.as_array(value)
        self.precision = arrays.type_name(self.values)
        if not self.precision.startswith(("float", "bfloat", "int", "uint", "bool")):
            raise TypeError(f"{self.kind} must hold real numbers. Got {self.precision}.")

    def __repr__(self) -> str:
        shape = tuple(self.values.shape)
        return f"Categorical({self.kind}, shape={shape}, {self.precision})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array; the last axis is the classes."""
        return tuple(self.values.shape)

    def with_values(self, values: Array) -> Categorical:
        """Return predictions of the same kind and precision with other numbers."""
        other = object.__new__(Categorical)
        other.kind, other.precision, other.values = self.kind, self.precision, values
        other._rounding = self._rounding
        return other

    def on_host(self) -> Categorical:
        """Return the same predictions as a NumPy array, copied only if necessary."""
        values = arrays.to_numpy(self.values)
        return self if values is self.values else self.with_values(values)

    def _to_logits(
        self, ignored: Array | None = None, places: Places | None = None, *, widen: bool = True
    ) -> Array:
        """Return checked logits in float64, or in the widest type that the library or device has.

        Parameters
        ----------
        ignored
            True for predictions (members, inputs) that have no weight and are not checked.
        places
            Where the numbers stand in the user's array, for errors; None: where they are.
        widen
            False: in the type that they have.
        """
        values = arrays.widened(self.values) if widen else self.values
        xp = arrays.namespace(values)
        if ignored is not None:  # since 0 times NaN would be NaN
            nothing = xp.ones_like(values) if self.kind == "probs" else xp.zeros_like(values)
            values = xp.where(ignored[..., None], nothing, values)
        if not arrays.is_traced(values):
            self._check(xp, values, ignored, places)
        if self.kind == "probs":
            zero = values == 0
            log = xp.log(xp.where(zero, xp.ones_like(values), values))
            values = xp.where(zero, xp.full_like(values, -float("inf")), log)
        return values

    @property
    def tolerance(self) -> float:
        """How far the probabilities may sum from 1."""
        own = _SUM_TOLERANCE.get(self.precision, _SUM_TOLERANCE["float64"])
        return max(own, self._rounding * self.shape[-1]) if isinstance(self._rounding, float) else own

    def _check(
        self, xp: Any, values: Array, ignored: Array | None = None, places: Places | None = None
    ) -> None:
        """Raise the error that says what is wrong with the numbers, if anything is."""
        if xp is np and self.kind == "logits" and np.isfinite(values).all():
            return

        def refuse(bad: Array, found: Array, expected: str, advice: str | Callable[[], str]) -> None:
            raise_if_bad(xp, bad, found, expected, advice, places, ignored)

        name = self.kind
        refuse(xp.isnan(values), values, f"{name} must be numbers", DROP_OR_IGNORE)
        if name == "probs":
            expected = "probs must not be negative"
            refuse(values < 0, values, expected, lambda: _advise_on_negative(xp, values))
            sums = xp.sum(values, axis=-1, keepdims=True)
        else:
            infinite = "-inf is an excluded class; +inf has no probability."
            refuse(values == float("inf"), values, f"{name} must be below infinity", infinite)
            top = xp.max(values, axis=-1, keepdims=True)
            nothing = f"All of its classes are -inf. {DROP_OR_IGNORE}"
            refuse(top == -float("inf"), top, f"{name} must allow at least one class", nothing)
            if name == "logits":
                return
            refuse(top > self.tolerance, top, "log_probs must not be above 0", "For logits pass logits=.")
            sums = xp.sum(xp.exp(values), axis=-1, keepdims=True)
        expected = f"{name} must sum to 1 within {self.tolerance:g} ({self.precision})"
        known = sums if ignored is None else xp.where(ignored[..., None], xp.ones_like(sums), sums)
        refuse(
            xp.abs(sums - 1) > self.tolerance, sums, expected,
            lambda: self._advise_on_sums(xp, values, known, places),
        )  # fmt: skip

    def _advise_on_sums(self, xp: Any, values: Array, sums: Array, places: Places | None) -> str:
        """Return what rows that do not sum to 1 may be, and what to do then."""
        if values.shape[-1] == 1:
            return "For one probability of yes per input use demur.Bernoulli, without the axis of classes."
        if self.kind == "log_probs":
            values = xp.exp(values)
        elif places is not None and places.axis is not None:
            other = places.find_other_class_axis(self.tolerance)
            if other is not None:
                where = f"They do along axis {other}: if the classes are there, "
                return f"{where}move them last, or give decompose class_axis={other}."
        if bool(xp.any(values > 1 + self.tolerance)):
            if bool(xp.all(xp.abs(sums - 100) < 2)):
                return "Divide percentages by 100."
            return f"Normalise counts. {_LOGITS_OR_NUMBERS}"
        advice = "For labels that do not exclude each other use demur.MultiLabel."
        close = float(xp.max(xp.abs(sums - 1))) < min(0.005 * values.shape[-1], 0.05)
        if close:
            advice = "If they are rounded, pass rounding=, half of the last decimal, as 0.005 for two."
        if bool(xp.any(sums > 1 + self.tolerance)):
            return f"{advice} Else normalise them, or pass logits=."
        truncated = (
            "Rows that sum to less than 1 may be a truncated list of the likeliest classes: give all "
            "classes, or use demur.sequences.TopLogProbs, which bounds the parts."
        )
        return f"{advice} {truncated}" if close else f"{truncated} {advice}"


def _advise_on_negative(xp: Any, values: Array) -> str:
    """Return what numbers that are no probabilities may be."""
    logs = "" if bool(xp.any(values > 0)) else "For log-probabilities pass log_probs=. "
    return logs + _LOGITS_OR_NUMBERS


def _the_given_one(probs: Any, logits: Any, log_probs: Any) -> tuple[str, Any]:
    """Return the name and value of the one argument that is given; raise unless there is exactly one."""
    if probs is None and log_probs is None and logits is not None:
        return "logits", logits
    every = {"probs": probs, "logits": logits, "log_probs": log_probs}
    given = {name: value for name, value in every.items() if value is not None}
    if len(given) != 1:
        came = " and ".join(given) if given else "none of them"
        raise ValueError(
            f"Expected exactly one of probs, logits and log_probs. Got {came}. "
            "Pass one, for instance logits=z."
        )
    return next(iter(given.items()))


def raise_if_bad(
    xp: Any,
    bad: Array,
    values: Array,
    expected: str,
    advice: str | Callable[[], str],
    places: Places | None = None,
    ignored: Array | None = None,
) -> None:
    """Raise ValueError, with the first place and value, if any number is bad that is not ignored."""
    if ignored is not None:
        bad = bad & ~ignored[(..., *(None,) * (bad.ndim - ignored.ndim))]
    if not bool(xp.any(bad)):
        return
    place = tuple(int(i) for i in np.argwhere(arrays.to_numpy(bad))[0])
    value = float(arrays.to_numpy(values)[place])
    if values.shape[-1] == 1:
        place = place[:-1]
    index = list(place) if places is None else places.find(place)
    where = f" at [{', '.join(map(str, index))}]" if index else ""
    raise ValueError(f"{expected}. Got {value:g}{where}. {advice() if callable(advice) else advice}")


def _is_torch_categorical(value: object) -> bool:
    """Tell whether this is a ``torch.distributions.Categorical``."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.distributions.Categorical)
