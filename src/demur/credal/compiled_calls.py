"""The compiled loops of credal sets: their names, and how ``demur warm`` compiles them."""

from __future__ import annotations

import numpy as np

from demur.kernels import compiling

PRODUCTS = "demur.credal.gram.products"
SEARCH = "demur.credal.compiled_search.search"

LOOPS = (SEARCH, PRODUCTS)


def compile_loop(name: str) -> None:
    """Compile a loop of ``LOOPS``, or load it from disk, by calling it on next to nothing."""
    loop, rows = compiling.load_loop(name), np.full((1, 2), 0.25)
    if name == PRODUCTS:
        loop(rows[None], np.empty((1, 4, 4)))
    else:
        loop(rows, rows, rows, np.array([2]), np.array([0.25]), np.zeros((1, 2)))
