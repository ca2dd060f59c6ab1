"""Probabilities that were rounded: by how much, and the warning where they make a measure infinite."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array

SATURATED = "saturated"
"""The rounding of predictions of which only the probabilities 0 and 1 are taken as rounded, to their type."""

_EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_LEAST, _MOST = 1e-300, 0.5  # half-widths whose logarithms and reciprocals are finite, and that say something

_ADVICE = (
    "Pass logits=; or rounding='dtype', or a half-width (5e-7 for six decimals), for the least value that "
    "fits; or take measure='average', which is always finite. rounding=0 says that the numbers are exact."
)


class RoundingWarning(UserWarning):
    """Probabilities of 0 make K or M infinite, and rounding may be where they came from.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     u = demur.decompose(np.array([[1.0, 0.0], [0.9999999, 0.0000001]]))
    >>> u.epistemic, caught[0].category.__name__
    (array(inf), 'RoundingWarning')
    """


def check_rounding(rounding: Any, precision: str) -> float:
    """Return the half-width that ``rounding`` stands for, of numbers that came in a type.

    Examples
    --------
    >>> check_rounding(5e-7, "float64"), check_rounding("dtype", "float16"), check_rounding("dtype", "int64")
    (5e-07, 0.00048828125, 0.0)
    """
    if isinstance(rounding, str) and rounding == "dtype":
        return _EPSILONS.get(precision, 0.0) / 2
    if isinstance(rounding, bool) or not isinstance(rounding, int | float | np.floating):
        raise ValueError(
            f"rounding must be a half-width, as 5e-7 for six decimals, or 'dtype'. Got {rounding!r}."
        )
    if not (rounding == 0 or _LEAST <= float(rounding) <= _MOST):
        raise ValueError(
            f"rounding must be 0 (the numbers are exact) or from {_LEAST:g} to {_MOST:g}. Got {rounding!r}."
        )
    return float(rounding)


class _Held:
    """Whether a warning was held back."""

    any = False


_holding: ContextVar[_Held | None] = ContextVar("demur_rounding_warnings", default=None)


@contextlib.contextmanager
def hold_warnings() -> Iterator[_Held]:
    """Hold back every ``RoundingWarning``, so that a run of many calls can say it once, at the end."""
    held = _Held()
    token = _holding.set(held)
    try:
        yield held
    finally:
        _holding.reset(token)


def warn_if_infinite(epistemic: Array, *, axes: int = 0, advice: str = _ADVICE, stacklevel: int = 3) -> None:
    """Warn where probabilities made an epistemic part infinite; silent while JAX traces.

    Parameters
    ----------
    epistemic
        One number per input, or terms of it on further axes behind those of the inputs.
    axes
        How many such axes there are.
    """
    if arrays.is_traced(epistemic):
        return
    xp = arrays.namespace(epistemic)
    infinite = epistemic == float("inf")
    if not bool(xp.any(infinite)):
        return
    for _ in range(axes):
        infinite = xp.any(infinite, axis=-1)
    numbers = arrays.to_numpy(infinite)
    warn_of(int(numbers.sum()), numbers.size, advice=advice, stacklevel=stacklevel + 1)


def warn_of(infinite: int, inputs: int, *, advice: str = _ADVICE, stacklevel: int = 2) -> None:
    """Warn that so many inputs are infinitely uncertain."""
    held = _holding.get()
    if held is not None:
        held.any = True
        return
    warnings.warn(f"{describe(infinite, inputs)} {advice}", RoundingWarning, stacklevel=stacklevel)


def describe(infinite: int, inputs: int) -> str:
    """Say how many inputs are infinitely uncertain, and that rounding may be why.

    Examples
    --------
    >>> describe(1, 250).partition(",")[0]
    'The epistemic part is infinite for 1 of 250 inputs'
    """
    return (
        f"The epistemic part is infinite for {infinite} of {inputs} input{'s' if inputs != 1 else ''}, where "
        "a member gives probability 0 to what another allows. Rounding may be the cause: a saturated sigmoid "
        "or softmax, float16 storage or printed decimals."
    )
