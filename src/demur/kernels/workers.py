"""Threads that share the work of one call."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

WORTH_A_THREAD = 1 << 17  # logits below which handing them to a thread costs more than it gains
SHARES = 8  # for each thread: a thread that is slow, or begins late, then keeps the others waiting for little
BLOCK = 64  # inputs that a share has at least where classes are few: loops work on so many at a time,
ROWS = 8  # and where they are many


def in_parallel(
    share: Callable[[tuple[int, int]], Any], inputs: int, size: int, block: int = BLOCK
) -> list[Any]:
    """Call a function on ranges of inputs, in several threads if the numbers are many enough for that."""
    count = threads()
    shares = max(min(SHARES * count, size // WORTH_A_THREAD), 1) if count > 1 else 1
    blocks = -(-inputs // block)
    edges = [min(blocks * i // shares * block, inputs) for i in range(shares + 1)]
    bounds = [(begin, end) for begin, end in itertools.pairwise(edges) if begin < end]
    return mapped(share, bounds)


def mapped(function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
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

    together(work, len(parts))
    return found


def find_bad(share: Callable[[tuple[int, int]], int], inputs: int, size: int, block: int) -> int:
    """Do so with a function that returns the first bad input of its range, or -1; return the first of all."""
    return min((bad for bad in in_parallel(share, inputs, size, block) if bad >= 0), default=-1)


def taken(
    loop: Callable[..., np.ndarray], given: tuple[Any, ...], chosen: np.ndarray, *to: Any
) -> np.ndarray:
    """Let a compiled loop take chosen inputs, in several threads if it pays; return those left over.

    Threads claim inputs from a counter as they get done, and ask Python for nothing in between: waiting for
    its lock takes longer than a small share.
    """
    members, classes = given[3]
    claimed = np.zeros(1, np.int64)
    most = chosen.size * members * classes // WORTH_A_THREAD
    left = together(lambda: loop(*given, chosen, claimed, *to), most)
    return left[0] if len(left) == 1 else np.sort(np.concatenate(left))


def in_turn(
    quickly: Callable[..., np.ndarray],
    carefully: Callable[..., np.ndarray],
    given: tuple[Any, ...],
    agreeing: np.ndarray | None,
    *to: Any,
) -> np.ndarray:
    """Take inputs without care, or at once with it where they are known to agree; return those left over."""
    if agreeing is None:
        rest = taken(quickly, given, np.arange(given[4].shape[1]), *to)
    else:
        left, chosen = agreeing.copy(), np.flatnonzero(~agreeing)
        if chosen.size:
            left[taken(quickly, given, chosen, *to)] = True
        rest = np.flatnonzero(left)
    return taken(carefully, given, rest, *to) if rest.size else rest


def together(work: Callable[[], Any], most: int) -> list[Any]:
    """Call a function in every thread, but not in more than ``most``, and in this one; return its results.

    This thread works, too: waking another one takes as long as a small share. A thread that is still busy
    elsewhere when this one is done is not waited for.
    """
    others = []
    if (count := min(threads(), most) - 1) > 0:
        keep_apart()
        others = [pool().submit(work) for _ in range(count)]
    try:
        own = work()
    finally:
        begun = [other for other in others if not other.cancel()]
        found = [other.result() for other in begun]
    return [own, *found]


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
    return ThreadPoolExecutor(
        threads(), thread_name_prefix="demur", initializer=lambda: _started.append(threading.get_native_id())
    )


_started: list[int] = []  # the pool's threads, as the system knows them
_kept_off = [(-1, 0)]  # which processor how many of them were last kept off


def keep_apart() -> None:
    """Keep the pool's threads off the processor that this thread runs on.

    In a virtual machine whose other processor sleeps, Linux was seen to let the thread that is woken share
    the processor of the one that wakes it, for milliseconds: longer than many calls.
    """
    now = (own_processor()(), len(_started))
    if now == _kept_off[0] or now[0] < 0 or threading.get_native_id() in _started:
        return
    _kept_off[0] = now
    elsewhere = os.sched_getaffinity(0) - {now[0]}
    for thread in list(_started) if elsewhere else []:
        with contextlib.suppress(OSError):  # not allowed here: then they stay where the system puts them
            os.sched_setaffinity(thread, elsewhere)


@functools.cache
def own_processor() -> Callable[[], int]:
    """Return what tells on which processor a thread runs; -1 where the system does not say."""
    import ctypes

    try:
        return ctypes.CDLL(None).sched_getcpu if hasattr(os, "sched_setaffinity") else lambda: -1
    except (OSError, AttributeError):
        return lambda: -1


def forget() -> None:
    """Forget the threads: a forked child has none of them."""
    pool.cache_clear()
    _started.clear()
    _kept_off[0] = (-1, 0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)
