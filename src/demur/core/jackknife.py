"""Bias and standard error of a measure that is estimated from finitely many members.

Members are draws from a posterior; had others been drawn, the figures would differ. Leaving out one group
of members at a time shows by how much (delete-a-group jackknife, for groups of unequal weight: Busing,
Meijer and van der Leeden, 1999).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from demur import kernels
from demur.core.arrays import Array, is_traced
from demur.core.state import Means, State
from demur.measures import (
    Decomposition,
    Given,
    Measure,
    Parts,
    evaluate,
    from_summary,
    is_summary,
    needs_groups,
    resolve,
)  # fmt: skip

_Summary = tuple[Array, Array, Array]  # mean entropy, K and I
_Value = Callable[[Measure, Means], Array]  # of inputs, or of classes and inputs


class Estimates:
    """Figures of a state's members, all of them and without each group in turn; once for all measures.

    Parameters
    ----------
    state
        The sums.
    factors
        Of the epistemic parts of measures without a given model: (inputs,), and (groups, inputs) where a
        group is left out. None: all are 1.
    """

    def __init__(self, state: State, factors: tuple[Array, Array] | None = None) -> None:
        self.state, self.factors = state, factors
        self._summary: _Summary | None = None
        self._summaries: _Summary | None = None

    @functools.cached_property
    def whole(self) -> Means:
        """Averages over all members."""
        return self.state.means()

    def parts(self, measure: Measure, given: Given) -> Parts:
        """Return the parts of a measure over all members."""
        if not self._is_summary(measure):
            return evaluate(measure, self.whole, given)
        if self._summary is None:
            short = kernels.figures(self.state, whole=True)
            self._summary = self._apply_factors(0, *(_summary_of(self.whole) if short is None else short[0]))
        return from_summary(measure, *self._summary)

    def replicates(self, measure: Measure, given: Given) -> Parts:
        """Return the parts of a measure without each group in turn, (groups, inputs)."""
        if not self._is_summary(measure):
            return Parts(*self._stack_groups(lambda means: evaluate(measure, means, given)))
        if self._summaries is None:
            short = kernels.figures(self.state, whole=False)
            self._summaries = self._apply_factors(
                1, *(self._stack_groups(_summary_of) if short is None else short.swapaxes(0, 1))
            )
        return from_summary(measure, *self._summaries)

    def _is_summary(self, measure: Measure) -> bool:
        """Tell whether mean entropy, K and I are enough: where M, as K - I, is not what rounding leaves."""
        return is_summary(measure) and self.state.rule.mixes and not self.state.rule.votes

    def _apply_factors(self, which: int, entropy: Array, k: Array, i: Array) -> _Summary:
        """Return figures with their factors: the whole's, or those of each group that is left out."""
        if self.factors is None:
            return entropy, k, i
        return entropy, k * self.factors[which], i * self.factors[which]

    def _stack_groups(self, figures: Callable[[Means], Sequence[Array]]) -> list[Array]:
        """Return figures of averages without each group in turn, each of them (groups, inputs)."""
        found = [figures(means) for means in self.state.leaving_one_out()]
        return [self.state.xp.stack(figure) for figure in zip(*found, strict=True)]

    def decompose(self, measure: Measure, given: Given, *, unbiased: bool, stderr: bool) -> Decomposition:
        """Return the decomposition, corrected for bias and with standard errors where asked for."""
        state = self.state
        if unbiased or stderr:
            check_enough(state, measure, unbiased=unbiased, stderr=stderr)
        if unbiased and state.weight_log is not None:
            return Estimates(without_cap(state), self.factors).decompose(
                measure, given, unbiased=unbiased, stderr=stderr
            )
        parts = self.parts(measure, given)
        replicates = None
        if stderr or (unbiased and needs_groups(measure)):
            replicates = self.replicates(measure, given)
        errors = None
        if stderr and replicates is not None:
            errors = self.errors(measure, parts, replicates, unbiased)
        if unbiased:
            parts = self.without_bias(measure, given, parts, replicates)
        return Decomposition(parts.aleatoric + parts.epistemic, *parts, errors)

    def errors(self, measure: Measure, parts: Parts, replicates: Parts, unbiased: bool) -> Decomposition:
        """Return the standard errors of the three parts."""
        state = self.state
        if unbiased and measure.sides() == ("each", "each"):
            # The U-statistic without a group is a U-statistic of fewer members.
            parts = Parts(parts.aleatoric, parts.epistemic / state.share_of_pairs())
            share = state.share_of_pairs_of_others()
            # One member left: none of its pairs count.
            share = state.xp.where(share > 0, share, state.share_of_pairs())
            replicates = Parts(replicates.aleatoric, replicates.epistemic / share)
        figures = zip(_add_total(parts), _add_total(replicates), strict=True)
        return Decomposition(*(_standard_error(state, value, rest) for value, rest in figures))

    def without_bias(self, measure: Measure, given: Given, parts: Parts, replicates: Parts | None) -> Parts:
        """Return the parts without the bias of few members."""
        state, sides = self.state, measure.sides()
        aleatoric, epistemic = parts
        if sides == ("each", "each"):
            return Parts(aleatoric, epistemic / state.share_of_pairs())
        if replicates is None:
            return parts
        if sides[0] == "bma":
            aleatoric = _correct_bias(state, aleatoric, replicates.aleatoric)
        if sides == ("bma", "each"):
            average = resolve("average")
            mutual = _correct_bias(
                state, self.parts(average, given).epistemic, self.replicates(average, given).epistemic
            )
            pairwise = self.parts(resolve("pairwise"), given).epistemic
            epistemic = pairwise / state.share_of_pairs() - mutual
        elif needs_groups(measure) and sides != ("bma", "bma"):
            epistemic = _correct_bias(state, epistemic, replicates.epistemic)
        return Parts(aleatoric, epistemic)


def unbiased_terms(state: State, measure: Measure, value: _Value) -> Array:
    """Return the epistemic part without the bias of few members, for any function of averages.

    The U-statistic where each member meets each, the jackknife where the average enters, and their
    difference for M.
    """
    sides = measure.sides()
    if sides == ("bma", "each"):
        pairwise = unbiased_terms(state, resolve("pairwise"), value)
        return pairwise - unbiased_terms(state, resolve("average"), value)
    whole = value(measure, state.means())
    if sides == ("each", "each"):
        return whole / state.share_of_pairs()
    if needs_groups(measure) and sides != ("bma", "bma"):
        rest = state.xp.stack([value(measure, means) for means in state.leaving_one_out()])
        return _correct_bias(state, whole, rest)
    return whole


def _summary_of(means: Means) -> _Summary:
    """Return mean entropy, K and I (or what takes their place under another rule)."""
    none = Given()
    pairwise = evaluate(resolve("pairwise"), means, none)
    average = evaluate(resolve("average"), means, none)
    mutual = average.epistemic
    if means.most is not None:
        mutual = means.xp.minimum(mutual, means.most)
    return pairwise.aleatoric, pairwise.epistemic, mutual


def without_cap(state: State) -> State:
    """Return a state that does not know the entropy of its weights.

    That caps the I of these members; the I of infinitely many, which is estimated without bias, has no cap.
    """
    return replace(state, weight_log=None)


def _add_total(parts: Parts) -> tuple[Array, Array, Array]:
    """Return total, aleatoric and epistemic part."""
    return parts.aleatoric + parts.epistemic, parts.aleatoric, parts.epistemic


def _correct_bias(state: State, value: Array, replicates: Array) -> Array:
    """Return ``G value - sum_g (1 - w_g / w) value_(-g)`` over groups that have members.

    ``replicates`` are (groups, inputs), or (groups, classes, inputs). An infinite value stays, and one that
    is finite learns nothing from infinite ones.
    """
    xp = state.xp
    finite = xp.isfinite(value)
    known = xp.where(finite, value, xp.zeros_like(value))
    replicates = xp.where(finite & xp.isfinite(replicates), replicates, known)
    shape = (state.groups, *(1,) * (replicates.ndim - 2), -1)
    used, rest = (xp.reshape(each, shape) for each in (state.weight > 0, state.weight_of_others()))
    terms = known - rest / state.total("weight") * replicates
    return xp.where(finite, xp.sum(xp.where(used, terms, xp.zeros_like(terms)), axis=0), value)


def _standard_error(state: State, value: Array, replicates: Array) -> Array:
    """Return the standard error of a figure of a state's members."""
    return standard_error(state.xp, state.weight, state.weight_of_others(), value, replicates)


def standard_error(xp: Any, weight: Array, others: Array, value: Array, replicates: Array) -> Array:
    """Return the root of the mean of ``(pseudo_g - centre)**2 / (h_g - 1)``, with ``h_g = sum w / w_g``.

    ``pseudo_g`` is the value and ``h_g - 1`` times what it changes without the group; the centre is their
    mean by the weights of the groups: the estimate of the jackknife. NaN where the value is not finite.
    ``weight`` and ``others`` are the weights of each group and of all but it, (groups, inputs).
    """
    total = xp.sum(weight, axis=0)
    finite = xp.isfinite(value)
    value = xp.where(finite, value, xp.zeros_like(value))
    used = weight > 0
    less_one = xp.where(used, others / xp.where(used, weight, total), 1.0)
    change = less_one * (value - xp.where(finite & xp.isfinite(replicates), replicates, value))
    centre = xp.sum(weight / total * change, axis=0)
    groups = xp.sum(xp.astype(used, total.dtype), axis=0)
    terms = xp.where(used, (change - centre) ** 2 / less_one, xp.zeros_like(change))
    variance = xp.sum(terms, axis=0) / groups
    return xp.where(finite, xp.sqrt(variance), xp.full_like(variance, float("nan")))


def check_enough(state: State, measure: Measure, *, unbiased: bool, stderr: bool) -> None:
    """Raise unless there are members, and groups of them, to leave out."""
    asked = "unbiased=True" if unbiased else "stderr=True"
    if not is_traced(state.count):
        fewest = int(state.xp.min(state.count))
        if fewest < 2:
            raise ValueError(
                f"{asked} needs at least 2 members of positive weight for each input. Got {fewest}."
            )
    if not stderr and not needs_groups(measure):
        return
    what = "stderr=True" if stderr else f"unbiased=True for {measure}"
    if state.groups < 2:
        raise ValueError(
            f"{what} needs members in at least 2 groups. Got none. Use Moments(groups=16) from the start."
        )
    used = state.xp.sum(state.xp.astype(state.weight > 0, state.xp.int32), axis=0)
    if not is_traced(used) and int(state.xp.min(used)) < 2:
        raise ValueError(
            f"{what} needs members in at least 2 groups. Got all of them in one. "
            "Give each of the Moments that are merged several members: each deals them to groups in turn."
        )
