"""Measures of numbers without a density, under the score of a kernel.

The kernel score ``l_j(y) = k(y, y) / 2 - E k(x, y) + E k(x, x') / 2``, with x and x' drawn from member j, is
proper and linear in the prediction. Its entropy of the average is the mean entropy plus K / 2, so I = M =
K / 2 exactly. In every cell of the table the epistemic part is the divergence of the two sides' averages
plus K / 2 of each side that stands for its members one by one.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from demur.core.jackknife import standard_error
from demur.core.kernel_distances import KernelMembers, inputs_at_once, members_under
from demur.core.parts_as_text import Reading
from demur.families.family import variance_over
from demur.measures import Decomposition, Measure, Parts, resolve
from demur.predictions.answers import FunctionSimilarities
from demur.predictions.points import ArrangedNumbers, Draws, Kernel, Numbers, Points, arrange_numbers


def decompose_numbers(
    prediction: Numbers,
    measure: str | Measure,
    weights: Any,
    unbiased: bool,
    stderr: bool,
    groups: int | None,
    axis: int,
) -> Decomposition:
    """Return the decomposition of ``Points`` or ``Draws``; see ``demur.decompose``."""
    chosen = resolve(measure)
    if groups is not None and (not isinstance(groups, Integral) or groups < 2):
        raise ValueError(f"groups must be None or an integer of at least 2. Got {groups!r}.")
    members = arrange_numbers(prediction, weights, axis, prediction._similarities)
    kernel = prediction._pair_kernel
    given = [
        None if isinstance(side, str) else _arrange_given(name, side, prediction, members.batch)
        for name, side in (("predictor", chosen.predictor), ("truth", chosen.truth))
    ]
    if unbiased or stderr:
        _check_enough(members.weights, stderr=stderr)
    sets = [members, *(side for side in given if side is not None)]
    size = min(inputs_at_once(kernel, len(s.values), s.values[0, 0].size) for s in sets)
    inputs = members.values.shape[1]
    edges = [*range(0, inputs, size), inputs]
    found = [
        _Block(kernel, chosen, members, given, slice(*ends)).decompose(unbiased, stderr, groups)
        for ends in itertools.pairwise(edges)
    ]

    def whole(parts: list[np.ndarray]) -> Any:
        return prediction._to_result(np.concatenate(parts).reshape(members.batch))

    def join(results: list[Decomposition]) -> Decomposition:
        total, aleatoric, epistemic = (
            whole([getattr(each, name) for each in results]) for name in ("total", "aleatoric", "epistemic")
        )
        errors = [each.stderr for each in results if each.stderr is not None]
        return Decomposition(total, aleatoric, epistemic, join(errors) if errors else None)

    return replace(join(found), _reading=Reading(_name_unit(prediction)))


def _name_unit(prediction: Numbers) -> str:
    """Return the unit of the parts."""
    if not isinstance(prediction.kernel, str):
        return "the unit of the kernel"
    return "the unit of the numbers" if prediction.scale is None else "units of the scale"


def variance_of_numbers(prediction: Numbers, weights: Any, axis: int) -> Decomposition:
    """Return the split of the variance of ``Points`` or ``Draws``; see ``demur.variance``.

    Means over draws are over different ones, as under a kernel: this is that of ``k(x, y) = x y``.
    """
    members = arrange_numbers(prediction, weights, axis)
    values = members.values - members.values[:1, :, :, :1]  # far from 0, digits are lost in means and squares
    draws = values.shape[-1]
    shares = (members.weights / members.weights.sum(axis=0))[..., None]
    epistemic = variance_over(np, values.mean(axis=-1), shares)
    aleatoric = np.zeros_like(epistemic)
    if draws > 1:
        at_same_place = variance_over(np, values, shares[..., None]).mean(axis=-1)
        epistemic = (draws * epistemic - at_same_place) / (draws - 1)
        aleatoric = np.sum(shares * values.var(axis=-1, ddof=1), axis=0)
    parts = [part.sum(axis=-1).reshape(members.batch) for part in (aleatoric, epistemic)]
    return Decomposition(*map(prediction._to_result, (parts[0] + parts[1], *parts)))


class _Block:
    """Some of the inputs: sums over their members and over given sides, each output apart."""

    def __init__(
        self,
        kernel: Kernel,
        measure: Measure,
        members: ArrangedNumbers,
        given: list[ArrangedNumbers | None],
        inputs: slice,
    ) -> None:
        self.sides = measure.sides()
        self.outputs = members.values.shape[2]
        self.weights = members.weights[:, inputs]
        self.members = self._place(kernel, members, inputs)
        self.given = [None if side is None else self._place(kernel, side, inputs) for side in given]

    def _place(self, kernel: Kernel, numbers: ArrangedNumbers, inputs: slice) -> KernelMembers:
        values = numbers.values[:, inputs]
        count, some, outputs, draws = values.shape
        return members_under(kernel, np.moveaxis(values.reshape(count, some * outputs, draws), 0, 1))

    def decompose(self, unbiased: bool, stderr: bool, groups: int | None) -> Decomposition:
        """Return the decomposition of these inputs."""
        parts = self._parts(self.weights, unbiased)
        errors = self._errors(parts, unbiased, groups) if stderr else None
        return Decomposition(parts.aleatoric + parts.epistemic, *parts, errors)

    def _parts(self, weights: np.ndarray, unbiased: bool) -> Parts:
        """Return the parts of the measure for some weights, (members, inputs)."""
        own = np.repeat(weights.T, self.outputs, axis=0)
        k = self._add_outputs(self.members.pairwise(own))
        corrected = k / _share_of_pairs(weights) if unbiased else k
        first, second = (
            (self.members, own) if side is None else (side, np.ones(side.values.shape[:2]))
            for side in self.given
        )
        aleatoric = self._add_outputs(np.sum(first[1] * first[0].entropies, axis=1) / first[1].sum(axis=1))
        if self.sides[0] == "bma":
            aleatoric = aleatoric + corrected / 2
        if "given" not in self.sides:
            return Parts(aleatoric, self.sides.count("each") * corrected / 2)
        epistemic = self._add_outputs(first[0].distance(first[1], *second))  # pyright: ignore[reportArgumentType]
        for name, (side, weights_there) in zip(self.sides, (first, second), strict=True):
            if name == "given":
                epistemic = epistemic + self._add_outputs(side.pairwise(weights_there)) / 2
            elif name == "each":
                epistemic = epistemic + k / 2
            else:  # pairs of a member with itself, of which the average of few has too many
                epistemic = epistemic - (corrected - k) / 2
        return Parts(aleatoric, epistemic)

    def _errors(self, parts: Parts, unbiased: bool, groups: int | None) -> Decomposition:
        """Return standard errors by leaving out each group of members in turn."""
        used = self.weights > 0
        number = min(groups or len(used), len(used))
        group = (np.cumsum(used, axis=0) - 1) % number
        left = [np.where(used & (group != g), self.weights, 0.0) for g in range(number)]
        found = [self._parts(w, unbiased) for w in left]
        rest = np.stack([w.sum(axis=0) for w in left])
        dealt = np.stack([np.where(group == g, self.weights, 0.0).sum(axis=0) for g in range(number)])
        aleatoric, epistemic = (np.stack(part) for part in zip(*found, strict=True))
        figures = (
            (parts.aleatoric + parts.epistemic, aleatoric + epistemic),
            (parts.aleatoric, aleatoric),
            (parts.epistemic, epistemic),
        )
        return Decomposition(*(standard_error(np, dealt, rest, value, others) for value, others in figures))

    def _add_outputs(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, self.outputs).sum(axis=1)


def _share_of_pairs(weights: np.ndarray) -> np.ndarray:
    """Return ``1 - sum w**2 / (sum w)**2``, the weight of pairs of different members; 1 where there are none.

    Added up pair by pair, so that nothing cancels where one member has nearly all the weight.
    """
    pairs = 2 * np.sum(weights[1:] * np.cumsum(weights[:-1], axis=0), axis=0) / weights.sum(axis=0) ** 2
    return np.where(pairs > 0, pairs, 1.0)


def _arrange_given(name: str, value: Any, like: Numbers, batch: tuple[int, ...]) -> ArrangedNumbers:
    """Return a given side: numbers of one model, or of a set of members with one more axis in front."""
    if like._similarities is not None:
        return _arrange_given_answers(name, value, like, batch)
    if not isinstance(value, Numbers):
        try:
            value = Points(value, kernel=like.kernel)
        except TypeError:
            raise TypeError(
                f"{name} must be numbers beside {like!r}: an array, demur.Points or demur.Draws. "
                f"Got {type(value).__name__}."
            ) from None
    if value.kernel != like.kernel:
        raise ValueError(f"{name} must have the members' kernel, {like.kernel!r}. Got {value.kernel!r}.")
    if value.scale is not None and not np.array_equal(value.scale, np.asarray(like.scale)):
        raise ValueError(f"{name} must have no scale, or that of the members. Got {value.scale.tolist()}.")
    kind = Draws if isinstance(value, Draws) else Points
    tail = () if like.scale is None else like.shape[-1:]
    own = len(batch) + len(tail) + (kind is Draws)
    array = value.values
    if array.ndim == own:
        array = array[None]
    if array.ndim != own + 1 or tuple(array.shape[1 + (kind is Draws) :]) != (*batch, *tail):
        expected = f"{('draws', *batch, *tail) if kind is Draws else (*batch, *tail)}"
        raise ValueError(
            f"{name} must be numbers for the same inputs, shape {expected}, or a set of members with one "
            f"more axis in front. Got {value.shape}."
        )
    return arrange_numbers(kind(array, kernel=like.kernel, scale=like.scale), None, 0)


def _arrange_given_answers(name: str, value: Any, like: Numbers, batch: tuple[int, ...]) -> ArrangedNumbers:
    """Return the answers of one model, or of a set of members, numbered together with those of `like`."""
    similarities = like._similarities
    if not isinstance(similarities, FunctionSimilarities):
        raise ValueError(
            f"{name} needs the similarities of its answers to those of the members, which no matrix of the "
            "members' own holds. Give kernel as a function k(x, y)."
        )
    if not isinstance(value, Numbers):
        value = Draws(value, kernel=like.kernel)
    if value.kernel != like.kernel or value._similarities is None:
        raise ValueError(f"{name} must be answers with the members' kernel. Got {value!r}.")
    kind = type(value)
    array = value.values[None] if value.values.ndim == len(batch) + (kind is Draws) else value.values
    if array.ndim != len(batch) + 1 + (kind is Draws) or array.shape[1 + (kind is Draws) :] != batch:
        raise ValueError(
            f"{name} must be answers to the same inputs, shape {batch} after members and draws. "
            f"Got {value.shape}."
        )
    return arrange_numbers(kind(array, kernel=like.kernel), None, 0, similarities)


def _check_enough(weights: np.ndarray, *, stderr: bool) -> None:
    """Raise unless there are two members for each input; they are in two groups then."""
    fewest = int((weights > 0).sum(axis=0).min())
    if fewest < 2:
        asked = "stderr=True" if stderr else "unbiased=True"
        raise ValueError(f"{asked} needs at least 2 members of positive weight for each input. Got {fewest}.")


def refuse_class_arguments(
    prediction: Numbers,
    logits: Any,
    log_probs: Any,
    rule: Any,
    base: Any,
    class_axis: int = -1,
    rounding: Any = None,
) -> None:
    """Raise if an argument is given that is about classes, or about nats."""
    given = {
        "logits": logits, "log_probs": log_probs, "base": base, "rule": None if rule == "log" else rule,
        "class_axis": None if class_axis == -1 else class_axis, "rounding": rounding,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} does not go with {type(prediction).__name__}, which are scored by their kernel, in "
                f"the unit of the numbers. Leave {name} out."
            )
