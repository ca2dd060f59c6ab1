"""The average of predicted numbers, which is what to report: its mean, quantiles and intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.predictive import GaussianMixture, Mixture, NumberMixture, in_blocks
from demur.decompose import check_arguments, to_batch_shape
from demur.families import Family
from demur.predictions import Members, Numbers
from demur.predictions.points import arrange_numbers


class Interval(NamedTuple):
    """The ends of an interval for each input."""

    low: Array
    high: Array


def mean(prediction: Any, /, *, weights: Any = None, axis: int = 0) -> Array:
    """Return the mean of the average prediction: the number to report.

    Arguments as for ``decompose``: ``Gaussian`` and other families, ``Points`` or ``Draws``.

    Examples
    --------
    >>> demur.mean(demur.Points([[1.0, 10.0], [2.0, 14.0]]))
    array([ 1.5, 12. ])
    """
    if isinstance(prediction, Numbers):
        mixture, finish = average_of(prediction, weights, axis)
        return finish(mixture.mean())
    members, family = _check_family(prediction, weights, axis)
    parameters = members.logits()
    xp = arrays.namespace(parameters)
    means, _ = family.outcome(xp, parameters)
    shares = _share_out(xp, parameters, members.weights)[..., None]
    found = means[0, ...] + xp.sum(shares * (means - means[:1]), axis=0)
    return to_batch_shape(found if family.joint else found[..., 0], members, 1.0)


def quantiles(prediction: Any, /, q: Any, *, weights: Any = None, axis: int = 0) -> Array:
    """Return quantiles of the average prediction.

    Those of the mixture of ``Gaussian`` members to about 14 digits; of ``Points`` and ``Draws`` the smallest
    number that has at least q of the weight up to it. Few points say little about tails: with ten equal
    members, all below 0.1 are the smallest.

    Parameters
    ----------
    prediction, weights, axis
        As for ``decompose``.
    q
        Between 0 and 1, a number or several.

    Returns
    -------
    array
        Shaped like q, then like the batch.

    Examples
    --------
    >>> members = demur.Gaussian(np.array([[0.0], [4.0]]), variance=1.0)
    >>> demur.quantiles(members, [0.05, 0.5, 0.95]).round(3)
    array([[-1.282],
           [ 2.   ],
           [ 5.282]])
    """
    levels = np.asarray(q, dtype=np.float64)
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"q must be between 0 and 1, as 0.95. Got {levels.tolist()}.")
    mixture, finish = average_of(prediction, weights, axis)
    found = [in_blocks(mixture, lambda part, _, level=level: part.quantile(level)) for level in levels.flat]
    return finish(np.reshape(found, (*levels.shape, -1)), levels.shape)


def interval(prediction: Any, /, level: float = 0.9, *, weights: Any = None, axis: int = 0) -> Interval:
    """Return central intervals of the average prediction: as much probability below as above.

    They hold the outcome as often as they say only if the members are calibrated, which
    ``demur.tasks.regression`` measures. Arguments as for ``quantiles``.

    Examples
    --------
    >>> members = demur.Gaussian(np.array([[0.0, 1.0], [0.0, 5.0]]), variance=1.0)
    >>> low, high = demur.interval(members, 0.9)
    >>> low.round(2), high.round(2)
    (array([-1.64, -0.28]), array([1.64, 6.28]))
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, as 0.9. Got {level!r}.")
    low, high = quantiles(prediction, [(1 - level) / 2, (1 + level) / 2], weights=weights, axis=axis)
    return Interval(low, high)


def average_of(prediction: Any, weights: Any = None, axis: int = 0) -> tuple[Mixture, Callable[..., Array]]:
    """Return the average of members as a distribution of a number, and what gives results their shape."""
    if isinstance(prediction, Numbers):
        if prediction.scale is not None:
            raise ValueError(
                "scale adds up the uncertainties of several outputs, which have no common distribution. "
                f"Got {prediction!r}. Leave it out for a result of each."
            )
        numbers = arrange_numbers(prediction, weights, axis)
        count, inputs, _, draws = numbers.values.shape
        values = np.moveaxis(numbers.values[:, :, 0], -1, 1).reshape(count * draws, inputs)
        shares = np.repeat(numbers.weights / numbers.weights.sum(axis=0) / draws, draws, axis=0)

        def shaped(found: np.ndarray, before: tuple[int, ...] = ()) -> Array:
            return prediction._to_result(found.reshape((*before, *numbers.batch)))

        return NumberMixture(values, shares), shaped
    members, family = _check_family(prediction, weights, axis)
    if members.stays:
        raise ValueError(
            "The average of Gaussians is found on the processor, and no gradient passes. Detach the "
            "predictions and move them there."
        )
    if family.name != "Gaussian":
        raise ValueError(
            f"Expected Gaussian predictions of a number, Points or Draws. Got {family.name} predictions. "
            "Draw from them, and give the numbers as demur.Draws."
        )
    parameters = members.logits()

    def finish(found: np.ndarray, before: tuple[int, ...] = ()) -> Array:
        return to_batch_shape(found.reshape((*before, -1)), members, 1.0, before)

    shares = _share_out(np, parameters, members.weights)
    return GaussianMixture(parameters[..., 0], np.sqrt(parameters[..., 1]), shares), finish


def _share_out(xp: Any, parameters: Array, weights: Array | None) -> Array:
    """Return weights, (members, inputs), that sum to 1."""
    weights = xp.ones_like(parameters[..., 0]) if weights is None else weights
    return weights / xp.sum(weights, axis=0)


def _check_family(prediction: Any, weights: Any, axis: int) -> tuple[Members, Family]:
    """Return checked members that predict numbers."""
    members, _, rule, _ = check_arguments(prediction, None, None, "pairwise", "log", weights, None, axis)
    if not isinstance(rule, Family):
        raise ValueError(
            "Expected predictions of numbers, as demur.Gaussian, demur.Points or demur.Draws. "
            f"Got {members.prediction!r}."
        )
    return members, rule
