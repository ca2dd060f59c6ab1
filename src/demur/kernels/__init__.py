"""From members to sums: the fused compiled loop where it pays, plain array functions elsewhere."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from demur.core.rules import Rule
from demur.core.state import SUMS, State, joined, pairs_of
from demur.kernels import generic, plain_single, small
from demur.kernels.workers import ROWS, find_bad, in_parallel, mapped, threads
from demur.predictions import Members, arrays

SMALLEST = 1 << 15  # logits from which importing and calling the compiled loop pays
FEWEST_SINGLE = 8  # members from which adding them up in float32 first pays
CONVERTED = 1 << 18  # logits brought to float32 or float64 at a time
PLAIN = 1 << 21  # float32 logits that plain array functions summarise at a time, but half if threads wait
EQUAL = np.ones(()).tobytes()  # a weight, for all
NARROW = 64  # classes up to which the loop runs over inputs rather than over classes


def state_of(members: Members, rule: Rule, groups: int, ranks: Any = None) -> State:
    """Return the state of members, in float64; checks their values."""
    if usable(members, rule):
        try:
            return compiled_state(members, rule, groups, ranks)
        except Unsuitable:
            return plain_state(members, rule, groups, ranks)
    logits = members.logits()
    probs = None
    if members.prediction.kind == "probs" and members.stays:
        probs = arrays.widened(members.prediction.values)
    return generic.state_of(arrays.namespace(logits), logits, members.weights, rule, groups, ranks, probs)


def plain_state(members: Members, rule: Rule, groups: int, ranks: Any) -> State:
    """Return the state of many members by plain array functions, for a part of the inputs at a time."""
    states = []
    for begin, end in members.parts(SMALLEST):
        part = members.part(begin, end)
        own = None if ranks is None else ranks[begin:end]
        states.append(generic.state_of(np, part.logits(), part.weights, rule, groups, own))
    return joined(states)


def usable(members: Members, rule: Rule) -> bool:
    """Tell whether the compiled loop takes these members."""
    return members.size >= SMALLEST and rule.name == "log" and not members.stays and has_numba()


@functools.cache
def has_numba() -> bool:
    """Tell whether numba can be imported; import it only now."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def summarise(members: Members) -> np.ndarray | None:
    """Return mean entropy, K and I, shape (3, inputs), without ever holding the sums of all inputs.

    None if there is no short way to them.
    """
    if members.size < SMALLEST:
        if members.prediction.kind != "logits":
            return small.summarise(members.logits(), members.weights)
        # Not checked: whatever is not finite ends as None.
        logits = members.kernel_logits().astype(np.float64, copy=False)
        return small.summarise(logits, members.weights)
    as_it_is = members.prediction.kind != "probs" and members.prediction.precision in ("float32", "float64")
    if has_numba() and as_it_is:
        return by_loop(members)
    each = -(-members.size // threads())
    way, size = (by_loop, CONVERTED) if has_numba() else (by_arrays, min(max(each, PLAIN // 2), PLAIN))
    found = in_threads(way, [members.part(*bounds) for bounds in members.parts(size)])
    return None if any(part is None for part in found) else np.concatenate(found, axis=1)


def by_loop(members: Members) -> np.ndarray | None:
    """Do as ``summarise`` with the compiled loop."""
    out = np.empty((3, members.inputs))

    def work(entry: Any, *arguments: Any) -> int:
        return shortest(members, entry, arguments[0].dtype).summarise(*arguments, out)

    try:
        run(members, 1, work)
    except Unsuitable:
        return None
    return out


def by_arrays(members: Members) -> np.ndarray | None:
    """Do as ``summarise`` with NumPy: in float32 what may be, in float64 the rest."""
    if members.prediction.kind != "logits" or (logits := members.kernel_logits()).dtype != np.float32:
        return in_double(members)
    found, rejected = plain_single.summarise(logits, members.weights)
    if rejected.size:
        exact = in_double(members.only(rejected))
        if exact is None:
            return None
        found[:, rejected] = exact
    return found


def in_double(members: Members) -> np.ndarray | None:
    """Do as ``summarise`` with NumPy in float64, for as many inputs at a time as fit in the cache."""
    found = []
    for bounds in members.parts(SMALLEST):
        part = members.part(*bounds)
        exact = small.summarise(plain_single.arranged(part.logits()), part.weights)
        if exact is None:
            return None
        found.append(exact)
    return np.concatenate(found, axis=1)


def shortest(members: Members, entry: Any, dtype: np.dtype) -> Any:
    """Return the loop that gives figures, and no sums, with the least arithmetic."""
    if members.classes == 2 and members.prediction.kind != "log_probs":  # which have to sum to 1
        return importlib.import_module("demur.kernels.two")
    return in_lanes_of(entry, dtype)


def in_lanes_of(entry: Any, dtype: np.dtype) -> Any:
    """Return the loop that takes as many numbers at a time as that type allows."""
    from demur.kernels import narrow, narrow_single, wide, wide_single

    return {narrow: narrow_single, wide: wide_single}[entry] if dtype == np.float32 else entry


def compiled_state(members: Members, rule: Rule, groups: int, ranks: Any) -> State:
    """Return the state of members by the compiled loop."""
    inputs, classes = members.inputs, members.classes
    empty = [np.zeros((groups, inputs, classes)) for _ in range(6)]
    nobody, none = np.zeros((groups, inputs)), np.zeros(inputs)
    count = np.zeros(inputs, np.int64) if ranks is None else ranks
    a, u, au, phi, excluded, allowed = empty
    p = np.zeros_like(a) if groups > 1 else None
    reference = np.empty((inputs, classes))
    state = State(
        rule, np, reference, a, u, au, phi, excluded, allowed, p, nobody, nobody, nobody, none, count
    )  # fmt: skip
    added = accumulated(state, members, fresh=True)
    return added if ranks is None else replace(added, count=added.count - ranks)


def add_to(state: State, members: Members) -> State:
    """Return the state with more members in it; its sums are changed in place, after all checks."""

    def check(entry: Any, *arguments: Any) -> int:
        return in_shares(members, entry, lambda bounds: find(*arguments[:-1], *bounds))

    find: Any = importlib.import_module("demur.kernels.wide").first_bad
    run(members, state.groups, check)
    if state.excluded is None:
        excluded, allowed = np.zeros_like(state.a), np.zeros_like(state.a) + state.weight[..., None]
        state = replace(state, excluded=excluded, allowed=allowed)
    return accumulated(state, members, fresh=False)


def accumulated(state: State, members: Members, *, fresh: bool) -> State:
    """Add members to a state's sums, in place; ``fresh`` sets its reference first."""
    p = np.zeros((0, 0, 0)) if state.p is None else state.p
    sums = (state.a, state.u, state.au, state.phi, state.excluded, state.allowed, p)
    entropy = state.entropy.copy()

    def work(entry: Any, *arguments: Any) -> int:
        to = (fresh, state.count, state.reference, sums, entropy)
        return in_shares(members, entry, lambda bounds: entry.accumulate(*arguments, *bounds, *to))

    run(members, state.groups, work, state.count)
    weights, count = spread_weights(members), state.count
    if weights.strides[1] == 0 and (count == count[0]).all():  # the same for all inputs
        weights, count = weights[:, :1], count[:1]
    positive = weights > 0
    group = (np.cumsum(positive, axis=0) - 1 + count) % state.groups
    own = [np.where(group == g, weights, 0) for g in range(state.groups)]
    weight = np.stack([w.sum(axis=0) for w in own])
    pairs = np.stack([pairs_of(np, w) for w in own])
    grown = replace(
        state,
        entropy=entropy,
        weight=state.weight + weight,
        pair_weight=state.pair_weight + pairs + 2 * state.weight * weight,
        heaviest=state.heaviest + weights.max(axis=0) if fresh else state.heaviest,
        count=state.count + positive.sum(axis=0),
    )
    some = grown.excluded is not None and grown.excluded.any()
    return grown if some else replace(grown, excluded=None, allowed=None)


def figures(state: State, *, whole: bool) -> np.ndarray | None:
    """Return entropy, K and I of all members, or without each group in turn; None: no short way.

    They are (1, 3, inputs), or (groups, 3, inputs).
    """
    if state.xp is not np or state.rule.name != "log" or state.a.size < SMALLEST or not has_numba():
        return None
    from demur.kernels import left_out

    none = np.zeros((0, 0, 0))
    sides = (none, none) if state.excluded is None else (state.excluded, state.allowed)
    sums = (state.a, state.u, state.au, state.phi, *sides)
    left = np.array([-1] if whole else range(state.groups), np.int64)
    weight = state.total("weight")[None] if whole else state.weight_of_others()
    out = np.empty((len(left), 3, state.reference.shape[0]))

    def share(bounds: tuple[int, int]) -> None:
        left_out.figures(state.reference, sums, state.entropy, weight, left, *bounds, out)

    in_parallel(share, out.shape[2], state.a.size, ROWS)
    return out


def takes_single(members: Members, rule: Rule, groups: int) -> bool:
    """Tell whether float32 members are added up in float32 first, several at a time."""
    enough = members.count >= FEWEST_SINGLE and groups == 1
    return enough and usable(members, rule) and members.kernel_logits().dtype == np.float32


def added_in_single(before: State | None, members: Members, rule: Rule) -> State:
    """Return a state of float32 members, with those of a state before: added in float32, kept in float64.

    Good to 3e-6 of K, I and M; inputs for which float32 would not do are added in float64. The state
    before is left as it is.
    """
    inputs, classes = members.inputs, members.classes
    fresh, rejected = before is None, np.zeros(inputs, bool)
    new = np.empty((4, inputs, classes))
    none = np.empty((0, 0))
    old = (none,) * 4 if before is None else tuple(getattr(before, name)[0] for name in SUMS)
    reference = np.empty((inputs, classes)) if before is None else before.reference
    entropy = np.zeros(inputs) if before is None else before.entropy[0].copy()
    agreeing = np.zeros(inputs, bool) if before is None else agree(before)

    def work(entry: Any, *arguments: Any) -> int:
        to = (agreeing, fresh, reference, old, new, entropy, rejected)
        return in_lanes_of(entry, arguments[0].dtype).accumulate(*arguments, *to)

    run(members, 1, work)
    sums = dict(zip(SUMS, new[:, None], strict=True))
    weight, pairs, heaviest, count = weight_sums(members)
    if before is not None:
        pairs, heaviest = before.pair_weight + pairs + 2 * before.weight * weight, before.heaviest
        weight, count = before.weight + weight, before.count + count
    state = State(
        rule, np, reference, **sums, excluded=None, allowed=None, p=None, entropy=entropy[None],
        weight=weight, pair_weight=pairs, heaviest=heaviest, count=count,
    )  # fmt: skip
    if not rejected.any():
        return state
    places = np.flatnonzero(rejected)
    part = members.only(places)
    exact = state_of(part, rule, 1) if before is None else add_to(before.only(places), part)
    return state.replaced(places, exact)


def agree(state: State) -> np.ndarray:
    """Tell for which inputs members that are like those of a state would need care."""
    from demur.kernels import quick

    weight = state.weight[0]
    k = weight * state.au[0].sum(axis=1) - np.vecdot(state.a[0], state.u[0])  # times the weight, squared
    return k < 2 * quick.ROUGH * weight**2  # one of I and M is at most half of K


def weight_sums(members: Members) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the weight of members and of pairs, (1, inputs), the largest, and how many are positive."""
    count, inputs = members.count, members.inputs
    if members.weights is None:
        alike = np.full((1, inputs), float(count))
        return alike, alike * (count - 1), np.ones(inputs), np.full(inputs, count)
    weights = members.weights
    sums = weights.sum(axis=0)[None], pairs_of(np, weights)[None]
    return *sums, weights.max(axis=0), (weights > 0).sum(axis=0)


def spread_weights(members: Members) -> np.ndarray:
    """Return weights (members, inputs) without storing equal ones twice."""
    if members.weights is not None:
        return members.weights
    # As np.broadcast_to does, which takes ten times as long.
    return np.ndarray((members.count, members.inputs), np.float64, EQUAL, strides=(0, 0))


def run(members: Members, groups: int, work: Callable[..., int], ranks: np.ndarray | None = None) -> None:
    """Let the compiled loop do its work, and say what is wrong with the first input that it finds bad."""
    from demur.kernels import narrow, wide

    logits = members.kernel_logits()
    flat, origin, steps = flattened(logits)
    integer = np.int32 if logits.dtype == np.float32 else np.int64
    limits = limits_of(logits.dtype, integer)
    weights = spread_weights(members)
    in_step = ranks is None or bool((ranks == ranks[0]).all())
    same = groups == 1 or (in_step and weights.strides[1] == 0)
    entry = narrow if members.classes <= NARROW and same else wide
    kind = members.prediction.kind
    tolerance = members.prediction.tolerance if kind == "log_probs" else np.inf
    shape = (members.count, members.classes)
    bad = work(entry, flat, flat.view(integer), origin, steps, shape, weights, limits, float(tolerance))
    if bad >= 0:
        explain(members, bad)


def in_shares(members: Members, entry: Any, share: Callable[[tuple[int, int]], int]) -> int:
    """Split inputs over threads for one of the float64 loops; return the first bad input or -1."""
    return find_bad(share, members.inputs, members.size, entry.SHARE)


@functools.cache
def limits_of(dtype: np.dtype, integer: Any) -> tuple[Any, ...]:
    """Return the largest integer, and the bits of what counts as tame, as huge and as infinite."""
    from demur.kernels import wide

    numbers = (np.array(size, dtype) for size in (wide.TAME_LOGIT, wide.HUGE_LOGIT, np.inf))
    return integer(np.iinfo(integer).max), *(integer(number.view(integer)) for number in numbers)


def in_threads(function: Callable[..., Any], *parts: Sequence[Any]) -> list[Any]:
    """Call a function on every part, in threads where it is plain array functions that do the work."""
    if len(parts[0]) == 1 or threads() == 1 or has_numba():
        return list(map(function, *parts))
    return mapped(lambda own: function(*own), list(zip(*parts, strict=True)))


class Unsuitable(Exception):
    """Logits are so large that the compiled loop would lose digits."""


def explain(members: Members, index: int) -> None:
    """Raise the error for an input that the compiled loop found bad, or say that it is not for this loop."""
    members.part(index, index + 1).logits()
    raise Unsuitable


def flattened(logits: np.ndarray) -> tuple[np.ndarray, int, tuple[int, int, int]]:
    """Return the memory behind an array as one axis, where its first number is, and the steps of its axes."""
    size = logits.itemsize
    if any(step % size for step in logits.strides):
        logits = np.ascontiguousarray(logits)
    if logits.flags.c_contiguous:  # a short way, which small calls feel
        flat = logits.reshape(-1)
        flat.flags.writeable = False
        return flat, 0, (logits.shape[1] * logits.shape[2], logits.shape[2], 1)
    backwards = tuple(slice(None, None, -1 if s < 0 else 1) for s in logits.strides)
    forward = logits[backwards]
    steps = [s // size for s in logits.strides]
    span = sum((n - 1) * abs(s) for n, s in zip(logits.shape, steps, strict=True)) + 1
    origin = sum((n - 1) * -s for n, s in zip(logits.shape, steps, strict=True) if s < 0)
    flat = np.lib.stride_tricks.as_strided(forward, (span,), (size,), writeable=False)
    return flat, origin, (steps[0], steps[1], steps[2])
