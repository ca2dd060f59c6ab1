"""From members to sums: the fused compiled loop where it pays, plain array functions elsewhere."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from demur.kernels import generic, small
from demur.predictions import Members, arrays
from demur.rules import Rule
from demur.state import State

SMALLEST = 1 << 15  # logits from which importing and calling the compiled loop pays
NARROW = 64  # classes up to which the loop runs over inputs rather than over classes


def state_of(members: Members, rule: Rule, groups: int, ranks: Any = None) -> State:
    """Return the state of members, in float64; checks their values."""
    if usable(members, rule):
        return compiled_state(members, rule, groups, ranks)
    logits = members.logits()
    return generic.state_of(arrays.namespace(logits), logits, members.weights, rule, groups, ranks)


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
    if members.size < SMALLEST or not has_numba():
        return small.summarise(members.logits(), members.weights)
    out = np.empty((3, members.inputs))

    def work(entry: Any, arguments: tuple[Any, ...], begin: int, end: int) -> int:
        return entry.summarise(*arguments, begin, end, out)

    run(members, 1, work)
    return out


def compiled_state(members: Members, rule: Rule, groups: int, ranks: Any) -> State:
    """Return the state of members by the compiled loop."""
    inputs, classes = members.inputs, members.classes
    sums = tuple(np.zeros((groups, inputs, classes)) for _ in range(5))
    reference, entropy = np.empty((inputs, classes)), np.zeros((groups, inputs))
    before = np.zeros(inputs, np.int64) if ranks is None else ranks

    def work(entry: Any, arguments: tuple[Any, ...], begin: int, end: int) -> int:
        return entry.accumulate(*arguments, begin, end, True, before, reference, sums, entropy)

    run(members, groups, work)
    a, u, au, phi, excluded = sums
    some = excluded if excluded.any() else None
    return State(rule, np, reference, a, u, au, phi, some, entropy, **weigh(members, groups, before))


def add_to(state: State, members: Members) -> State:
    """Return the state with more members in it; its sums are changed in place."""
    excluded = state.excluded if state.excluded is not None else np.zeros_like(state.a)
    sums = (state.a, state.u, state.au, state.phi, excluded)

    def work(entry: Any, arguments: tuple[Any, ...], begin: int, end: int) -> int:
        return entry.accumulate(
            *arguments, begin, end, False, state.count, state.reference, sums, state.entropy
        )

    run(members, state.groups, work)
    weights = weigh(members, state.groups, state.count)
    return State(
        state.rule, np, state.reference, *sums[:4],
        excluded if state.excluded is not None or excluded.any() else None,
        state.entropy,
        state.weight + weights["weight"],
        state.squared_weight + weights["squared_weight"],
        state.count + weights["count"],
    )  # fmt: skip


def leave_out(state: State) -> np.ndarray | None:
    """Return entropy, K and I without each group in turn, (groups, 3, inputs), or None: no short way."""
    if state.xp is not np or state.rule.name != "log" or state.a.size < SMALLEST or not has_numba():
        return None
    from demur.kernels import wide

    excluded = state.excluded if state.excluded is not None else np.zeros((0, 0, 0))
    sums = (state.a, state.u, state.au, state.phi, excluded)
    out = np.empty((state.groups, 3, state.reference.shape[0]))

    def share(bounds: tuple[int, int]) -> None:
        wide.leave_out(state.reference, sums, state.entropy, state.weight, *bounds, out)

    in_parallel(share, out.shape[2])
    return out


def weigh(members: Members, groups: int, before: np.ndarray) -> dict[str, np.ndarray]:
    """Return the sums of weights and squared weights a group and input, and the count an input."""
    weights = spread_weights(members)
    positive = weights > 0
    group = (np.cumsum(positive, axis=0) - 1 + before) % groups
    own = [np.where(group == g, weights, 0) for g in range(groups)]
    return {
        "weight": np.stack([w.sum(axis=0) for w in own]),
        "squared_weight": np.stack([(w * w).sum(axis=0) for w in own]),
        "count": positive.sum(axis=0),
    }


def spread_weights(members: Members) -> np.ndarray:
    """Return weights (members, inputs) without storing equal ones twice."""
    if members.weights is not None:
        return members.weights
    return np.broadcast_to(np.ones(()), (members.count, members.inputs))


def run(members: Members, groups: int, work: Callable[..., int]) -> None:
    """Split inputs over threads and let the compiled loop do its work on each share."""
    from demur.kernels import narrow, wide

    logits = members.kernel_logits()
    flat, origin, steps = flattened(logits)
    integer = np.int32 if logits.dtype == np.float32 else np.int64
    limits = tuple(
        integer(limit)
        for limit in (
            np.iinfo(integer).max,
            np.array(wide.TAME_LOGIT, logits.dtype).view(integer),
            np.array(np.inf, logits.dtype).view(integer),
        )
    )
    weights = spread_weights(members)
    same = groups == 1 or members.weights is None or weights.strides[1] == 0
    entry = narrow if members.classes <= NARROW and same else wide
    kind = members.prediction.kind
    tolerance = members.prediction.tolerance if kind == "log_probs" else np.inf
    shape = (members.count, members.classes)
    arguments = (flat, flat.view(integer), origin, steps, shape, weights, limits, float(tolerance))

    def share(bounds: tuple[int, int]) -> int:
        return work(entry, arguments, *bounds)

    bad = [b for b in in_parallel(share, members.inputs) if b >= 0]
    if bad:
        explain(members, min(bad))


def in_parallel(share: Callable[[tuple[int, int]], Any], inputs: int) -> list[Any]:
    """Call a function on ranges of inputs, in several threads if there are several processors."""
    count = threads()
    edges = [inputs * i // (4 * count) for i in range(4 * count + 1)] if count > 1 else [0, inputs]
    bounds = [(begin, end) for begin, end in itertools.pairwise(edges) if begin < end]
    return list(pool().map(share, bounds) if len(bounds) > 1 else map(share, bounds))


def explain(members: Members, index: int) -> None:
    """Raise the error for an input that the compiled loop found bad."""
    members.part(index, index + 1).logits()
    raise ValueError(
        f"Expected predictions that can be compared in float64. Got numbers at input {index} that overflow. "
        "Scale the logits down."
    )


def flattened(logits: np.ndarray) -> tuple[np.ndarray, int, tuple[int, int, int]]:
    """Return the memory behind an array as one axis, where its first number is, and the steps of its axes."""
    size = logits.itemsize
    if any(step % size for step in logits.strides):
        logits = np.ascontiguousarray(logits)
    backwards = tuple(slice(None, None, -1 if s < 0 else 1) for s in logits.strides)
    forward = logits[backwards]
    steps = [s // size for s in logits.strides]
    span = sum((n - 1) * abs(s) for n, s in zip(logits.shape, steps, strict=True)) + 1
    origin = sum((n - 1) * -s for n, s in zip(logits.shape, steps, strict=True) if s < 0)
    flat = np.lib.stride_tricks.as_strided(forward, (span,), (size,), writeable=False)
    return flat, origin, (steps[0], steps[1], steps[2])


def threads() -> int:
    """Return how many threads to use: ``DEMUR_THREADS``, or the processors this process may run on."""
    wanted = os.environ.get("DEMUR_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) > 0 else available_processors()


@functools.cache
def available_processors() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def pool() -> ThreadPoolExecutor:
    """Return the threads, started once; the compiled loop does not hold Python's lock."""
    return ThreadPoolExecutor(threads(), thread_name_prefix="demur")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked child has none of the threads
