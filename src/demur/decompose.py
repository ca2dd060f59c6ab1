"""From predictions of members to the uncertainty of each input."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from demur import kernels
from demur.core import arrays
from demur.core.arrays import ArrayLike
from demur.core.given import Side, given_sides, part_of, refer_sides, with_gradients
from demur.core.jackknife import Estimates, check_enough, unbiased_terms, without_cap
from demur.core.kernel_score import decompose_numbers, refuse_class_arguments
from demur.core.parts_as_text import Reading
from demur.core.rounded_members import apply_rounding, is_given_rounded, least_class_terms, may_be_rounded
from demur.core.rounding import warn_if_infinite
from demur.core.rules import Array, Rule, RuleName, resolve_rule
from demur.core.second_order_measures import (
    attribute_distribution,
    decompose_distribution,
    refuse_axes,
    refuse_member_arguments,
)
from demur.core.state import Means, State
from demur.measures import (
    Decomposition,
    Given,
    Measure,
    MeasureName,
    cap_terms,
    check_base,
    check_separable,
    divergence_terms,
    from_summary,
    is_summary,
    name_unit,
    needs_groups,
    resolve,
    sides_of,
)  # fmt: skip
from demur.predictions import (
    Categorical,
    Members,
    Numbers,
    Prediction,
    as_prediction,
    as_second_order,
    choose_members_axis,
    gather,
    rule_for,
)

SUMS_AT_ONCE = 1 << 22  # numbers of sums over members held at a time
LOGITS_AT_ONCE = 1 << 16  # logits worked on at a time by plain array functions, which keep them in the cache


def decompose(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    measure: MeasureName | str | Measure = "pairwise",
    rule: RuleName | str = "log",
    weights: ArrayLike | None = None,
    unbiased: bool = False,
    stderr: bool = False,
    groups: int | None = None,
    base: float | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
    rounding: float | str | None = None,
) -> Decomposition:
    r"""Split the uncertainty of each prediction into an aleatoric and an epistemic part.

    For members :math:`p_i` with weights :math:`w_i` the pairwise measure is

    .. math:: \mathrm{total} = \sum_{ij} w_i w_j \, \mathrm{CE}(p_i, p_j)
              = \sum_i w_i H(p_i) + \sum_{ij} w_i w_j \, \mathrm{KL}(p_i \,\|\, p_j)

    in nats, computed without a loop over pairs. Schweighofer et al. (2023), Eq. 4.

    Parameters
    ----------
    probs, logits, log_probs
        Exactly one of them: predictions of members, shape (members, ..., classes). Arrays of NumPy, PyTorch
        or JAX, a list of arrays with one per member, or tables of pandas and polars. (members, classes) is
        one input; for one model's (inputs, classes) give ``[array]``. In place of ``probs`` also a
        ``Categorical``, ``Bernoulli``, ``MultiLabel``, ``Gaussian``, ``MultivariateGaussian``, ``Poisson``,
        ``Exponential`` or ``Gamma``, or such an object of ``torch.distributions``. The average of numbers
        that are predicted is integrated for ``Gaussian``, and an error for the other families. Or a
        distribution over predictions, which has no members to list: ``Dirichlet``, ``Beta``, ``Uniform``,
        ``Deltas``, ``Mixture``, or the first three of ``torch.distributions``; then only measure, rule and
        base apply. Or numbers without a variance, ``Points`` or ``Draws``, scored by their kernel: then rule
        and base do not apply.
    measure
        ``"pairwise"`` (epistemic part K), ``"average"`` (the usual one: entropy of the average, mutual
        information I), ``"reverse"`` (M), or a ``Measure``. Also by the letter: ``"K"``, ``"I"``, ``"M"``;
        ``"epkl"`` is K, ``"mutual_information"``, ``"mi"`` and ``"bald"`` are I.
    rule
        ``"log"``, ``"brier"``, ``"spherical"``, ``"zero_one"``, or one that ``register_rule`` added.
    weights
        Shape (members,), or (members, ...) where each input has its own; None: all the same.
    unbiased
        Correct the bias of few members: pairwise by the U-statistic, average by the jackknife.
    stderr
        Also return standard errors over members, by the jackknife over members or groups.
    groups
        For ``stderr`` and ``unbiased``: leave out groups (member k in group k mod groups), not members.
    base
        None for nats, 2 for bits; only with ``rule="log"``.
    axis, member_axis
        The members' axis, under either name.
    class_axis
        The axis of the classes: 2 for images as PyTorch has them, (members, inputs, classes, height, width).
        Labels and coordinates of other predictions are always last.
    rounding
        How far each probability may be off, since it was rounded: a half-width, as 5e-7 for six decimals,
        or ``"dtype"`` for half the epsilon of the type that the numbers came in. The epistemic part is then
        the least that fits: a lower bound, and finite. 0 says that the numbers are exact; None takes them
        as exact, with a ``RoundingWarning`` where that makes K or M infinite. Each measure has its own
        least value, so that K is at least I + M; the aleatoric part is that of the numbers as they are.

    Returns
    -------
    Decomposition
        Each part is shaped like the batch: the predictions without members and classes. Where that leaves
        a doubt, as for a single input, it prints how the axes were read. Identical members have an
        epistemic part of exactly 0. A member that excludes a class (probability 0) that another allows makes
        K and M infinite. Entropies of predicted numbers are differential ones, which may be negative.

    Examples
    --------
    >>> p = np.array([[[0.9, 0.1]], [[0.1, 0.9]]])
    >>> demur.decompose(p).epistemic
    array([0.87888983])
    >>> demur.decompose(p, measure="average").epistemic
    array([0.36806421])
    """
    if isinstance(probs, Numbers):
        refuse_class_arguments(probs, logits, log_probs, rule, base, class_axis, rounding)
        axis = choose_members_axis(axis, member_axis)
        return decompose_numbers(probs, measure, weights, unbiased, stderr, groups, axis)
    distribution = None if probs is None or isinstance(probs, np.ndarray) else as_second_order(probs)
    if distribution is not None:
        refuse_member_arguments(
            distribution, logits, log_probs, weights, unbiased, stderr, groups, axis, rounding
        )
        refuse_axes(distribution, class_axis, member_axis)
        return decompose_distribution(distribution, measure, rule, base)
    members, chosen, loss, sides = check_arguments(
        probs, logits, log_probs, measure, rule, weights, groups,
        choose_members_axis(axis, member_axis), class_axis,
    )  # fmt: skip
    scale = check_base(base, loss)
    width = apply_rounding(rounding, members, loss, chosen, unbiased=unbiased, stderr=stderr)
    dealt = _group_count(members, chosen, groups, unbiased=unbiased, stderr=stderr)
    whole = loss.integrates and needs_groups(chosen)

    def one(part: Members, own: list[Side]) -> Decomposition:
        state = kernels.state_of(part, loss, dealt)
        given = refer_sides(own, loss, state.reference)
        estimates = _estimates_with_average(state, part, own) if whole else Estimates(state)
        return estimates.decompose(chosen, given, unbiased=unbiased, stderr=stderr)

    if unbiased or stderr or not is_summary(chosen) or not kernels.summarises(members, loss):
        parts_of_inputs = split_inputs(members, loss, dealt, sides)
        result = join_results(kernels.in_threads(one, *zip(*parts_of_inputs, strict=True)))
        result = replace(finish_result(result, members, scale), _reading=_read_axes(members, loss, base))
        return _settle_rounding(result, members, chosen, sides, width, unbiased, scale)
    summary, left = kernels.summarise(members, loss)
    aleatoric, epistemic = from_summary(chosen, *summary)
    three = aleatoric + epistemic, aleatoric, epistemic
    parts = np.array(three) if not members.stays else arrays.namespace(summary).stack(three)
    if left.size:
        rest = members.only(left)
        found = join_results(
            kernels.in_threads(one, *zip(*split_inputs(rest, loss, dealt, sides), strict=True))
        )
        parts[:, left] = found.total, found.aleatoric, found.epistemic
    parts = to_batch_shape(parts, members, scale, (3,))
    result = Decomposition(
        parts[0, ...], parts[1, ...], parts[2, ...], _reading=_read_axes(members, loss, base)
    )  # fmt: skip
    return _settle_rounding(result, members, chosen, sides, width, unbiased, scale)


def _settle_rounding(
    result: Decomposition, members: Members, measure: Measure, sides: list[Side], width: float | str | None,
    unbiased: bool, scale: float,
) -> Decomposition:  # fmt: skip
    """Return the result of numbers as they are, or the least that fits; say where rounding may be felt."""
    if width is None and (may_be_rounded(members) or is_given_rounded(measure, sides)):
        warn_if_infinite(result.epistemic, stacklevel=4)
    if not width:
        return result
    terms = least_class_terms(members, measure, width, unbiased)
    xp = arrays.namespace(terms)
    least = to_batch_shape(xp.sum(terms, axis=-1), members, scale)
    xp = arrays.namespace(least)
    # Rows that are not quite normalised may fit nothing; the numbers as they are bound the least, too.
    epistemic = xp.where(least < result.epistemic, least, result.epistemic)
    reading = result._reading
    if reading is not None and not arrays.is_traced(epistemic):
        reading = reading._replace(least=bool(xp.any(epistemic < result.epistemic)))
    return replace(result, total=result.aleatoric + epistemic, epistemic=epistemic, _reading=reading)


def _read_axes(members: Members, rule: Rule, base: float | None) -> Reading:
    """Return how the predictions were read, for people who look at the result."""
    unit, places = name_unit("log" if rule.nats else rule.name, base), members.places
    if places is None or places.axis is None:
        return Reading(unit)
    if type(members.prediction) is Categorical and places.outcome_axes:
        return Reading(
            unit, members.count, members.batch, members.classes, places.axis, places.class_axis
        )  # fmt: skip
    return Reading(unit, members.count, members.batch, axis=places.axis)


def _estimates_with_average(state: State, members: Members, sides: list[Side]) -> Estimates:
    """Return estimates for members whose average does not follow from their sums."""
    from demur.core.gaussian_estimates import GaussianEstimates

    return GaussianEstimates(state, members, sides)


def attribute(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    measure: MeasureName | str | Measure = "pairwise",
    rule: RuleName | str = "log",
    weights: ArrayLike | None = None,
    unbiased: bool = False,
    groups: int | None = None,
    base: float | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
    rounding: float | str | None = None,
) -> Array:
    r"""Say which classes the members disagree about: the epistemic part, class by class.

    For the log loss :math:`K_y = \mathrm{Cov}(p_y, \log p_y)`,
    :math:`I_y = E[p_y \log p_y] - \bar p_y \log \bar p_y` and :math:`M_y = K_y - I_y`; for Brier
    :math:`K_y = 2 \mathrm{Var}(p_y)`. Arguments as for ``decompose``.

    Returns
    -------
    array
        Shape (..., classes), wherever the classes were, or (..., labels) for a ``MultiLabel``; sums over them
        to the epistemic part.

    Examples
    --------
    >>> p = np.array([[[0.6, 0.3, 0.1]], [[0.3, 0.6, 0.1]]])
    >>> demur.attribute(p).round(3)
    array([[0.052, 0.052, 0.   ]])
    """
    distribution = None if probs is None or isinstance(probs, np.ndarray) else as_second_order(probs)
    if distribution is not None:
        refuse_member_arguments(
            distribution, logits, log_probs, weights, unbiased, False, groups, axis, rounding
        )
        refuse_axes(distribution, class_axis, member_axis)
        return attribute_distribution(distribution, measure, rule, base)
    members, chosen, loss, sides = check_arguments(
        probs, logits, log_probs, measure, rule, weights, groups,
        choose_members_axis(axis, member_axis), class_axis,
    )  # fmt: skip
    check_separable(loss)
    scale = check_base(base, loss)
    width = apply_rounding(rounding, members, loss, chosen, unbiased=unbiased, stderr=False)

    dealt = _group_count(members, chosen, groups, unbiased=unbiased, stderr=False)

    def one(part: Members, own: list[Side]) -> Array:
        state = kernels.state_of(part, loss, dealt)
        given: Given = refer_sides(own, loss, state.reference)

        def by_class(which: Measure, means: Means) -> Array:
            apart, together = divergence_terms(*sides_of(which, means, given))
            return state.xp.moveaxis(cap_terms(which, means, apart + together), -1, 0)

        if unbiased:
            check_enough(state, chosen, unbiased=True, stderr=False)
            terms = unbiased_terms(without_cap(state), chosen, by_class)
        else:
            terms = by_class(chosen, state.means())
        return loss.by_outcome(state.xp, state.xp.moveaxis(terms, 0, -1))

    found = kernels.in_threads(one, *zip(*split_inputs(members, loss, dealt, sides), strict=True))
    whole = found[0] if len(found) == 1 else np.concatenate(found)
    if width:
        xp = arrays.namespace(whole)
        terms = loss.by_outcome(xp, least_class_terms(members, chosen, width, unbiased))
        whole = xp.where((xp.sum(terms, axis=-1) < xp.sum(whole, axis=-1))[..., None], terms, whole)
    elif width is None and (may_be_rounded(members) or is_given_rounded(chosen, sides)):
        warn_if_infinite(whole, axes=1)
    return to_batch_shape(whole, members, scale)


def check_arguments(
    probs: Any, logits: Any, log_probs: Any, measure: Any, rule: Any, weights: Any, groups: Any, axis: int,
    class_axis: int = -1,
) -> tuple[Members, Measure, Rule, list[Side]]:  # fmt: skip
    """Check the arguments that all functions here share."""
    prediction = as_prediction(probs, logits, log_probs)
    if type(prediction) is not Categorical:
        axis = prediction._members_axis(axis)  # pyright: ignore[reportAttributeAccessIssue]
    members = gather(prediction, weights, axis, class_axis)
    chosen, loss = resolve(measure), rule_for(prediction, resolve_rule(rule))
    if groups is not None and (not isinstance(groups, Integral) or groups < 2):
        raise ValueError(f"groups must be None or an integer of at least 2. Got {groups!r}.")
    if is_summary(chosen):
        return members, chosen, loss, [None, None]
    sides = given_sides(chosen, loss, members.batch, members.classes, members.places)
    target = with_gradients(sides)
    return members if target is None or members.stays else members.beside(target), chosen, loss, sides


def _group_count(
    members: Members, measure: Measure, groups: int | None, *, unbiased: bool, stderr: bool
) -> int:
    """Return how many groups of members to keep apart: 1 unless groups are to be left out in turn."""
    if stderr or (unbiased and needs_groups(measure)):
        return min(groups or members.count, members.count)
    return 1


def split_inputs(members: Members, rule: Rule, groups: int, sides: list[Side]) -> list[Any]:
    """Return members and given sides for parts of the inputs whose sums fit in little memory."""
    if members.stays:
        return [(members, sides)]
    size = LOGITS_AT_ONCE
    if kernels.usable(members, rule):
        size = max(kernels.SMALLEST, SUMS_AT_ONCE // groups * members.count)
    bounds = list(members.parts(size))
    if len(bounds) == 1:
        return [(members, sides)]
    return [(members.part(*b), [part_of(side, *b) for side in sides]) for b in bounds]


def join_results(results: list[Decomposition]) -> Decomposition:
    """Join the results of parts of the inputs."""
    if len(results) == 1:
        return results[0]
    errors = [r.stderr for r in results if r.stderr is not None]

    def whole(name: str) -> Array:
        return np.concatenate([getattr(r, name) for r in results])

    return Decomposition(
        whole("total"), whole("aleatoric"), whole("epistemic"), join_results(errors) if errors else None
    )


def finish_result(result: Decomposition, members: Members, scale: float) -> Decomposition:
    """Return a result in the requested unit and in the shape of the batch."""
    return result.map(lambda part: to_batch_shape(part, members, scale))


def to_batch_shape(part: Array, members: Members, scale: float, before: tuple[int, ...] = ()) -> Array:
    """Return an array in the wanted unit, in the library, device and type of the predictions.

    Its axis of inputs, which may have axes of that shape before it and one of classes after it, gets the
    batch's shape.
    """
    source = members.prediction.values
    unit = part if scale == 1.0 else part * scale
    whole = unit.reshape((*before, *members.batch, *part.shape[len(before) + 1 :]))
    return arrays.like(whole, source, arrays.is_double(source))
