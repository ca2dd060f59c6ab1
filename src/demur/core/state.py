"""The sums that every measure is computed from; their size does not depend on the number of members.

Relative to a reference prediction ``q``, with a rule's terms ``a``, ``u`` and ``phi`` of each member (see
``demur.core.rules``) and weights ``w``, a state holds per group, input and class

    sum w a,    sum w u,    sum w a u,    sum w phi,    sum w over members that exclude the class,

the sums of ``u`` and ``a u`` over members that allow the class; and per group and input the sum of the
members' entropies, of their weights, and of products of two of these. Means give every cell of the table of
measures without subtracting nearly equal numbers; identical members give exactly 0. A change of reference is
affine, so states with different references merge.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from demur.core.rules import Array, Rule, Terms

SUMS = ("a", "u", "au", "phi")
_BY_INPUT = ("reference", "heaviest", "count")  # what has no axis of groups


@dataclass(frozen=True)
class Means:
    """Averages over members, shaped (inputs, classes): one side of a measure."""

    rule: Rule
    xp: Any
    reference: Array
    a: Array
    u: Array
    au: Array
    phi: Array
    entropy: Array  # (inputs,): mean generalised entropy
    p: Array | None  # the average prediction, where groups are kept; else it is the reference and a
    excludes: Array | None  # some member gives the class no probability at all
    allows: Array | None  # some member gives it some
    most: Array | None = None  # (inputs,): entropy of the weights, which no I exceeds; where a rule needs it

    @functools.cached_property
    def mixture(self) -> Means:
        """The average prediction as a side of its own: one member."""
        terms = self.rule.mixture(self.xp, self.a, self.reference, self.p)
        nobody = None
        if self.allows is not None:
            nobody = ~self.allows
            zero = self.xp.zeros_like(terms.u)
            kept = self.xp.where(self.allows, terms.phi, self.phi)
            terms = Terms(terms.a, self.xp.where(self.allows, terms.u, zero), kept)
        # H(average) = mean H + I, both parts exact.
        entropy = self.entropy + self.xp.sum(self.phi - terms.phi, axis=-1)
        return replace(self, u=terms.u, au=terms.a * terms.u, phi=terms.phi, entropy=entropy, excludes=nobody)

    def probabilities(self) -> Array:
        """Return the average prediction."""
        p = self.rule.average(self.xp, self.a, self.reference)
        return p if self.allows is None else self.xp.where(self.allows, p, self.xp.zeros_like(p))


@dataclass(frozen=True)
class State:
    """Sums over members, shaped (groups, inputs, classes); weights (groups, inputs); see the module."""

    rule: Rule
    xp: Any
    reference: Array  # (inputs, classes)
    a: Array
    u: Array
    au: Array
    phi: Array
    excluded: Array | None  # weight of members that exclude the class; None if no member excludes any
    allowed: Array | None  # weight of members that allow it; None as well
    p: Array | None  # sum of w p, which is not that of a and q where p is small; None without groups
    entropy: Array  # (groups, inputs): generalised entropy, of each member by itself
    weight: Array
    pair_weight: Array  # sum of products of weights of two different members, not from a difference
    heaviest: Array  # (inputs,): the weight of the member that the reference was taken from
    count: Array  # (inputs,): members of positive weight
    weight_log: Array | None = None  # (groups, inputs): sum of w log w, where a rule needs their entropy

    @property
    def groups(self) -> int:
        """How many groups the members were dealt to."""
        return self.a.shape[0]

    def means(self) -> Means:
        """Return the averages over all members."""
        sums = {name: self.total(name) for name in (*SUMS, "entropy")}
        sums["p"] = None if self.p is None else self.total("p")
        sums["weight_log"] = None if self.weight_log is None else self.total("weight_log")
        excludes = allows = None
        if self.excluded is not None:
            excludes = self.xp.any(self.excluded > 0, axis=0)
            allows = self.xp.any(sides(self)[1] > 0, axis=0)
        return self._divide(sums, self.total("weight"), excludes, allows)

    def leaving_one_out(self) -> Iterator[Means]:
        """Return, for each group, the averages over the members of all other groups."""
        xp = self.xp
        sums = {name: self.total(name) for name in (*SUMS, "entropy")}
        weights = self.weight_of_others()
        p, logs = (None if each is None else _around(xp, each) for each in (self.p, self.weight_log))
        for g in range(self.groups):
            others = {name: total - getattr(self, name)[g] for name, total in sums.items()}
            others["p"] = None if p is None else p[g]
            others["weight_log"] = None if logs is None else logs[g]
            weight = weights[g]
            excludes = allows = None
            if self.excluded is not None:
                # Ask group by group: differences of sums would leave residues that look like exclusions.
                rest = [other for other in range(self.groups) if other != g]
                excludes = xp.any(xp.stack([self.excluded[o] > 0 for o in rest]), axis=0)
                allows = xp.any(xp.stack([sides(self)[1][o] > 0 for o in rest]), axis=0)
            yield self._divide(others, weight, excludes, allows)

    def share_of_pairs(self) -> Array:
        """Return which share of the pairs of members are of two different ones, (inputs,)."""
        return self.weight_of_pairs() / self.total("weight") ** 2

    def weight_of_pairs(self) -> Array:
        """Return the sum of products of weights of two different members, (inputs,)."""
        return self.total("pair_weight") + pairs_of(self.xp, self.weight)

    def share_of_pairs_of_others(self) -> Array:
        """Return the same without each group in turn, (groups, inputs)."""
        xp, weight = self.xp, self.weight
        before, after = beside(xp, weight)
        between = beside(xp, 2 * weight * before)[0] + beside(xp, 2 * weight * after)[1] + 2 * before * after
        return (_around(xp, self.pair_weight) + between) / (before + after) ** 2

    def weight_of_others(self) -> Array:
        """Return the weight without each group in turn, (groups, inputs): added up, so that none is lost."""
        return _around(self.xp, self.weight)

    def total(self, name: str) -> Array:
        """Return one of the sums over all groups."""
        sums = getattr(self, name)
        return sums[0] if self.groups == 1 else self.xp.sum(sums, axis=0)

    def _divide(
        self, sums: dict[str, Any], weight: Array, excludes: Array | None, allows: Array | None
    ) -> Means:
        """Divide sums by the weight."""
        means = {name: sums[name] / weight[..., None] for name in SUMS}
        means["p"] = None if sums["p"] is None else sums["p"] / weight[..., None]
        entropy, most = sums["entropy"] / weight, None
        if sums["weight_log"] is not None:
            most = self.xp.log(weight) - sums["weight_log"] / weight
            most = self.xp.where(most > 0, most, self.xp.zeros_like(most))  # of one member, rounding is left
        return Means(
            self.rule, self.xp, self.reference, **means, entropy=entropy, excludes=excludes, allows=allows,
            most=most,
        )  # fmt: skip

    def refer_to(self, reference: Array) -> State:
        """Return the same members relative to another reference: affine in the sums."""
        if reference is self.reference:
            return self
        xp = self.xp
        moved: Terms = self.rule.terms_between(xp, self.reference, reference)
        a, u = self.rule.change_coordinates(xp, self.a, self.u, self.reference, reference)
        weight = self.weight[..., None]
        if self.excluded is None:
            allowing, a_allowed = weight, a
        else:
            source = self.rule.probabilities(xp, self.reference)
            allowing, a_allowed = self.allowed, a + self.excluded * source
        drift = a * moved.u
        if not self.rule.separable:
            drift = xp.sum(drift, axis=-1, keepdims=True)
        return replace(
            self,
            reference=reference,
            a=a + weight * moved.a,
            u=u + allowing * moved.u,
            au=self.au + moved.u * a_allowed + moved.a * u + allowing * moved.a * moved.u,
            phi=self.phi + drift + weight * moved.phi,
        )

    def only(self, inputs: Array | slice) -> State:
        """Return the sums of some of the inputs, by their indices."""
        found = {
            name: values if values is None else values[inputs] if name in _BY_INPUT else values[:, inputs]
            for name, values in arrays_of(self).items()
        }
        return replace(self, **found)

    def replaced(self, inputs: Array, other: State) -> State:
        """Return the state with another one's sums for some of the inputs, by their indices; for NumPy."""
        found = arrays_of(self)
        if other.excluded is not None:
            found["excluded"], found["allowed"] = sides(self)
        elif self.excluded is not None:
            other = replace(other, **dict(zip(("excluded", "allowed"), sides(other), strict=True)))
        for name, values in found.items():
            if values is not None:
                place = inputs if name in _BY_INPUT else (slice(None), inputs)
                found[name] = values.copy()
                found[name][place] = getattr(other, name)
        return replace(self, **found)

    def copy(self) -> State:
        """Return a state that shares no memory with this one."""

        def duplicate(array: Array) -> Array:
            # PyTorch's asarray drops gradients, or warns that it keeps them.
            return array.clone() if hasattr(array, "clone") else self.xp.asarray(array, copy=True)

        return replace(
            self, **{n: None if a is None else duplicate(a) for n, a in arrays_of(self).items()}
        )  # fmt: skip

    def merge(self, other: State) -> State:
        """Return the state of both states' members, relative to one of their references."""
        reference = self.common_reference(other)
        left, right = self.refer_to(reference), other.refer_to(reference)
        sums = {name: getattr(left, name) + getattr(right, name) for name in SUMS}
        return replace(
            left,
            **sums,
            **_exclusions(left, right),
            p=_add(left.p, right.p),
            weight_log=_add(left.weight_log, right.weight_log),
            entropy=left.entropy + right.entropy,
            weight=left.weight + right.weight,
            pair_weight=left.pair_weight + right.pair_weight + 2 * left.weight * right.weight,
            heaviest=self.xp.maximum(left.heaviest, right.heaviest),
            count=left.count + right.count,
        )

    def common_reference(self, other: State) -> Array:
        """Return the reference of the heavier member, input by input; rounding is relative to its share.

        A class that all members of one state exclude takes the other's, if a member allows it.
        """
        xp = self.xp
        heavier = self.heaviest >= other.heaviest
        if self.excluded is None and other.excluded is None:
            if bool(xp.all(heavier)):
                return self.reference
            return xp.where(heavier[..., None], self.reference, other.reference)
        use_mine = heavier[..., None]
        if self.allowed is not None:
            use_mine = use_mine & xp.any(self.allowed > 0, axis=0)
        if other.allowed is not None:
            use_mine = use_mine | ~xp.any(other.allowed > 0, axis=0)
        mixed = xp.where(use_mine, self.reference, other.reference)
        whole = xp.all(use_mine, axis=-1, keepdims=True) | ~xp.any(use_mine, axis=-1, keepdims=True)
        return xp.where(whole, mixed, self.rule.reference(xp, mixed))


def _add(left: Array | None, right: Array | None) -> Array | None:
    """Return a sum, or None where a part of it is not known."""
    return None if left is None or right is None else left + right


def _exclusions(left: State, right: State) -> dict[str, Array | None]:
    """Return the sums of weights that exclude and that allow each class, in both states together."""
    if left.excluded is None and right.excluded is None:
        return {"excluded": None, "allowed": None}
    (excluded, allowed), (more_excluded, more_allowed) = sides(left), sides(right)
    return {"excluded": excluded + more_excluded, "allowed": allowed + more_allowed}


def sides(state: State) -> tuple[Array, Array]:
    """Return the weights that exclude and that allow each class, also if no member excludes any."""
    if state.excluded is not None:
        return state.excluded, state.allowed
    zero = state.xp.zeros_like(state.a)
    return zero, zero + state.weight[..., None]


def joined(states: list[State]) -> State:
    """Join states of different inputs."""
    if len(states) == 1:
        return states[0]
    xp = states[0].xp
    by_group = (*SUMS, "entropy", "weight", "pair_weight")
    parts = {name: xp.concat([getattr(s, name) for s in states], axis=1) for name in by_group}
    parts |= {name: xp.concat([getattr(s, name) for s in states]) for name in _BY_INPUT}
    for name in ("p", "weight_log"):
        if all(getattr(s, name) is not None for s in states):
            parts[name] = xp.concat([getattr(s, name) for s in states], axis=1)
    if any(s.excluded is not None for s in states):
        parts["excluded"] = xp.concat([sides(s)[0] for s in states], axis=1)
        parts["allowed"] = xp.concat([sides(s)[1] for s in states], axis=1)
    return replace(states[0], **parts)


def pairs_of(xp: Any, weights: Array) -> Array:
    """Return the sum of ``w_i w_j`` over pairs of different ones along the first axis."""
    return 2 * xp.sum(weights[1:, ...] * xp.cumsum(weights, axis=0)[:-1, ...], axis=0)


def beside(xp: Any, numbers: Array) -> tuple[Array, Array]:
    """Return the sums of what comes before and of what comes after each, along the first axis."""
    none = xp.zeros_like(numbers[:1, ...])
    before = xp.cumsum(numbers, axis=0)[:-1, ...]
    after = xp.flip(xp.cumsum(xp.flip(numbers[1:, ...], axis=0), axis=0), axis=0)
    return xp.concat([none, before]), xp.concat([after, none])


def _around(xp: Any, numbers: Array) -> Array:
    """Return the sums of all others than each, along the first axis; none is lost beside a large one."""
    before, after = beside(xp, numbers)
    return before + after


def arrays_of(state: State) -> dict[str, Array]:
    """Return the arrays of a state by name."""
    skipped = ("rule", "xp")
    return {f.name: getattr(state, f.name) for f in fields(state) if f.name not in skipped}


def check_sums(state: State, groups: int) -> None:
    """Raise unless arrays that were read from a file fit each other."""
    inputs, classes = state.reference.shape
    whole = (groups, inputs, classes)
    phi = whole if state.rule.separable else (groups, inputs, 1)
    wanted = {"reference": whole[1:], "a": whole, "u": whole, "au": whole, "phi": phi}
    wanted |= dict.fromkeys(("entropy", "weight", "pair_weight"), whole[:2])
    wanted |= dict.fromkeys(("heaviest", "count"), whole[1:2])
    if state.excluded is not None or state.allowed is not None:
        wanted |= {"excluded": whole, "allowed": whole}
    if state.p is not None:
        wanted["p"] = whole
    if state.weight_log is not None:
        wanted["weight_log"] = whole[:2]
    for name, shape in wanted.items():
        sums = getattr(state, name)
        if sums is None or sums.shape != shape:
            came = "nothing" if sums is None else f"shape {sums.shape}"
            raise ValueError(f"{name} has {came}, not shape {shape}")
        if sums.dtype.kind not in ("iu" if name == "count" else "f") or not state.xp.isfinite(sums).all():
            raise ValueError(f"{name} holds something else than finite numbers")
        if name not in ("reference", *SUMS, "entropy", "weight_log") and (sums < 0).any():
            raise ValueError(f"{name} is negative")
