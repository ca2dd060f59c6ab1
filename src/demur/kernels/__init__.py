"""From members to figures and sums: a compiled loop where it pays, plain array functions elsewhere.

    summarise    mean entropy, K and I of each input, without ever holding the sums of all inputs
    state_of     the sums of ``demur.core.state``; add_to: more members into such sums
    figures      entropy, K and I from sums, also without each group of members in turn
    LOOPS        the names of all loops, which ``compile_loop`` compiles beforehand

``_LOOPS`` says which loop takes which members. Every loop returns the inputs that it is not for, which the
next one in the row takes; what is left goes to plain array functions, which also say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from demur.core import on_device, plain_arrays
from demur.core.arrays import Array
from demur.core.probabilities import sum_classes
from demur.core.rules import BrierRule, Rule, ZeroOneRule
from demur.core.state import SUMS, State, joined, pairs_of
from demur.kernels import compiling
from demur.kernels.compiling import cache_folder, has_numba
from demur.kernels.threads import WORTH_A_THREAD, count_threads, in_parallel, map_parts, run_together
from demur.predictions import Categorical, Members, arrays

__all__ = [
    "LOOPS", "add_to", "cache_folder", "compile_loop", "count_threads", "figures", "has_numba", "in_parallel",
    "in_threads", "state_of", "summarise", "summarises", "usable",
]  # fmt: skip

SMALLEST = 1 << 15  # numbers from which calling a compiled loop pays
_LARGEST = 1e5  # logits that loops add up in place
_CONVERTED = 1 << 20  # halves and integers brought to float32 or float64 at a time
_PLAIN_FIGURES, _PLAIN_SUMS = 12e-9, 60e-9  # seconds that plain functions take for a number

_TWO = "demur.kernels.two_classes.over_inputs"
_F32_INPUTS, _F32_CLASSES = "demur.kernels.float32.over_inputs", "demur.kernels.float32.over_classes"
_F64_INPUTS, _F64_CLASSES = "demur.kernels.float64.over_inputs", "demur.kernels.float64.over_classes"
_OF_SUMS = "demur.kernels.sums_to_figures.without_groups"
_BOUNDED = "demur.kernels.bounded_rules.over_members"

# Those that take longest to compile come first.
LOOPS = (_F64_INPUTS, _F32_INPUTS, _F64_CLASSES, _F32_CLASSES, _BOUNDED, _TWO, _OF_SUMS)

# By the number of classes up to which a row holds: loops for figures of float32, of float64, and for sums.
# Below 8 classes most inputs need more than float32; from 64 on, the lanes of a vector are classes.
_LOOPS: tuple[tuple[float, dict[str, tuple[str, ...]]], ...] = (
    (1, {"float32": (_F64_INPUTS,), "float64": (_F64_INPUTS,), "sums": (_F64_INPUTS,)}),
    (2, {"float32": (_TWO, _F64_INPUTS), "float64": (_TWO, _F64_INPUTS), "sums": (_F64_INPUTS,)}),
    (7, {"float32": (_F64_INPUTS,), "float64": (_F64_INPUTS,), "sums": (_F64_INPUTS,)}),
    (64, {"float32": (_F32_INPUTS, _F64_INPUTS), "float64": (_F64_INPUTS,), "sums": (_F64_INPUTS,)}),
    (np.inf, {"float32": (_F32_CLASSES, _F64_CLASSES), "float64": (_F64_CLASSES,), "sums": (_F64_CLASSES,)}),
)


def _choose_loops(members: Members, answer: str) -> tuple[str, ...]:
    """Return the names of the loops that take these members, in turn."""
    column = answer if answer == "sums" else members.kernel_precision
    names = next(loops[column] for most, loops in _LOOPS if members.classes <= most)
    # Log-probabilities have to sum to 1, which the loop for two classes does not look at.
    return names[1:] if names[0] == _TWO and members.prediction.kind == "log_probs" else names


def usable(members: Members, rule: Rule, answer: str = "sums") -> bool:
    """Tell whether a compiled loop takes these members now."""
    count_threads()  # so that a wrong DEMUR_THREADS is an error whatever the size
    if members.size < SMALLEST or not rule.compiled or members.stays:
        return False
    seconds = members.size * (_PLAIN_SUMS if answer == "sums" else _PLAIN_FIGURES)
    return compiling.find_loop(_choose_loops(members, answer)[0], seconds) is not None


def summarises(members: Members, rule: Rule) -> bool:
    """Tell whether ``summarise`` takes these members under a rule."""
    if members.stays:
        return on_device.takes(members, rule)
    if not isinstance(members.prediction, Categorical):
        return False
    if rule.compiled:
        return True
    # The general way keeps the digits of members that are nearly certain, and takes several times as long.
    enough = members.size >= SMALLEST or not rule.separable
    return enough and type(rule).summarise is not Rule.summarise


def summarise(members: Members, rule: Rule) -> tuple[Array, np.ndarray]:
    """Return mean entropy, K and I, shape (3, inputs), and the inputs that have to be taken another way.

    Rules besides the log rule add a row for M, which is K - I for that. Tensors on an accelerator have it,
    too, and what is returned is there.
    """
    if members.stays:
        return on_device.summarise(members, rule), _NONE
    if usable(members, rule, "figures"):
        return _summarise_by_loops(members)
    if not rule.compiled and members.size >= SMALLEST and isinstance(rule, BrierRule | ZeroOneRule):
        seconds = members.size * _PLAIN_FIGURES
        if members.prediction.kind != "log_probs" and compiling.find_loop(_BOUNDED, seconds) is not None:
            found = np.zeros((4, members.inputs))
            is_zero_one = isinstance(rule, ZeroOneRule)
            return found, _run(_BOUNDED, members, np.arange(members.inputs), found, is_zero_one)

    def one(bounds: tuple[int, int]) -> np.ndarray:
        own = members.part(*bounds)
        figures = _summarise_plainly(own, rule)
        if figures is None:
            return np.arange(*bounds)
        found[:, slice(*bounds)] = figures
        return _NONE

    if rule.compiled and members.size < SMALLEST:  # a short way, which small calls feel
        figures = _summarise_plainly(members, rule)
        if figures is not None:
            return figures, _NONE
        return np.zeros((3, members.inputs)), np.arange(members.inputs)
    found = np.zeros((3 if rule.compiled else 4, members.inputs))
    return found, np.concatenate(map_parts(one, list(members.parts(SMALLEST))))


def _summarise_plainly(members: Members, rule: Rule) -> np.ndarray | None:
    """Return figures by plain array functions; None: not for these numbers, or not in this way."""
    if rule.compiled:
        return plain_arrays.summarise(members.plain_logits(), members.weights)
    if members.weights is not None and not members.weights.min() > 0:
        return None  # what has no weight may hold anything
    values = members.kernel_values()
    with np.errstate(invalid="ignore", over="ignore"):
        if members.prediction.kind != "probs":
            values = np.exp(values - values.max(axis=-1, keepdims=True))
            sums = sum_classes(values)[..., None]
            fits = members.prediction.kind == "logits" and np.isfinite(sums).all()
        else:
            sums = sum_classes(values)[..., None]
            fits = values.min() >= 0 and np.abs(sums - 1).max() <= members.prediction.tolerance
    if not fits:
        return None
    values, weights = values / sums, members.weights
    shares = np.full(values.shape[:2], 1 / len(values)) if weights is None else weights / weights.sum(axis=0)
    found = rule.summarise(values, shares.astype(values.dtype))
    return None if found is None else np.array(found)


_NONE = np.empty(0, np.int64)


def _summarise_by_loops(members: Members) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by compiled loops."""
    out = np.zeros((3, members.inputs))
    left = []
    for part, places in _convert(members):
        rest = np.arange(part.inputs)
        own = out if places is None else np.zeros((3, part.inputs))
        for name in _choose_loops(members, "figures"):
            share = rest.size / part.inputs
            if share and compiling.find_loop(name, members.size * share * _PLAIN_FIGURES) is not None:
                rest = _run(name, part, rest, own)
        if places is not None:
            out[:, places] = own
        left.append(rest if places is None else rest + places.start)
    return out, left[0] if len(left) == 1 else np.concatenate(left)


def _convert(members: Members) -> Iterator[tuple[Members, slice | None]]:
    """Return members as they are where loops can read them; else parts, which are converted one by one."""
    if members.is_readable:
        yield members, None
    else:
        for begin, end in members.parts(_CONVERTED):
            yield members.part(begin, end), slice(begin, end)


def _run(name: str, members: Members, chosen: np.ndarray, out: np.ndarray, *state: Any) -> np.ndarray:
    """Let a compiled loop take chosen inputs, in several threads if it pays; return those left over.

    Threads claim inputs from a counter as they get done, and ask Python for nothing in between: waiting for
    its lock takes longer than a small share.
    """
    loop = compiling.load_loop(name)
    values = members.kernel_values()
    flat, origin, steps = _flatten(values)
    weights, weight_origin, weight_steps = _EQUAL if members.weights is None else _flatten(members.weights)
    is_probs = members.prediction.kind == "probs"
    tolerance = np.inf if members.prediction.kind == "logits" else float(members.prediction.tolerance)
    shape = (members.count, members.classes)
    is_single = flat.dtype == np.float32
    if name in (_F32_CLASSES, _F32_INPUTS):
        source: tuple[Any, ...] = (flat,)
    else:
        source = (flat, _NO_DOUBLE, True) if is_single else (_NO_SINGLE, flat, False)
    given = (*source, is_probs, origin, steps, shape, weights[weight_origin:], weight_steps, tolerance)
    if name in (_F64_CLASSES, _F64_INPUTS) and not state:
        state = _NO_STATE
    claimed = np.zeros(1, np.int64)
    most = chosen.size * members.count * members.classes // WORTH_A_THREAD
    left = run_together(lambda: loop(*given, chosen, claimed, out, *state), most)
    return left[0] if len(left) == 1 else np.sort(np.concatenate(left))


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


_NO_SINGLE, _NO_DOUBLE = _read_only(np.empty(0, np.float32)), _read_only(np.empty(0))
_EQUAL = _read_only(np.ones(1)), 0, (0, 0)
_NO_SUMS, _NO_FIGURES = np.empty((0, 0, 0)), np.empty((0, 0))
_NO_STATE = (1, True, _NONE, np.empty((0, 0)), (_NO_SUMS,) * 7, np.empty((0, 0)))


def state_of(members: Members, rule: Rule, groups: int, ranks: Any = None) -> State:
    """Return the state of members, in float64; checks their values."""
    if usable(members, rule):
        return _state_by_loop(members, rule, groups, ranks)
    if members.stays or members.size < SMALLEST or not rule.compiled:
        logits = members.logits()
        probs = None
        if members.prediction.kind == "probs" and members.stays:
            probs = arrays.widened(members.prediction.values)
        xp = arrays.namespace(logits)
        return plain_arrays.state_of(xp, logits, members.weights, rule, groups, ranks, probs)
    return _state_by_parts(members, rule, groups, ranks)


def _state_by_parts(members: Members, rule: Rule, groups: int, ranks: Any) -> State:
    """Return the state of many members by plain array functions, for a part of the inputs at a time."""

    def one(bounds: tuple[int, int]) -> State:
        part = members.part(*bounds)
        own = None if ranks is None else ranks[slice(*bounds)]
        return plain_arrays.state_of(np, part.logits(), part.weights, rule, groups, own)

    return joined(map_parts(one, list(members.parts(SMALLEST))))


def _state_by_loop(members: Members, rule: Rule, groups: int, ranks: Any) -> State:
    """Return the state of members by the compiled loop."""
    inputs, classes = members.inputs, members.classes
    a, u, au, phi = (np.zeros((groups, inputs, classes)) for _ in range(4))
    excluded, allowed = (None, None) if _are_tame(members) else (np.zeros_like(a), np.zeros_like(a))
    p = np.zeros_like(a) if groups > 1 else None
    nobody = np.zeros((groups, inputs))
    count = np.zeros(inputs, np.int64) if ranks is None else np.asarray(ranks, np.int64)
    empty = State(
        rule, np, np.empty((inputs, classes)), a, u, au, phi, excluded, allowed, p, nobody, nobody, nobody,
        np.zeros(inputs), count,
    )  # fmt: skip
    state, left = _accumulate(empty, members, fresh=True)
    state = state if ranks is None else replace(state, count=state.count - ranks)
    if not left.size:
        return state
    own = None if ranks is None else np.asarray(ranks)[left]
    return state.replaced(left, _state_by_parts(members.only(left), rule, groups, own))


def add_to(state: State, members: Members) -> State | None:
    """Return the state with more members in it; its sums are changed in place, after all checks.

    None, and nothing is changed, if a number is none, or for another way.
    """
    return _accumulate(state, members, fresh=False)[0] if _are_tame(members) else None


def _are_tame(members: Members) -> bool:
    """Tell whether all numbers are finite, of moderate size, and exclude no class."""
    values, kind = members.kernel_values(), members.prediction.kind

    def one(bounds: tuple[int, int]) -> bool:
        own = values[:, slice(*bounds)]
        if kind == "logits":
            return bool(own.min() >= -_LARGEST and own.max() <= _LARGEST)
        off = own.sum(axis=-1, dtype=np.float64) - 1.0
        return bool(own.min() > 0 and off.max() <= members.prediction.tolerance >= -off.min())

    return all(in_parallel(one, members.inputs, members.size, 1))


def _accumulate(state: State, members: Members, *, fresh: bool) -> tuple[State, np.ndarray]:
    """Add members to a state's sums, in place; ``fresh`` sets the reference. Also return what is left."""
    state = replace(state, **{n: np.ascontiguousarray(getattr(state, n)) for n in (*SUMS, "reference")})
    further = (state.excluded, state.allowed, state.p)
    sums = *(getattr(state, n) for n in SUMS), *(_NO_SUMS if each is None else each for each in further)
    entropy = state.entropy.copy()
    to = (state.groups, fresh, state.count, state.reference, sums, entropy)
    left = _run(_choose_loops(members, "sums")[0], members, np.arange(members.inputs), _NO_FIGURES, *to)
    weights, count = np.ones((members.count, 1)) if members.weights is None else members.weights, state.count
    if (members.weights is None or weights.strides[1] == 0) and (count == count[0]).all():
        weights, count = weights[:, :1], count[:1]  # the same for all inputs
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
    return grown if some else replace(grown, excluded=None, allowed=None), left


def figures(state: State, *, whole: bool) -> np.ndarray | None:
    """Return entropy, K and I of all members, or without each group in turn; None: no short way.

    They are (1, 3, inputs), or (groups, 3, inputs).
    """
    if state.xp is not np or not state.rule.compiled or state.a.size < SMALLEST:
        return None
    left = np.array([-1] if whole else range(state.groups), np.int64)
    loop = compiling.find_loop(_OF_SUMS, state.a.size * len(left) * _PLAIN_FIGURES)
    if loop is None:
        return None
    sides = (_NO_SUMS, _NO_SUMS) if state.excluded is None else (state.excluded, state.allowed)
    given = [
        np.ascontiguousarray(each) for each in (state.reference, *(getattr(state, n) for n in SUMS), *sides)
    ]
    weight = np.ascontiguousarray(state.total("weight")[None] if whole else state.weight_of_others())
    entropy = np.ascontiguousarray(state.entropy)
    out = np.empty((len(left), 3, state.reference.shape[0]))

    def share(bounds: tuple[int, int]) -> None:
        loop(*given, entropy, weight, left, *bounds, out)

    in_parallel(share, out.shape[2], state.a.size, 8)
    return out


def in_threads(function: Callable[..., Any], *parts: Sequence[Any]) -> list[Any]:
    """Call a function on every part, in threads."""
    if len(parts[0]) == 1 or count_threads() == 1:
        return list(map(function, *parts))
    return map_parts(lambda own: function(*own), list(zip(*parts, strict=True)))


def _flatten(values: np.ndarray) -> tuple[np.ndarray, int, tuple[int, ...]]:
    """Return the memory behind an array as one axis, where its first number is, and the steps of its axes."""
    size = values.itemsize
    if any(step % size for step in values.strides):
        values = np.ascontiguousarray(values)
    steps = tuple(step // size for step in values.strides)
    if values.flags.c_contiguous:  # a short way, which small calls feel
        return _read_only(values.reshape(-1)), 0, steps
    forward = values[tuple(slice(None, None, -1 if s < 0 else 1) for s in steps)]
    span = sum((n - 1) * abs(s) for n, s in zip(values.shape, steps, strict=True)) + 1
    origin = sum((n - 1) * -s for n, s in zip(values.shape, steps, strict=True) if s < 0)
    return np.lib.stride_tricks.as_strided(forward, (span,), (size,), writeable=False), origin, steps


def compile_loop(name: str) -> None:
    """Compile a loop of ``LOOPS``, or load it from disk, by calling it on next to nothing."""
    classes = 2 if name == _TWO else 16
    if name == _OF_SUMS:
        sums, of_inputs = np.zeros((1, 3, classes)), np.zeros((1, 3))
        given = (np.zeros((3, classes)), *[sums] * 4, _NO_SUMS, _NO_SUMS, of_inputs, of_inputs + 1.0)
        compiling.load_loop(name)(*given, np.array([-1]), 0, 3, np.empty((1, 3, 3)))
        return
    members = Members(Categorical(logits=np.zeros((2, 3, classes), np.float32)), None, (3,))
    further = (False,) if name == _BOUNDED else ()
    _run(name, members, np.arange(3), np.empty((4 if further else 3, 3)), *further)
