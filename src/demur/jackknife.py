"""Bias and standard error of a measure that is estimated from finitely many members.

Members are draws from a posterior; had others been drawn, the figures would differ. Leaving out one group
of members at a time shows by how much (delete-a-group jackknife, for groups of unequal weight: Busing, Meijer
and van der Leeden, 1999).
"""

from __future__ import annotations

from collections.abc import Callable

from demur.measures import Decomposition, Given, Measure, Parts, evaluate, needs_groups, resolve
from demur.rules import Array
from demur.state import Means, State


Value = Callable[[Measure, Means], Array]  # of inputs, or of classes and inputs


def estimate(
    state: State, measure: Measure, given: Given, *, unbiased: bool, stderr: bool
) -> Decomposition:
    """Return the decomposition, corrected for bias and with standard errors where asked for."""
    if unbiased or stderr:
        check_enough(state, measure, unbiased=unbiased, stderr=stderr)
    parts = evaluate(measure, state.means(), given)
    errors = None
    if stderr:
        left_out = [(w, evaluate(measure, means, given)) for w, means in state.leaving_one_out()]
        figures = zip(totalled(parts), *(totalled(part) for _, part in left_out), strict=True)
        weights = [w for w, _ in left_out]
        errors = Decomposition(
            *(standard_error(state, value, list(zip(weights, rest, strict=True))) for value, *rest in figures)
        )
    if unbiased:
        aleatoric = parts.aleatoric
        if measure.sides()[0] == "bma":
            aleatoric = jackknifed(state, measure, lambda m, means: evaluate(m, means, given).aleatoric)
        parts = Parts(aleatoric, unbiased_epistemic(state, measure, lambda m, means: evaluate(m, means, given).epistemic))
    return Decomposition(parts.aleatoric + parts.epistemic, *parts, errors)


def totalled(parts: Parts) -> tuple[Array, Array, Array]:
    """Return total, aleatoric and epistemic part."""
    return parts.aleatoric + parts.epistemic, parts.aleatoric, parts.epistemic


def unbiased_epistemic(state: State, measure: Measure, value: Value) -> Array:
    """Return the epistemic part without the bias of few members.

    The U-statistic where each member meets each, the jackknife where the average enters, their difference for M.
    """
    sides = measure.sides()
    if sides == ("bma", "each"):
        pairwise = unbiased_epistemic(state, resolve("pairwise"), value)
        return pairwise - unbiased_epistemic(state, resolve("average"), value)
    if sides == ("each", "each"):
        squared_share = state.total("squared_weight") / state.total("weight") ** 2
        return value(measure, state.means()) / (1 - squared_share)
    if needs_groups(measure) and sides != ("bma", "bma"):
        return jackknifed(state, measure, value)
    return value(measure, state.means())


def jackknifed(state: State, measure: Measure, value: Value) -> Array:
    """Return ``G value - sum_g (1 - w_g / w) value_(-g)`` over groups that have members."""
    xp, total = state.xp, state.total("weight")
    corrected = xp.zeros_like(total)
    whole = value(measure, state.means())
    for weight, means in state.leaving_one_out():
        term = whole - (1 - weight / total) * value(measure, means)
        corrected = corrected + xp.where(weight > 0, term, xp.zeros_like(term))
    return corrected


def standard_error(state: State, value: Array, replicates: list[tuple[Array, Array]]) -> Array:
    """Return the root of the mean of ``(pseudo_g - mean)**2 / (h_g - 1)``; NaN where not finite."""
    xp, total = state.xp, state.total("weight")
    used = [w > 0 for w, _ in replicates]
    groups = sum(xp.astype(u, total.dtype) for u in used)
    finite = xp.isfinite(value)
    value = xp.where(finite, value, xp.zeros_like(value))
    pseudo, share = [], []
    for (w, replicate), u in zip(replicates, used, strict=True):
        h = total / xp.where(u, w, total)  # 1 where the group is empty: it gets no say below
        replicate = xp.where(finite & xp.isfinite(replicate), replicate, value)
        pseudo.append(value + (h - 1) * (value - replicate))
        share.append(xp.where(u, 1 / xp.where(u, h - 1, xp.ones_like(h)), xp.zeros_like(h)))
    mean = sum(xp.where(u, p, xp.zeros_like(p)) for p, u in zip(pseudo, used, strict=True)) / groups
    variance = sum(s * (p - mean) ** 2 for p, s in zip(pseudo, share, strict=True)) / groups
    return xp.where(finite, xp.sqrt(variance), xp.full_like(variance, float("nan")))


def check_enough(state: State, measure: Measure, *, unbiased: bool, stderr: bool) -> None:
    """Raise unless there are members, and groups of them, to leave out."""
    xp = state.xp
    asked = "unbiased=True" if unbiased else "stderr=True"
    fewest = int(xp.min(state.count))
    if fewest < 2:
        raise ValueError(
            f"{asked} needs at least 2 members of positive weight for each input. Got {fewest}."
        )
    if (stderr or needs_groups(measure)) and state.groups < 2:
        what = "stderr=True" if stderr else f"unbiased=True for {measure}"
        raise ValueError(
            f"{what} needs members in at least 2 groups. Got none. Use Moments(groups=16) from the start."
        )
