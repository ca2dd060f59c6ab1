"""Bias and standard error of a measure that is estimated from finitely many members.

Members are draws from a posterior; had others been drawn, the figures would differ. Leaving out one group
of members at a time shows by how much (delete-a-group jackknife, for groups of unequal weight: Busing,
Meijer and van der Leeden, 1999).
"""

from __future__ import annotations

from collections.abc import Callable

from demur import kernels
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
from demur.rules import Array
from demur.state import Means, State

Value = Callable[[Measure, Means], Array]  # of inputs, or of classes and inputs


class Estimates:
    """Figures of a state's members, all of them and without each group in turn; once for all measures."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.whole = state.means()
        self._summaries: list[tuple[Array, Array, Array]] | None = None

    def parts(self, measure: Measure, given: Given) -> Parts:
        """Return the parts of a measure over all members."""
        return evaluate(measure, self.whole, given)

    def replicates(self, measure: Measure, given: Given) -> list[Parts]:
        """Return the parts of a measure without each group in turn."""
        if not is_summary(measure) or not self.state.rule.mixes:
            return [evaluate(measure, means, given) for means in self.state.leaving_one_out()]
        if self._summaries is None:
            short = kernels.leave_out(self.state)
            self._summaries = (
                [summary_of(means) for means in self.state.leaving_one_out()]
                if short is None
                else [(entropy, k, i) for entropy, k, i in short]
            )
        return [from_summary(measure, *summary) for summary in self._summaries]

    def decompose(self, measure: Measure, given: Given, *, unbiased: bool, stderr: bool) -> Decomposition:
        """Return the decomposition, corrected for bias and with standard errors where asked for."""
        state = self.state
        if unbiased or stderr:
            check_enough(state, measure, unbiased=unbiased, stderr=stderr)
        parts = self.parts(measure, given)
        replicates = []
        if stderr or (unbiased and needs_groups(measure)):
            replicates = self.replicates(measure, given)
        errors = None
        if stderr:
            errors = self.errors(measure, parts, replicates, unbiased)
        if unbiased:
            parts = self.without_bias(measure, given, parts, replicates)
        return Decomposition(parts.aleatoric + parts.epistemic, *parts, errors)

    def errors(
        self, measure: Measure, parts: Parts, replicates: list[Parts], unbiased: bool
    ) -> Decomposition:
        """Return the standard errors of the three parts."""
        state = self.state
        if unbiased and measure.sides() == ("each", "each"):
            # The U-statistic without a group is a U-statistic of fewer members.
            parts = Parts(parts.aleatoric, parts.epistemic / meeting_others(state))
            replicates = [
                Parts(r.aleatoric, r.epistemic / meeting_others(state, g)) for g, r in enumerate(replicates)
            ]
        figures = zip(totalled(parts), *(totalled(r) for r in replicates), strict=True)
        return Decomposition(*(standard_error(state, value, rest) for value, *rest in figures))

    def without_bias(self, measure: Measure, given: Given, parts: Parts, replicates: list[Parts]) -> Parts:
        """Return the parts without the bias of few members."""
        state, sides = self.state, measure.sides()
        aleatoric, epistemic = parts
        if sides[0] == "bma":
            aleatoric = jackknifed(state, aleatoric, [r.aleatoric for r in replicates])
        if sides == ("bma", "each"):
            average = resolve("average")
            mutual = jackknifed(
                state,
                self.parts(average, given).epistemic,
                [r.epistemic for r in self.replicates(average, given)],
            )
            pairwise = self.parts(resolve("pairwise"), given).epistemic
            epistemic = pairwise / meeting_others(state) - mutual
        elif sides == ("each", "each"):
            epistemic = epistemic / meeting_others(state)
        elif needs_groups(measure) and sides != ("bma", "bma"):
            epistemic = jackknifed(state, epistemic, [r.epistemic for r in replicates])
        return Parts(aleatoric, epistemic)


def unbiased_terms(state: State, measure: Measure, value: Value) -> Array:
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
        return whole / meeting_others(state)
    if needs_groups(measure) and sides != ("bma", "bma"):
        return jackknifed(state, whole, [value(measure, means) for means in state.leaving_one_out()])
    return whole


def summary_of(means: Means) -> tuple[Array, Array, Array]:
    """Return mean entropy, K and I (or what takes their place under another rule)."""
    none = Given()
    pairwise = evaluate(resolve("pairwise"), means, none)
    average = evaluate(resolve("average"), means, none)
    return pairwise.aleatoric, pairwise.epistemic, average.epistemic


def meeting_others(state: State, without: int | None = None) -> Array:
    """Return the share of pairs that are of two different members, ``1 - sum w**2 / (sum w)**2``."""
    xp, weight, squared = state.xp, state.total("weight"), state.total("squared_weight")
    share = 1 - squared / weight**2
    if without is None:
        return share
    rest = weight - state.weight[without]
    of_rest = 1 - (squared - state.squared_weight[without]) / rest**2
    return xp.where(of_rest > 1e-9, of_rest, share)  # one member left: none of its pairs count


def totalled(parts: Parts) -> tuple[Array, Array, Array]:
    """Return total, aleatoric and epistemic part."""
    return parts.aleatoric + parts.epistemic, parts.aleatoric, parts.epistemic


def jackknifed(state: State, value: Array, replicates: list[Array]) -> Array:
    """Return ``G value - sum_g (1 - w_g / w) value_(-g)`` over groups that have members."""
    xp, total = state.xp, state.total("weight")
    corrected = xp.zeros_like(value)
    for weight, replicate in zip(state.weight, replicates, strict=True):
        term = value - (1 - weight / total) * replicate
        corrected = corrected + xp.where(weight > 0, term, xp.zeros_like(term))
    return corrected


def standard_error(state: State, value: Array, replicates: list[Array]) -> Array:
    """Return the root of the mean of ``(pseudo_g - mean)**2 / (h_g - 1)``; NaN where not finite."""
    xp, total = state.xp, state.total("weight")
    finite = xp.isfinite(value)
    value = xp.where(finite, value, xp.zeros_like(value))
    pseudo, share, groups = [], [], xp.zeros_like(total)
    for weight, replicate in zip(state.weight, replicates, strict=True):
        used = weight > 0
        h = total / xp.where(used, weight, total / 2)
        replicate = xp.where(finite & xp.isfinite(replicate), replicate, value)
        pseudo.append(xp.where(used, value + (h - 1) * (value - replicate), xp.zeros_like(value)))
        share.append(xp.where(used, 1 / (h - 1), xp.zeros_like(h)))
        groups = groups + xp.astype(used, total.dtype)
    mean = sum(pseudo) / groups
    variance = sum(s * (p - mean) ** 2 for p, s in zip(pseudo, share, strict=True)) / groups
    return xp.where(finite, xp.sqrt(variance), xp.full_like(variance, float("nan")))


def check_enough(state: State, measure: Measure, *, unbiased: bool, stderr: bool) -> None:
    """Raise unless there are members, and groups of them, to leave out."""
    asked = "unbiased=True" if unbiased else "stderr=True"
    if not type(state.count).__name__.endswith("Tracer"):
        fewest = int(state.xp.min(state.count))
        if fewest < 2:
            raise ValueError(
                f"{asked} needs at least 2 members of positive weight for each input. Got {fewest}."
            )
    if (stderr or needs_groups(measure)) and state.groups < 2:
        what = "stderr=True" if stderr else f"unbiased=True for {measure}"
        raise ValueError(
            f"{what} needs members in at least 2 groups. Got none. Use Moments(groups=16) from the start."
        )
