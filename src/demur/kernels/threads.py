"""Threads that share the work of one call."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORTH_A_THREAD = 1 << 17
"""Numbers below which handing them to a thread costs more than it gains."""

_SHARES = 8  # for each thread: one that is slow, or begins late, then keeps the others waiting for little
_BLOCK = 64  # inputs that a share has at least


def in_parallel(
    share: Callable[[tuple[int, int]], Any], inputs: int, size: int, block: int = _BLOCK
) -> list[Any]:
    """Call a function on ranges of inputs, in several threads if the numbers are many enough for that."""
    count = count_threads()
    shares = max(min(_SHARES * count, size // WORTH_A_THREAD), 1) if count > 1 else 1
    blocks = -(-inputs // block)
    edges = [min(blocks * i // shares * block, inputs) for i in range(shares + 1)]
    bounds = [(begin, end) for begin, end in itertools.pairwise(edges) if begin < end]
    return map_parts(share, bounds)


def map_parts(function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Call a function on every part, in several threads; return its results in their order."""
    waiting = list(enumerate(parts))[::-1]
    found: list[Any] = [None] * len(parts)

    def work() -> None:
        while waiting:
            try:
                index, own = waiting.pop()
            except IndexError:  # another thread was faster
                return
            found[index] = function(own)

    run_together(work, len(parts))
    return found


def run_together(work: Callable[[], Any], most: int) -> list[Any]:
    """Call a function in every thread, but not in more than ``most``, and in this one; return its results.

    This thread works, too: waking another one takes as long as a small share. A thread that is still busy
    elsewhere when this one is done is not waited for.
    """
    count = min(count_threads(), most) - 1
    others = [_pool().submit(work) for _ in range(count)] if count > 0 else []
    try:
        own = work()
    finally:
        begun = [other for other in others if not other.cancel()]
        found = [other.result() for other in begun]
    return [own, *found]


def count_threads() -> int:
    """Return how many threads to use: ``DEMUR_THREADS``, or the processors this process may run on."""
    wanted = os.environ.get("DEMUR_THREADS", "").strip()
    if not wanted:
        return available_processors()
    if not (wanted.isascii() and wanted.isdigit() and int(wanted) > 0):
        raise ValueError(
            "The environment variable DEMUR_THREADS must be a whole number of at least 1. "
            f"Got {wanted!r}. Unset it to use every processor."
        )
    return int(wanted)


@functools.cache
def available_processors() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads, started once; compiled loops and NumPy do not hold Python's lock."""
    return ThreadPoolExecutor(count_threads(), thread_name_prefix="demur")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has none of the threads
