"""Distributions over predictions: all members at once, described by a few parameters.

Evidential and prior networks predict one; a posterior over the parameter of a coin is one. Relative to its
mean, the average prediction, such a distribution has the same terms as a set of members has relative to its
reference (see ``demur.core.rules``), in closed form.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.categorical import raise_if_bad


class Expectations(NamedTuple):
    """Expectations relative to the mean ``q``, shape (..., classes); a rule's ``a`` is 0 on average.

    For the log loss ``u = E log p - log q <= 0``, ``au = Cov(p, log p)`` and ``phi = E[p log p] - q log q``:
    the classes' shares of ``-M / q``, ``K`` and ``I``. For Brier ``u = 0``, ``au = 2 Var(p)`` and
    ``phi = Var(p)``.
    """

    log_mean: Array
    u: Array
    au: Array
    phi: Array
    entropy: Array  # (...): expected generalised entropy


class SecondOrder(ABC):
    """A distribution over predictions, for each input of a batch."""

    __slots__ = ()

    _over_classes: ClassVar[bool] = True  # else over predicted numbers, without an axis of classes

    @property
    @abstractmethod
    def _source(self) -> Array:
        """An array of the library, device and type that results are due in."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the average prediction: batch and classes; of predicted numbers the batch alone."""

    @property
    @abstractmethod
    def mean(self) -> Array:
        """The average."""

    @property
    @abstractmethod
    def _stays(self) -> bool:
        """Whether to compute in the parameters' own library: gradients, tracing, accelerators."""

    def _expectations(self, rule: str, stays: bool) -> Expectations:
        """Return the expectations that all measures under a rule are made of."""
        raise AssertionError("points and mixtures are summed instead")

    def _to_result(self, result: Array) -> Array:
        """Return a result in the library, on the device and in the precision of the parameters."""
        result = np.asarray(result) if isinstance(result, np.generic) else result
        return arrays.like(result, self._source, arrays.is_double(self._source))


class Parameters(NamedTuple):
    """Checked parameters of one library, broadcast against each other."""

    source: Array
    values: tuple[Array, ...]

    @property
    def stays(self) -> bool:
        """Whether one of them has gradients, is traced, or lives on an accelerator."""
        return any(arrays.stays(each) for each in self.values)

    def widen(self, stays: bool | None = None) -> tuple[Any, ...]:
        """Return the namespace to compute in, and the parameters in float64 or the widest type there is."""
        stays = self.stays if stays is None else stays
        here = [each if stays else arrays.to_numpy(each) for each in self.values]
        wide = [arrays.widened(each) for each in here]
        return arrays.namespace(wide[0]), *wide


def check_parameters(**given: Any) -> Parameters:
    """Return parameters as arrays of one library and shape; plain numbers take the type of the arrays."""
    found = {name: arrays.as_array(value) for name, value in given.items()}
    for name, value in found.items():
        kind = arrays.type_name(value)
        if not kind.startswith(("float", "bfloat", "int", "uint")):
            raise TypeError(f"{name} must hold real numbers. Got {kind}.")
        if 0 in value.shape:
            raise ValueError(f"{name} must not be empty. Got shape {tuple(value.shape)}.")
    listed = [found[name] for name, value in given.items() if not isinstance(value, (int, float))]
    candidates = listed or list(found.values())
    # An array of another library than NumPy says where to compute; a double among the arrays, how precisely.
    lead = max(candidates, key=lambda each: (arrays.library(each) != "numpy", arrays.is_double(each)))
    if len(found) == 1:
        return Parameters(lead, (lead,))
    moved = (arrays.widened(arrays.matching(value, lead)) for value in found.values())
    alike = [arrays.like(value, lead, arrays.is_double(lead)) for value in moved]
    try:
        together = arrays.namespace(lead).broadcast_arrays(*alike)
    except (ValueError, RuntimeError):
        shapes = " and ".join(f"{name} {tuple(value.shape)}" for name, value in found.items())
        raise ValueError(
            f"Expected parameters of one shape, or of shapes that broadcast. Got {shapes}."
        ) from None
    return Parameters(lead, tuple(together))


def require(good: Array, values: Array, expected: str, advice: str) -> None:
    """Raise unless all numbers are good, with the first that is not; what is only traced is not checked."""
    if not arrays.is_traced(good):
        raise_if_bad(arrays.namespace(values), ~good[..., None], values[..., None], expected, advice)


def as_second_order(value: Any) -> SecondOrder | None:
    """Return a distribution over predictions, also of ``torch.distributions``; None for anything else."""
    if isinstance(value, SecondOrder):
        return value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.distributions.Distribution):
        return None
    from demur.predictions.dirichlet import Beta, Dirichlet
    from demur.predictions.uniform_deltas import Uniform

    if isinstance(value, torch.distributions.Dirichlet):
        return Dirichlet(value.concentration)
    if isinstance(value, torch.distributions.Beta):
        return Beta(value.concentration1, value.concentration0)
    if isinstance(value, torch.distributions.Uniform):
        return Uniform(value.low, value.high)
    return None


def check_closed_form(rule: str, name: str) -> None:
    """Raise unless expectations under this rule are known."""
    if rule not in ("log", "brier"):
        raise ValueError(
            f"rule must be 'log' or 'brier' for a {name}: others have no closed form. Got {rule!r}."
        )
