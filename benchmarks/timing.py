"""Interleaved timing: every contender once, then again, so that a slow minute hits all of them alike."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

Contender = Callable[[], Any]


def interleaved(contenders: Mapping[str, Contender], rounds: int, budget: float) -> dict[str, list[float]]:
    """Return the seconds of each round, of the second of two calls in a row.

    The first call pays for what others left behind: memory that the C library gives back only when someone
    frees more, which takes longer than a fast call, caches full of other numbers, threads still waiting.

    Parameters
    ----------
    budget
        Stop after this many seconds, but not before 3 rounds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    started = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - started > budget:
            break
        for name, run in contenders.items():
            run()
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(slow: list[float], fast: list[float]) -> float:
    """Return the median over rounds of the two times of the same round."""
    ratios = sorted(s / f for s, f in zip(slow, fast, strict=True))
    return ratios[len(ratios) // 2]


def memory_beyond_input(run: Contender) -> int:
    """Return the peak of what a call allocates through Python, in bytes."""
    run()
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
