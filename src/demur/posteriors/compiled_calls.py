"""Hands tensors to compiled loops: which they accept, in what form, and in how many threads."""

from __future__ import annotations

import functools
from typing import Any

from demur import kernels
from demur.kernels.threads import WORTH_A_THREAD, in_parallel

FEW_CLASSES = 32
"""Up to this many classes, matrix products run in compiled loops or as one product for several members: a
product with ten columns has a third of the speed of one with a hundred."""


def can_compile(values: Any) -> bool:
    """Return whether compiled loops accept a tensor."""
    import torch

    kinds = (torch.float32, torch.float64)
    return values.device.type == "cpu" and values.dtype in kinds and kernels.has_numba()


def flatten(values: Any) -> Any:
    """Return a tensor as a one-dimensional array for compiled loops; unchanged where they do not accept it.

    A contiguous tensor shares its memory with the array.
    """
    return values.detach().reshape(-1).numpy() if can_compile(values) else values


def run_in_threads(loop: Any, arguments: tuple[Any, ...], count: int, numbers: int, block: int = 1) -> None:
    """Call a compiled loop, split between threads where there are enough numbers.

    The last two arguments of the loop are the first and the last index, within ``count``, that a thread works
    on. Each thread begins at a multiple of ``block``.
    """
    if numbers < 2 * WORTH_A_THREAD:  # the steps of small chains are many and short
        loop(*arguments, 0, count)
    else:
        in_parallel(lambda bounds: loop(*arguments, *bounds), count, numbers, block)


@functools.cache
def load_step_loops() -> Any:
    """Import the compiled loops of chains once, at their first use."""
    from demur.posteriors.chains import compiled_steps

    return compiled_steps
