"""Predictions of numbers without a density: one number per member, or several draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.answers import Similarities, as_answers, as_similarities, holds_answers
from demur.predictions.categorical import Categorical
from demur.predictions.members import gather
from demur.predictions.parametric import as_real_array, find_members_axis

_LARGEST = 1e150  # whose squares are no problem
Kernel = str | Callable[[Any, Any], Any]


class Numbers:
    """What ``Points`` and ``Draws`` share: an array of numbers, a kernel, and a unit per output.

    Answers that are no numbers stand in the same places; ``_similarities`` says how alike they are.
    """

    __slots__ = ("_similarities", "kernel", "scale", "values")

    values: Array
    kernel: Any
    scale: np.ndarray | None
    _similarities: Similarities | None

    def __init__(self, values: Any, kernel: Any = "energy", scale: Any = None) -> None:
        self.kernel, self._similarities = kernel, None
        if holds_answers(values, kernel):
            self.values = as_answers(type(self).__name__, values)
            self._similarities = as_similarities(kernel)
            if scale is not None:
                raise ValueError(f"scale goes with numbers. Got answers and scale={scale!r}. Leave it out.")
            self.scale = None
            return
        self.values = as_real_array(type(self).__name__, values)
        if kernel != "energy" and not callable(kernel):
            raise ValueError(
                f"kernel must be 'energy' or a function k(x, y) of two arrays that broadcast. Got {kernel!r}."
            )
        self.scale = None if scale is None else _check_scale(scale, tuple(self.values.shape))

    def __repr__(self) -> str:
        unit = "" if self.scale is None else ", scale"
        kind = arrays.type_name(self.values) if self._similarities is None else "answers"
        return f"{type(self).__name__}(shape={self.shape}{unit}, {kind})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.values.shape)

    @property
    def _own_axes(self) -> int:
        """How many axes there are besides the members' and the batch's."""
        return int(isinstance(self, Draws)) + int(self.scale is not None)

    @property
    def _pair_kernel(self) -> Kernel:
        """The kernel of two arrays: of numbers, or of the numbers that answers have got."""
        return self.kernel if self._similarities is None else self._similarities

    def _to_result(self, result: np.ndarray) -> Array:
        """Return a result in the library, on the device and in the precision of the numbers."""
        if self._similarities is not None:
            return np.asarray(result)
        return arrays.like(np.asarray(result), self.values, arrays.is_double(self.values))


class Points(Numbers):
    r"""Numbers that members predict without saying how far they may be off.

    Each member's prediction is a point mass, scored by the energy score, which for numbers is the CRPS. With
    members :math:`x_i` of weights :math:`w_i` the aleatoric part is 0 and

    .. math:: K = \sum_{ij} w_i w_j |x_i - x_j|, \qquad I = M = K / 2

    in the unit of the numbers, from sorted sums: there is no loop over pairs.

    Parameters
    ----------
    values
        Shape (members, ...); an array of NumPy, PyTorch or JAX. One result per number predicted.
    kernel
        ``"energy"``, or a function ``k(x, y)`` of two NumPy arrays that broadcast: symmetric and positive
        definite (or conditionally so), for another kernel score. It is called for all pairs of members:
        time and memory grow with their square.
    scale
        For several outputs per input, shape (members, ..., outputs): the unit of each, one number or
        (outputs,), as the standard deviation of the training targets. Outputs are divided by it, and
        their uncertainties added up: one result per input.

    Examples
    --------
    Three members, two inputs:

    >>> u = demur.decompose(demur.Points([[1.0, 10.0], [1.0, 12.0], [1.0, 17.0]]))
    >>> u.epistemic.round(3)
    array([0.   , 3.111])

    A temperature and a pressure, in units of their own spread:

    >>> both = np.array([[[20.0, 1013.0]], [[22.0, 1003.0]]])     # two members, one input, two outputs
    >>> demur.decompose(demur.Points(both, scale=[4.0, 10.0])).epistemic
    array([0.75])
    """

    __slots__ = ()

    def __init__(self, values: Any, *, kernel: Any = "energy", scale: Any = None) -> None:
        super().__init__(values, kernel, scale)


class Draws(Numbers):
    r"""Forecasts as draws: each member predicts a distribution by numbers, or answers, drawn from it.

    Scored by the energy score (CRPS), or that of another kernel. With :math:`d_{ij}` the mean distance of a
    draw of member i from a different draw of member j,

    .. math:: \mathrm{aleatoric} = \tfrac12 \sum_i w_i d_{ii}, \qquad
              K = \sum_{ij} w_i w_j d_{ij} - \sum_i w_i d_{ii}, \qquad I = M = K / 2 .

    Draws at the same place of two members never meet, so that members who share their random numbers are
    treated like others. The estimates are unbiased, and so K may come out a little below 0 where
    members agree; members with the same draws have exactly 0.

    Parameters
    ----------
    values
        Shape (members, draws, ...), at least 2 draws; an array of NumPy, PyTorch or JAX. Or answers that are
        no numbers, such as texts that language models wrote: nested lists, or an array of objects.
    kernel, scale
        As for ``Points``. A function is called for all pairs of draws. For answers it is called with two of
        them, once for each pair of different ones and in both orders. Or a matrix of similarities for each
        input, shape (..., members * draws, members * draws), with the answers member by member. Similarities
        must be symmetric and positive definite, as cosines of embeddings are.

    Notes
    -----
    For answers, :math:`d` is how unlike two of them are in meaning, ``(k(x, x) + k(y, y)) / 2 - k(x, y)``:
    the aleatoric part is the spread of meaning within a member, K that between members; see Gruber and
    Buettner (2024), "A bias-variance-covariance decomposition of kernel scores for generative models". With
    one member, the total alone says something: the spread of its own answers. ``k(x, y) = 1[x = y]`` is half
    the Brier score of the answers' probabilities.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=(5, 1000, 2))          # five members, 1,000 draws, two inputs
    >>> y[:, :, 1] += 3 * np.arange(5)[:, None]      # on the second the members disagree
    >>> u = demur.decompose(demur.Draws(y))
    >>> u.aleatoric.round(2), u.epistemic.round(2)
    (array([0.57, 0.56]), array([0.  , 3.91]))

    Two members answered three questions three times each, (members, draws, questions). They agree on the
    first, each wavers on the second, and they contradict each other on the third:

    >>> answers = [
    ...     [["Paris", "a cat", "1912"], ["Paris", "a dog", "in 1912"], ["Paris", "a fox", "1912"]],
    ...     [["Paris", "a cat", "1915"], ["paris", "a dog", "1915"], ["Paris", "a fox", "1915"]],
    ... ]
    >>> def share_words(x, y):
    ...     one, two = set(x.lower().split()), set(y.lower().split())
    ...     return len(one & two) / len(one | two)
    >>> u = demur.decompose(demur.Draws(answers, kernel=share_words))
    >>> u.aleatoric.round(2), u.epistemic.round(2)
    (array([0.  , 0.33, 0.08]), array([0.  , 0.  , 0.42]))
    """

    __slots__ = ()

    def __init__(self, values: Any, kernel: Any = "energy", *, scale: Any = None) -> None:
        super().__init__(values, kernel, scale)


@dataclass(frozen=True)
class ArrangedNumbers:
    """Checked numbers in one form, on the processor in float64, in units of their scale."""

    values: np.ndarray  # (members, inputs, outputs, draws); one output where they are not added up
    weights: np.ndarray  # (members, inputs)
    batch: tuple[int, ...]


def arrange_numbers(
    prediction: Numbers, weights: Any, axis: int, similarities: Similarities | None = None
) -> ArrangedNumbers:
    """Move members first, draws last, flatten the batch, and check ranks, weights and numbers.

    Answers are arranged by the numbers that `similarities` give them.
    """
    if prediction._similarities is not None and similarities is None:
        raise ValueError(
            f"Only demur.decompose takes answers, by how alike they are. Got {prediction!r}, which are no "
            "numbers and have no mean, variance or quantiles."
        )
    kind, shape = type(prediction).__name__, prediction.shape
    has_draws, has_outputs = isinstance(prediction, Draws), prediction.scale is not None
    named = "members" + ", draws" * has_draws + ", ..." + ", outputs" * has_outputs
    if len(shape) <= prediction._own_axes or 0 in shape:
        raise ValueError(f"{kind} must have shape ({named}), none of them empty. Got {shape}.")
    axis = find_members_axis(kind, axis, shape, len(shape) - has_outputs)
    for given in (prediction.values, weights):
        _refuse_gradients(given)
    values = np.moveaxis(arrays.to_numpy(prediction.values), axis, 0)
    values = values.astype(np.float64, copy=False) if similarities is None else similarities.encode(values)
    if has_draws and values.shape[1] < 2:
        raise ValueError(
            f"Draws must have at least 2 draws of each member, shape ({named}). Got {shape}. "
            f"For one {'number' if similarities is None else 'answer'} per member use demur.Points."
        )
    count, batch = len(values), values.shape[1 + has_draws : values.ndim - has_outputs]
    shares = _shares_of(weights, (count, *batch))
    used = (shares > 0).reshape((count, *(1,) * has_draws, *batch, *(1,) * has_outputs))
    _check_finite(kind, values, used, axis)
    if not used.all():  # the numbers of another member have no effect
        values = np.where(used, values, np.take_along_axis(values, used.argmax(axis=0)[None], axis=0))
    if prediction.scale is not None:
        values = values / prediction.scale
    values = np.moveaxis(values, 1, -1) if has_draws else values[..., None]
    outputs = values.shape[-2] if has_outputs else 1
    values = values.reshape((count, math.prod(batch), outputs, values.shape[-1]))
    return ArrangedNumbers(values, shares, batch)


def _shares_of(weights: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return checked weights, (members, inputs), as for predictions of classes; 1 where none are given."""
    if weights is None:
        return np.ones((shape[0], math.prod(shape[1:])))
    stand_in = Categorical(logits=np.broadcast_to(0.0, (*shape, 2)))
    return np.asarray(gather(stand_in, arrays.to_numpy(arrays.as_array(weights)), 0).weights)


def _check_scale(scale: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the unit of each output, positive."""
    found = arrays.to_numpy(as_real_array("scale", scale)).astype(np.float64)
    outputs = shape[-1:]
    if found.shape not in ((), outputs):
        raise ValueError(
            f"scale must be one number, or one for each output on the last axis, {outputs}. "
            f"Got shape {found.shape}."
        )
    if not (np.isfinite(found) & (found > 0)).all():
        raise ValueError(f"scale must be finite and above 0. Got {found.tolist()}.")
    return found


def _check_finite(kind: str, values: np.ndarray, used: np.ndarray, axis: int) -> None:
    """Raise if a number with weight is NaN, infinite or nearly so, with its index in the caller's array."""
    bad = ~(np.abs(values) <= _LARGEST) & used
    if bad.any():
        place = np.argwhere(np.moveaxis(bad, 0, axis))[0]
        value = np.moveaxis(values, 0, axis)[tuple(place)]
        raise ValueError(
            f"{kind} must be numbers of at most {_LARGEST:g} in size. Got {value:g} at {place.tolist()}. "
            "Leave this input out, or give this member weight 0 there."
        )


def _refuse_gradients(array: Any) -> None:
    """Raise where a gradient would be lost: the numbers are sorted by NumPy."""
    if array is None:
        return
    array = arrays.as_array(array)
    if arrays.is_traced(array) or getattr(array, "requires_grad", False):
        raise ValueError(
            "Points and Draws are scored on the processor, and no gradient passes. Detach them first."
        )
