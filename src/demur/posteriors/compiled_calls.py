"""Which numbers compiled loops take, and in which form."""

from __future__ import annotations

import functools
from typing import Any

from demur import kernels
from demur.kernels.workers import WORTH_A_THREAD, in_parallel

FEW_CLASSES = 32
"""Classes up to which products are compiled, or several are made one: a product with ten columns has a third
of the speed of one with a hundred."""


def can_compile(values: Any) -> bool:
    """Tell whether compiled loops take the numbers of a tensor."""
    import torch

    kinds = (torch.float32, torch.float64)
    return values.device.type == "cpu" and values.dtype in kinds and kernels.has_numba()


def flatten(values: Any) -> Any:
    """Return the numbers of a tensor in a row, as compiled loops take them; the tensor where they do not.

    A contiguous tensor shares its memory with them.
    """
    return values.detach().reshape(-1).numpy() if can_compile(values) else values


def run_in_threads(loop: Any, arguments: tuple[Any, ...], count: int, numbers: int, block: int = 1) -> None:
    """Call a compiled loop, in threads that have a share each if the numbers are many enough for that.

    Its last two arguments say from where to where in ``count`` it goes. Shares begin at multiples of a block.
    """
    if numbers < 2 * WORTH_A_THREAD:  # small steps of a chain feel every call
        loop(*arguments, 0, count)
    else:
        in_parallel(lambda bounds: loop(*arguments, *bounds), count, numbers, block)


@functools.cache
def load_step_loops() -> Any:
    """Import the compiled loops of chains, at their first use and not at each of their many steps."""
    from demur.posteriors.chains import compiled_steps

    return compiled_steps
