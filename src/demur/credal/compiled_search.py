"""The search of ``knapsack`` as a compiled loop: the same steps with the same roundings, much faster."""

from __future__ import annotations

from numba.extending import register_jitable

from demur.credal import knapsack
from demur.kernels.compiling import cached_as_written

for _function in (
    knapsack._relax,
    knapsack._fill,
    knapsack._with_taker,
    knapsack._steepest_share,
    knapsack._entropy_term,
    knapsack._write_corner,
    knapsack._branch_and_bound,
    knapsack.search,
):
    register_jitable(_function)


@cached_as_written
def search(low, width, gain, counts, budgets, corners):
    """Write corners of low entropy, as ``knapsack.search`` does."""
    return knapsack.search(low, width, gain, counts, budgets, corners)
