"""Sums over members that come in a stream, from several machines, or in another session."""

from __future__ import annotations

import os
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from demur import atomic, kernels
from demur.core import arrays
from demur.core.arrays import ArrayLike
from demur.core.given import (
    check_every_input,
    given_sides,
    move_to_library,
    refer_sides,
    with_gradients,
)  # fmt: skip
from demur.core.jackknife import Estimates
from demur.core.parts_as_text import Reading
from demur.core.processes import share_in_order
from demur.core.rounded_members import is_given_rounded, may_be_rounded, refuse_rounding
from demur.core.rounding import warn_if_infinite
from demur.core.rules import LOG, Array, Rule, RuleName, resolve_rule
from demur.core.state import State, arrays_of, check_sums
from demur.core.table_alignment import TableLabels, align_tables, join_labels
from demur.families import FAMILIES, find_rule
from demur.measures import Decomposition, Measure, MeasureName, check_base, name_unit, resolve
from demur.predictions import Members, Prediction, as_prediction, gather, rule_for
from demur.predictions.categorical import Categorical
from demur.predictions.members import read_single_weight
from demur.predictions.places import choose_members_axis
from demur.reading import open_saved

FORMAT = "demur moments 2"
_ADVICE = (
    "Update with logits=, or take measure='average', which is always finite. With all members in one array, "
    "demur.decompose(..., rounding=...) gives the least value that fits."
)
_OUTWEIGHED = 1024  # a member this many times heavier than the reference's own becomes the reference


class Moments:
    """Sums over members; their size does not depend on the number of members.

    Parameters
    ----------
    rule
        ``"log"``, ``"brier"``, ``"spherical"``, ``"zero_one"``, or one that ``register_rule`` added.
    groups
        Keep this many sub-accumulators, at as many times the memory, and deal members to them in turn.
        Standard errors and the unbiased average need them; 16 is a good number.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> moments = demur.Moments()
    >>> for _ in range(100):
    ...     _ = moments.update(logits=rng.normal(size=(2, 3)))
    >>> moments.count
    100
    >>> moments.decompose("pairwise").epistemic.shape
    (2,)
    """

    def __init__(self, *, rule: RuleName | str = "log", groups: int | None = None) -> None:
        self.rule = resolve_rule(rule)
        if groups is not None and (not isinstance(groups, Integral) or groups < 2):
            raise ValueError(f"groups must be None or an integer of at least 2. Got {groups!r}.")
        self.groups = None if groups is None else int(groups)
        self.state: State | None = None
        self._estimates: Estimates | None = None  # of the state as it is, for several measures
        self._factors: tuple[Array, Array] | None = None
        self._double = False
        self._from_probs = False  # some members came as probabilities, which may have been rounded
        self._like: Array = np.empty(0)
        self._table: TableLabels | None = None  # names of columns and rows, where tables came

    def __repr__(self) -> str:
        size = (
            "empty"
            if self.state is None
            else f"{self.count} member{'s'[: self.count != 1]}, {self.rule.shape_as_given(self.shape)}"
        )
        return f"Moments({size}, rule={self.rule.name!r}, groups={self.groups})"

    @property
    def shape(self) -> tuple[int, int]:
        """Inputs and classes, or parameters of a prediction."""
        inputs, classes = self._filled().reference.shape
        return inputs, classes

    @property
    def count(self) -> Any:
        """Number of members of positive weight; one number per input where they differ."""
        return 0 if self.state is None else _collapse_equal(self.state.count, int)

    @property
    def effective_count(self) -> Any:
        """``(sum w)**2 / sum w**2``; one number per input where they differ."""
        if self.state is None:
            return 0.0
        weight, pairs = self.state.total("weight"), self.state.weight_of_pairs()
        squared = self.state.xp.where(weight > 0, weight**2 - pairs, 1.0)
        return _collapse_equal(weight**2 / squared, float)

    @property
    def mean(self) -> Array:
        """The average prediction, shape (inputs, classes); of a family the mean of what it predicts."""
        state = self._filled()
        check_every_input(state)
        average = self.rule.as_given(state.means().probabilities())
        return arrays.like(average, self._like, self._double)

    def update(
        self,
        probs: ArrayLike | Prediction | None = None,
        *,
        logits: ArrayLike | None = None,
        log_probs: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        axis: int = 0,
        class_axis: int = -1,
        member_axis: int | None = None,
    ) -> Moments:
        """Add one member (inputs, classes) or several (members, inputs, classes).

        Parameters
        ----------
        probs, logits, log_probs
            Exactly one of them. In place of ``probs`` any predictions that ``decompose`` takes, as a
            ``Gaussian``: one member (inputs,) or several (members, inputs). The first ones say what kind
            comes. Lists of arrays, and tables of pandas or polars, are arrays; columns and rows of tables are
            matched by name with those before.
        weights
            A number for one member; shape (members,) or (members, inputs) for several. 0, or from 1e-100 to
            1e100.
        axis, member_axis, class_axis
            Where several members, and the classes, are; as for ``decompose``.
        """
        table = self._table
        probs, table = align_tables(probs, table)
        logits, table = align_tables(logits, table)
        log_probs, table = align_tables(log_probs, table)
        prediction = as_prediction(probs, logits, log_probs)
        rule = rule_for(prediction, self.rule)
        if self.state is not None and rule is not self.rule:
            raise ValueError(f"Expected predictions of classes, as before. Got {prediction!r}.")
        single = len(prediction.shape) == 2
        if single:
            weights = read_single_weight(weights)
        elif len(prediction.shape) != 3:
            raise ValueError(
                "Expected one member (inputs, classes) or several (members, inputs, classes), "
                f"without classes where there are none. Got shape {rule.shape_as_given(prediction.shape)}."
            )
        place = choose_members_axis(axis, member_axis)
        if not single and type(prediction) is not Categorical:
            place = prediction._members_axis(place)  # pyright: ignore[reportAttributeAccessIssue]
        members = gather(prediction, weights, place, class_axis, may_be_zero=True, single=single)
        came = (members.inputs, members.classes)
        if self.state is not None and came != self.shape:
            shapes = [rule.shape_as_given(shape) for shape in (self.shape, came)]
            raise ValueError(f"Expected inputs and classes {shapes[0]}, as before. Got {shapes[1]}.")
        refuse_rounding(members)
        if not members.weigh_nothing:
            self._add(members, rule)
            self._from_probs = self._from_probs or may_be_rounded(members)
        self._double = self._double or arrays.is_double(prediction.values)
        self._like, self._table = arrays.sample(prediction.values), table
        return self

    def _add(self, members: Members, rule: Rule) -> None:
        before = self.state
        if before is not None and self._can_add(before, members):
            grown = kernels.add_to(before, members)
            if grown is not None:
                self.state = grown
                return
        ranks = None if before is None else before.count
        added = kernels.state_of(members, rule, self.groups or 1, ranks)
        self.state = added if before is None else before.merge(self._here(added))
        self.rule = rule

    def _can_add(self, before: State, members: Members) -> bool:
        # Sums of log-probabilities are known only when they have been added: not in place.
        if before.xp is not np or members.prediction.kind == "log_probs":
            return False
        if not kernels.usable(members, self.rule):
            return False
        heaviest = 1.0 if members.weights is None else members.weights.max(axis=0)
        return bool((heaviest <= _OUTWEIGHED * before.heaviest).all())

    def merge(self, other: Moments) -> Moments:
        """Add another accumulator's members, in place; groups are added pairwise."""
        if not isinstance(other, Moments):
            raise TypeError(f"Expected Moments. Got {type(other).__name__}.")
        rule = _common_rule(self, other)
        if rule is None or self.groups != other.groups:
            raise ValueError(f"Expected Moments with the same rule and groups. Got {self} and {other}.")
        if other.state is None:
            return self
        self._table = join_labels(self._table, other._table)
        if self.state is None:
            self.state, self._like, self.rule = other.state.copy(), other._like, rule
        elif self.shape != other.shape:
            shapes = [rule.shape_as_given(moments.shape) for moments in (self, other)]
            raise ValueError(f"Expected {shapes[0]} inputs and classes. Got {shapes[1]}.")
        else:
            self.state = self.state.merge(self._here(other.state))
        self._double = self._double or other._double
        self._from_probs = self._from_probs or other._from_probs
        return self

    def all_reduce(self, group: Any = None) -> Moments:
        """Merge the members of all processes of ``torch.distributed``, in place; returns self.

        States are merged as by ``merge``, in the order of ranks, and every process ends with the same bytes.
        One that saw no members gets those of the others. Call it once, when all members have come: a second
        call would count each of them several times.

        Parameters
        ----------
        group
            A process group, or None for the default one. All of its processes have to call this.
        """
        facts: dict[str, object] = {"groups of members": self.groups}
        if self.state is not None:
            facts |= {"inputs and classes": self.rule.shape_as_given(self.shape)}
        if self.state is not None or self.rule != LOG:  # empty moments of the log rule go with every family
            facts["rule"] = self.rule.name
        parts = share_in_order(_on_host(self), facts, group)
        merged = next(parts, None)
        if merged is None:
            return self
        for other in parts:
            merged.merge(other)
        assert merged.state is not None
        state, self.rule = merged.state, merged.rule
        if self.state is None:
            self._like = merged._like
        elif arrays.library(self.state.reference) != "numpy":
            state = move_to_library(state, self.state.reference)
        self.state, self._double, self._table = state, merged._double, merged._table
        self._from_probs = merged._from_probs
        return self

    def only(self, inputs: Any) -> Moments:
        """Return the sums of some of the inputs, by their indices or as true and false for each."""
        found = Moments(groups=self.groups)
        found.rule, found._like, found._double = self.rule, self._like, self._double
        found._from_probs = self._from_probs
        found.state = self._filled().only(inputs)
        if self._factors is not None:
            whole, rest = self._factors
            found._factors = whole[inputs], rest[:, inputs]
        return found

    def _here(self, other: State) -> State:
        mine = arrays.library(self._filled().reference)
        if arrays.library(other.reference) != mine:
            raise TypeError(
                f"Expected members on the device of those before, in {mine}. "
                f"Got {arrays.library(other.reference)}. Move them first."
            )
        return other

    def decompose(
        self,
        measure: MeasureName | str | Measure = "pairwise",
        *,
        unbiased: bool = False,
        stderr: bool = False,
        base: float | None = None,
    ) -> Decomposition:
        """Return the decomposition of each input's uncertainty; see ``demur.decompose``."""
        state = self._filled()
        check_every_input(state)
        chosen = resolve(measure)
        scale = check_base(base, self.rule)
        sides = given_sides(chosen, self.rule, (self.shape[0],), self.shape[1])
        like, target = self._like, with_gradients(sides)
        if target is not None and arrays.library(state.reference) == "numpy":
            like, state = target, move_to_library(state, target)
        given = refer_sides(sides, self.rule, state.reference)
        if self._estimates is None or self._estimates.state is not state:
            self._estimates = Estimates(state, self._factors)
        result = self._estimates.decompose(chosen, given, unbiased=unbiased, stderr=stderr)
        if self._from_probs or is_given_rounded(chosen, sides):
            warn_if_infinite(result.epistemic, advice=_ADVICE)
        found = result.map(lambda part: arrays.like(part * scale, like, self._double))
        unit = name_unit("log" if self.rule.nats else self.rule.name, base)
        return replace(found, _reading=Reading(unit))

    def _filled(self) -> State:
        if self.state is None:
            raise ValueError("Expected Moments that have members. Got empty ones. Call update first.")
        return self.state

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles: arrays, and the rule and the library by their names."""
        kept = self.__dict__ | {"rule": self.rule.name, "_estimates": None}
        if self.state is not None:
            found = arrays_of(self.state).items()
            kept["state"] = {name: a.detach() if hasattr(a, "detach") else a for name, a in found}
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self.rule = find_rule(kept["rule"])
        if kept["state"] is not None:
            xp = arrays.namespace(kept["state"]["reference"])
            self.state = State(rule=self.rule, xp=xp, **kept["state"])

    def __copy__(self) -> Moments:
        """Return the same sums, which later members are not added to: updates may write in place."""
        found = share_sums(self)
        found.state = None if self.state is None else self.state.copy()
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Moments:
        return self.__copy__()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an ``.npz`` file, completely or not at all; ``load`` gives the same figures.

        In the same library, too, on the processor; in NumPy's where that library is not installed.
        """
        header = {"format": FORMAT, "rule": self.rule.name, "groups": self.groups or 0}
        content: dict[str, Any] = {name: np.array(value) for name, value in header.items()}
        content["library"] = np.array(arrays.library(self._like))
        content |= {"double": np.array(self._double), "from_probs": np.array(self._from_probs)}
        if self.state is not None:
            found = arrays_of(self.state).items()
            content |= {name: arrays.to_numpy(a) for name, a in found if a is not None}
        with atomic.open_file(path) as file:
            np.savez(file, **content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Moments:
        """Read what ``save`` wrote; any other file is a ValueError."""
        with open_saved(path, "Moments.save", FORMAT) as content:
            groups = int(content.pop("groups"))
            moments = cls(groups=groups or None)
            moments.rule = find_rule(str(content.pop("rule")))
            moments._double = bool(content.pop("double"))
            moments._like = arrays.empty_of(str(content.pop("library", "numpy")))
            moments._from_probs = bool(content.pop("from_probs", False))  # older files do not say
            if content:
                full: dict[str, Any] = dict.fromkeys(("excluded", "allowed", "p", "weight_log")) | content
                moments.state = State(rule=moments.rule, xp=np, **full)
                check_sums(moments.state, groups or 1)
        return moments


def share_sums(moments: Moments) -> Moments:
    """Return moments with the same arrays, which are not to be updated."""
    found = Moments()
    found.__dict__.update(moments.__dict__, _estimates=None)
    return found


def _on_host(moments: Moments) -> Moments | None:
    """Return what other processes can read: sums in NumPy's arrays, or None where there are none."""
    if moments.state is None:
        return None
    found = share_sums(moments)
    found.state = move_to_library(moments.state, np.empty(0))
    found._like = arrays.empty_of(arrays.library(moments._like))
    return found


def _common_rule(left: Moments, right: Moments) -> Rule | None:
    """Return the rule that two accumulators share; empty ones of the log rule go with every family."""
    for empty, other in ((left, right), (right, left)):
        if empty.state is None and empty.rule == LOG and other.rule.name in FAMILIES:
            return other.rule
    return left.rule if left.rule == right.rule else None


def _collapse_equal(values: Array, kind: type) -> Any:
    """Return one number where all inputs share it, else the array."""
    first = values[0]
    return kind(first) if bool((values == first).all()) else values
