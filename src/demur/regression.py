"""For predictions of numbers: mutual information with its error, bounds of it, and variances.

Mutual information also of several labels together, where sums over members do not give it either.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from demur.core import arrays
from demur.core.kernel_score import variance_of_numbers
from demur.core.rules import Array
from demur.decompose import LOGITS_AT_ONCE, check_arguments, decompose, to_batch_shape
from demur.families import Family
from demur.families.family import variance_over
from demur.measures import Decomposition, check_base
from demur.predictions import Members, MultiLabel, Numbers, choose_members_axis

_ENUMERATED = 12  # labels up to which all outcomes of all of them are listed
_SAMPLES = 4096


class Information(NamedTuple):
    """Mutual information of each input, and an estimate of the error of its integral or sampling."""

    value: Array
    error: Array


class InformationBounds(NamedTuple):
    """Lower and upper bound of the mutual information of each input."""

    lower: Array
    upper: Array


def information(
    prediction: Any,
    /,
    *,
    weights: Any = None,
    base: float | None = None,
    axis: int = 0,
    member_axis: int | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> Information:
    """Return the mutual information I of Gaussian members, or of labels together, with its error.

    For a ``Gaussian``, ``decompose(gaussian, measure="average")`` returns the same number as its epistemic
    part; its total and M = K - I have the same absolute error. For a ``MultiLabel`` that returns an upper
    bound, and this function what it bounds: the I of all labels together.

    Parameters
    ----------
    prediction
        A ``Gaussian`` or a ``MultiLabel``.
    weights, base, axis, member_axis
        As for ``decompose``.
    samples
        For labels: how many outcomes of all labels are drawn for each input. None: up to 12 labels, none,
        since all outcomes are listed; else 4096.
    seed
        Of the draws.

    Returns
    -------
    Information
        ``value`` in nats, and ``error``. For a Gaussian, an estimate of the absolute error: the rule of Gauss
        and Kronrod's own, which is pessimistic, and what rounding may add; below 1e-8 of the value where
        that is above 1e-12. For labels, the standard error of the draws, and 0 where all outcomes are
        listed. The estimate from draws is unbiased.

    Examples
    --------
    >>> members = demur.Gaussian(np.array([[0.0], [2.0]]), variance=1.0)
    >>> found = demur.information(members)
    >>> found.value.round(6), bool(found.error[0] < 1e-9)
    (array([0.336831]), True)

    Two members that disagree about each of three labels: at most log 2 can be learned about which is right.

    >>> labels = demur.MultiLabel(np.array([[[0.9, 0.9, 0.9]], [[0.1, 0.1, 0.1]]]))
    >>> demur.information(labels).value.round(3)
    array([0.598])
    """
    axis = choose_members_axis(axis, member_axis)
    if isinstance(prediction, MultiLabel):
        return _joint_information(prediction, weights, base, axis, samples, seed)
    if samples is not None:
        raise ValueError(f"samples goes with demur.MultiLabel. Got {prediction!r}. Leave samples out.")
    members, family, scale = _numbers_only("information", prediction, weights, base, axis)
    if family.name != "Gaussian":
        raise ValueError(
            f"information takes Gaussian predictions of a number, or labels. Got {family.name} ones. "
            "demur.information_bounds takes all families."
        )
    from demur.core.gaussian_estimates import integrate_information

    found = integrate_information(members.part(*bounds) for bounds in members.parts(LOGITS_AT_ONCE))
    return Information(*(to_batch_shape(part, members, scale) for part in found))


def _joint_information(
    labels: MultiLabel, weights: Any, base: float | None, axis: int, samples: int | None, seed: int
) -> Information:
    """Return the mutual information of all labels together: from all outcomes if they are few, or drawn."""
    from demur.core.joint_information import enumerate_outcomes, sample_information

    if samples is not None and (not isinstance(samples, Integral) or samples < 2):
        raise ValueError(f"samples must be None or an integer of at least 2. Got {samples!r}.")
    members, _, rule, _ = check_arguments(labels, None, None, "average", "log", weights, None, axis)
    scale = check_base(base, rule)
    logits = arrays.to_numpy(members.logits()).astype(np.float64)
    shares = _shares_of(np, logits, None if members.weights is None else arrays.to_numpy(members.weights))
    pairs = logits.reshape((*logits.shape[:2], -1, 2))
    pairs = pairs - np.logaddexp(pairs[..., :1], pairs[..., 1:])
    value, error = np.zeros(members.inputs), np.zeros(members.inputs)
    count = pairs.shape[2]
    if samples is None and count <= _ENUMERATED:
        step = max(1, (LOGITS_AT_ONCE >> count) // members.count)
        for begin in range(0, members.inputs, step):
            own = slice(begin, begin + step)
            joint = enumerate_outcomes(pairs[:, own])
            value[own] = decompose(logits=joint, measure="average", weights=shares[:, own]).epistemic
    else:
        random = np.random.default_rng(seed)
        for index in range(members.inputs):
            used = shares[:, index] > 0
            given = pairs[used, index], shares[used, index], int(samples or _SAMPLES), random
            value[index], error[index] = sample_information(*given)
    return Information(*(to_batch_shape(part, members, scale) for part in (value, error)))


def information_bounds(
    prediction: Any,
    /,
    *,
    weights: Any = None,
    base: float | None = None,
    axis: int = 0,
    member_axis: int | None = None,
) -> InformationBounds:
    r"""Return bounds of the mutual information I, in closed form from all pairs of members.

    .. math:: -\sum_i w_i \log \sum_j w_j e^{-B(p_i, p_j)} \le I \le
              -\sum_i w_i \log \sum_j w_j e^{-\mathrm{KL}(p_i \,\|\, p_j)}

    with :math:`B` the Bhattacharyya distance (Kolchinsky and Tracey, 2017). For Gaussians of independent
    coordinates also :math:`I \le \frac12 \log \mathrm{Var}[y] - \frac12 E \log \sigma_i^2`, since no
    distribution of that variance has more entropy than a Gaussian. The entropy of the average lies between
    the mean entropy plus these. Arguments as for ``decompose``; any family.

    Returns
    -------
    InformationBounds
        ``lower`` and ``upper``, in nats, certain up to rounding; both 0 for identical members, both the
        entropy of the weights for members that are far apart.

    Examples
    --------
    >>> members = demur.Poisson(np.array([[4.0], [9.0]]))
    >>> lower, upper = demur.information_bounds(members)
    >>> lower.round(3), upper.round(3)
    (array([0.219]), array([0.566]))
    """
    axis = choose_members_axis(axis, member_axis)
    members, family, scale = _numbers_only("information_bounds", prediction, weights, base, axis)
    from demur.core.bounds import bounds_of

    parameters = members.logits()
    xp = arrays.namespace(parameters)
    found = bounds_of(xp, parameters, _shares_of(xp, parameters, members.weights), family)
    return InformationBounds(*(to_batch_shape(part, members, scale) for part in found))


def variance(
    prediction: Any, /, *, weights: Any = None, axis: int = 0, member_axis: int | None = None
) -> Decomposition:
    """Split the variance of what is predicted by the law of total variance.

    Total = variance of the outcome under the average prediction, aleatoric = mean of the members'
    variances, epistemic = variance of their means (Depeweg et al., 2018). Arguments as for ``decompose``;
    any family, ``Points`` (aleatoric 0) and ``Draws`` (unbiased, by pairs of different draws). In the
    outcome's unit squared, and blind to members that disagree about the spread alone.

    Returns
    -------
    Decomposition
        Each part is shaped like the batch; of vectors, one for each coordinate.

    Examples
    --------
    >>> u = demur.variance(demur.Gaussian(np.array([[0.0], [2.0]]), variance=np.array([[1.0], [4.0]])))
    >>> u.total, u.aleatoric, u.epistemic
    (array([3.5]), array([2.5]), array([1.]))
    """
    axis = choose_members_axis(axis, member_axis)
    if isinstance(prediction, Numbers):
        return variance_of_numbers(prediction, weights, axis)
    members, family, _ = _numbers_only("variance", prediction, weights, None, axis)
    parameters = members.logits()
    xp = arrays.namespace(parameters)
    mean, spread = family.outcome(xp, parameters)
    shares = _shares_of(xp, parameters, members.weights)[..., None]
    aleatoric, epistemic = xp.sum(shares * spread, axis=0), variance_over(xp, mean, shares)
    parts = [aleatoric + epistemic, aleatoric, epistemic]
    if not family.joint:
        parts = [part[..., 0] for part in parts]
    return Decomposition(*(to_batch_shape(part, members, 1.0) for part in parts))


def _shares_of(xp: Any, parameters: Array, weights: Array | None) -> Array:
    """Return weights, (members, inputs), that sum to 1."""
    weights = xp.ones_like(parameters[..., 0]) if weights is None else weights
    return weights / xp.sum(weights, axis=0)


def _numbers_only(
    name: str, prediction: Any, weights: Any, base: float | None, axis: int
) -> tuple[Members, Family, float]:
    """Return checked members, their family, and the factor from nats to the wanted unit."""
    members, _, rule, _ = check_arguments(prediction, None, None, "pairwise", "log", weights, None, axis)
    if not isinstance(rule, Family):
        raise ValueError(
            f"{name} takes predictions of numbers, as demur.Gaussian. Got {members.prediction!r}. "
            "For classes decompose and label_variance are exact."
        )
    return members, rule, check_base(base, rule)
