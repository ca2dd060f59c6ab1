"""Bias and standard error of a measure that is estimated from finitely many members.

Members are draws from a posterior; had others been drawn, the figures would differ. Leaving out one group
of members at a time shows by how much (delete-a-group jackknife, for groups of unequal weight: Busing, Meijer
and van der Leeden, 1999).
"""

from __future__ import annotations

from typing import Any

from demur.measures import Decomposition, Given, Measure, Parts, evaluate, needs_groups, resolve
from demur.rules import Array
from demur.state import State


def estimate(
    state: State, measure: Measure, given: Given, *, unbiased: bool, stderr: bool
) -> Decomposition:
    """Return the decomposition, corrected for bias and with standard errors where asked for."""
    members = state.means()
    parts = evaluate(measure, members, given)
    errors = None
    if unbiased or stderr:
        check_enough(state, measure, unbiased=unbiased, stderr=stderr)
    replicates = []
    if stderr or (unbiased and needs_groups(measure)):
        replicates = list(state.leaving_one_out())
    if stderr:
        left_out = [(w, evaluate(measure, means, given)) for w, means in replicates]
        whole = total_first(parts)
        each = [(w, total_first(p)) for w, p in left_out]
        errors = Decomposition(
            *(standard_error(state, whole[k], [(w, p[k]) for w, p in each]) for k in range(3))
        )
    if unbiased:
        parts = without_bias(state, measure, given, parts, replicates)
    return Decomposition(parts.aleatoric + parts.epistemic, *parts, errors)


def total_first(parts: Parts) -> tuple[Array, Array, Array]:
    """Return total, aleatoric and epistemic part."""
    return parts.aleatoric + parts.epistemic, parts.aleatoric, parts.epistemic


def without_bias(
    state: State, measure: Measure, given: Given, parts: Parts, replicates: list[Any]
) -> Parts:
    """Return the parts without the bias of few members: U-statistic for K, jackknife for the average."""
    sides = measure.sides()
    weight, squared = state.total("weight"), state.total("squared_weight")
    aleatoric, epistemic = parts

    def corrected(which: Measure, part: int) -> Array:
        value = evaluate(which, state.means(), given)[part]
        return jackknifed(
            state, value, [(w, evaluate(which, means, given)[part]) for w, means in replicates]
        )

    if sides[0] == "bma":
        aleatoric = corrected(measure, 0)
    if sides == ("each", "each"):
        epistemic = epistemic / (1 - squared / weight**2)
    elif sides == ("bma", "each"):
        pairwise = evaluate(resolve("pairwise"), state.means(), given).epistemic
        epistemic = pairwise / (1 - squared / weight**2) - corrected(resolve("average"), 1)
    elif "bma" in sides and sides != ("bma", "bma"):
        epistemic = corrected(measure, 1)
    return Parts(aleatoric, epistemic)


def jackknifed(state: State, value: Array, replicates: list[tuple[Array, Array]]) -> Array:
    """Return ``G value - sum_g (1 - w_g / w) value_(-g)`` over groups that have members."""
    xp, total = state.xp, state.total("weight")
    groups = sum(xp.astype(w > 0, total.dtype) for w, _ in replicates)
    pulled = sum(xp.where(w > 0, (1 - w / total) * v, xp.zeros_like(v)) for w, v in replicates)
    return groups * value - pulled


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
