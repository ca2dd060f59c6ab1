"""Hands tensors to compiled loops, or to the plain functions that give the same bytes where those do better.

``LOOPS`` has the names of all loops of posteriors, for ``demur warm``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from demur.kernels import compiling
from demur.kernels.threads import WORTH_A_THREAD, in_parallel

FEW_CLASSES = 32
"""Up to this many classes, matrix products run in compiled loops or as one product for several members: a
product with ten columns has a third of the speed of one with a hundred."""

DRAW_MASKS = "demur.posteriors.dropout.compiled_masks.draw_masks"
APPLY_MASKS = "demur.posteriors.dropout.compiled_masks.apply_masks"
MULTIPLY_MASKED = "demur.posteriors.heads.compiled_products.multiply_masked"
COMPUTE_GRADIENT = "demur.posteriors.heads.compiled_products.compute_gradient"
LANGEVIN_STEP = "demur.posteriors.chains.compiled_steps.langevin_step"
BAOA_STEP = "demur.posteriors.chains.compiled_steps.baoa_step"

LOOPS = (
    DRAW_MASKS,
    *(
        f"{name}-{kind}"
        for name in (APPLY_MASKS, MULTIPLY_MASKED, COMPUTE_GRADIENT, LANGEVIN_STEP, BAOA_STEP)
        for kind in ("float32", "float64")
    ),
)


def takes_arrays(values: Any) -> bool:
    """Return whether loops, compiled or of NumPy, accept a tensor."""
    import torch

    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


def flatten(values: Any) -> Any:
    """Return a tensor as a one-dimensional array for loops; unchanged where they do not accept it.

    A contiguous tensor shares its memory with the array.
    """
    return values.detach().reshape(-1).numpy() if takes_arrays(values) else values


def find_loop(name: str, kind: Any, seconds: float) -> Any:
    """Return a compiled loop for numbers of a dtype, or None where plain functions do better.

    It is called many times: ``seconds``, which plain functions would take now, are added up.
    """
    return compiling.find_loop(f"{name}-{kind}", seconds, repeated=True)


def find_loop_by_work(name: str, kind: Any, seconds: float) -> Any:
    """Return a compiled loop for numbers of a dtype, or None: decided by the work, whatever lies on disk.

    For loops whose roundings differ from those of plain functions, where a seed has to fix the result.
    """
    enough = seconds >= compiling.WORTH_COMPILING or os.environ.get("DEMUR_COMPILE", "") == "always"
    return compiling.load_loop(f"{name}-{kind}") if compiling.has_numba() and enough else None


def run_in_threads(loop: Any, arguments: tuple[Any, ...], count: int, numbers: int, block: int = 1) -> None:
    """Call a compiled loop, split between threads where there are enough numbers.

    The last two arguments of the loop are the first and the last index, within ``count``, that a thread works
    on. Each thread begins at a multiple of ``block``.
    """
    if numbers < 2 * WORTH_A_THREAD:  # the steps of small chains are many and short
        loop(*arguments, 0, count)
    else:
        in_parallel(lambda bounds: loop(*arguments, *bounds), count, numbers, block)


def compile_loop(name: str) -> None:
    """Compile a loop of ``LOOPS``, or load it from disk, by calling it on next to nothing."""
    loop, (name, _, kind) = compiling.load_loop(name), name.partition("-")
    one, seed, rate = np.arange(1), np.uint64(1), (np.uint8(128), np.uint64(0))
    rows = np.zeros((1, 32), kind or "uint8")
    flat, alone, whole = np.zeros(32, rows.dtype), np.zeros(1, rows.dtype), (1.0, 1.0, 1.0)
    examples: dict[str, Callable[[], Any]] = {
        DRAW_MASKS: lambda: loop(one.astype(np.uint64), *rate, rows),
        APPLY_MASKS: lambda: loop(seed, one, one, *rate, rows, rows[None].copy(), 0, 1),
        MULTIPLY_MASKED: lambda: loop(seed, one, one, *rate, rows, rows, alone, alone.reshape(1, 1, 1)),
        COMPUTE_GRADIENT: lambda: loop(rows, one * 0, one * 0, flat, alone, flat.copy(), alone.copy()),
        LANGEVIN_STEP: lambda: loop(flat, (flat,) * 3, whole, 1.0, 1.0, seed, 0, 1),
        BAOA_STEP: lambda: loop(flat, flat.copy(), (flat,) * 3, whole, 1.0, 1.0, 1.0, seed, 0, 1),
    }
    examples[name]()
