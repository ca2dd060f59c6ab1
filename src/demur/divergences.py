"""Divergences between single members, and how figures converge with their number: for few inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from demur.core import arrays
from demur.core.arrays import ArrayLike
from demur.core.rounding import hold_warnings, warn_of
from demur.decompose import decompose
from demur.measures import Measure, MeasureName
from demur.predictions import Bernoulli, Categorical, Prediction, as_prediction, choose_members_axis, gather


def divergences(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    base: float | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> np.ndarray:
    """Return the Kullback-Leibler divergence of each member from each other, input by input.

    The mean over both axes of members is K, the epistemic part of the pairwise measure. Time and memory grow
    with the square of the number of members, so use it to inspect a few inputs; ``decompose`` needs no such
    matrix.

    Parameters
    ----------
    probs, logits, log_probs, base, axis, member_axis, class_axis
        As for ``decompose``; predictions of classes only.

    Returns
    -------
    array
        Shape (members, members, ...): ``[i, j]`` is KL(member i || member j) in nats, exactly 0 where i = j,
        infinite where j excludes a class that i allows.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    >>> demur.divergences(p).round(3)
    array([[0.   , 0.368, 1.758],
           [0.511, 0.   , 0.511],
           [1.758, 0.368, 0.   ]])
    """
    members = _classes_of(probs, logits, log_probs, choose_members_axis(axis, member_axis), class_axis)
    rows = []
    with hold_warnings() as held:
        for row in members.values:
            left = members.with_values(np.broadcast_to(row, members.values.shape))
            pairs = Measure(predictor=left, truth=members)
            rows.append(decompose(left.with_values(left.values[None]), measure=pairs, base=base).epistemic)
    found = np.stack(rows)
    if held.any:
        _warn_once(np.isposinf(found).any(axis=(0, 1)))
    return found


class Convergence(NamedTuple):
    """Epistemic uncertainty of the first members, by their number.

    Parameters
    ----------
    members : (sizes,) array
        How many members.
    value, stderr : (sizes, ...) array
        Epistemic part of each input, and its standard error over members; NaN where the value is infinite.
    """

    members: np.ndarray
    value: np.ndarray
    stderr: np.ndarray


def convergence(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    members: Sequence[int] | None = None,
    measure: MeasureName | str = "pairwise",
    unbiased: bool = True,
    base: float | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Convergence:
    """Return the epistemic part as it would be with fewer members, each with its standard error.

    Parameters
    ----------
    probs, logits, log_probs, measure, unbiased, base, axis, member_axis, class_axis
        As for ``decompose``; predictions of classes only.
    members : list of int, optional
        Numbers of members, from 3 to all; by default about ten, evenly spaced on a log scale.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = demur.convergence(logits=rng.normal(size=(50, 2, 3)), members=[5, 50])
    >>> found.value.shape, bool((found.stderr[1] < found.stderr[0]).all())
    ((2, 2), True)
    """
    given = _classes_of(probs, logits, log_probs, choose_members_axis(axis, member_axis), class_axis)
    number = len(given.values)
    if number < 3:
        raise ValueError(f"convergence needs at least 3 members for a standard error. Got {number}.")
    if members is None:
        sizes = np.unique(np.geomspace(3, number, 10).round().astype(int))
    else:
        sizes = np.asarray(members)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not np.all((sizes >= 3) & (sizes <= number)):
            raise ValueError(f"members must be whole numbers from 3 to {number}. Got {members!r}.")
    options: dict[str, Any] = {"measure": measure, "unbiased": unbiased, "stderr": True, "base": base}
    with hold_warnings() as held:
        found = [decompose(given.with_values(given.values[:size]), **options) for size in sizes]
    errors = [part.stderr.epistemic for part in found if part.stderr is not None]
    value = np.stack([part.epistemic for part in found])
    if held.any:
        _warn_once(np.isposinf(value).any(axis=0))
    return Convergence(sizes, value, np.stack(errors))


def _warn_once(infinite: Any) -> None:
    """Warn of the inputs that are infinitely uncertain, by a part of the members or all."""
    advice = "Pass logits=, or ignore this if the zeros are exact."
    warn_of(int(infinite.sum()), infinite.size, advice=advice, stacklevel=4)


def _classes_of(probs: Any, logits: Any, log_probs: Any, axis: int, class_axis: int) -> Categorical:
    """Return checked predictions of classes as NumPy arrays, members first and classes last."""
    given = as_prediction(probs, logits, log_probs)
    if not isinstance(given, Categorical):
        raise ValueError(f"Expected predictions of classes, (members, ..., classes). Got {given!r}.")
    if isinstance(given, Bernoulli):
        axis = given._members_axis(axis)
    members = gather(given, None, axis, class_axis)
    own = members.prediction.on_host()
    own._check(np, arrays.widened(own.values), None, members.places)
    return given.with_values(own.values.reshape((members.count, *members.batch, members.classes)))
