"""Products of a matrix with its own transpose, for threads that each have an input of their own.

A linear algebra library may start threads for one such product, which then wait for each other where every
processor has work already: on a busy machine that costs ten times what it gains.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportArgumentType=false
import numpy as np

from demur.kernels.compiling import cached
from demur.kernels.vectors import add_in_any_order

_WIDE, _HIGH = 4, 2  # a tile of products whose sums stay in registers


@cached
def products(rows, out):
    """Write ``rows @ rows'`` for rows (inputs, n, length) to ``out``, whose n is rounded up to tiles."""
    count = rows.shape[1]
    last = count - 1
    for b in range(rows.shape[0]):
        for i in range(0, count, _WIDE):
            r0, r1 = rows[b, i], rows[b, min(i + 1, last)]
            r2, r3 = rows[b, min(i + 2, last)], rows[b, min(i + 3, last)]
            for j in range(0, i + _WIDE, _HIGH):
                c0, c1 = rows[b, min(j, last)], rows[b, min(j + 1, last)]
                s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = 0.0
                for y in range(rows.shape[2]):
                    s00 = add_in_any_order(s00, r0[y] * c0[y])
                    s01 = add_in_any_order(s01, r0[y] * c1[y])
                    s10 = add_in_any_order(s10, r1[y] * c0[y])
                    s11 = add_in_any_order(s11, r1[y] * c1[y])
                    s20 = add_in_any_order(s20, r2[y] * c0[y])
                    s21 = add_in_any_order(s21, r2[y] * c1[y])
                    s30 = add_in_any_order(s30, r3[y] * c0[y])
                    s31 = add_in_any_order(s31, r3[y] * c1[y])
                out[b, i, j], out[b, i, j + 1] = s00, s01
                out[b, i + 1, j], out[b, i + 1, j + 1] = s10, s11
                out[b, i + 2, j], out[b, i + 2, j + 1] = s20, s21
                out[b, i + 3, j], out[b, i + 3, j + 1] = s30, s31
        for i in range(count):
            for j in range(i):
                out[b, j, i] = out[b, i, j]


def gram(rows: np.ndarray) -> np.ndarray:
    """Return ``rows @ rows'``, (inputs, n, n), for rows (inputs, n, length)."""
    inputs, count, _ = rows.shape
    padded = -(-count // _WIDE) * _WIDE
    out = np.empty((inputs, padded, padded))
    products(np.ascontiguousarray(rows), out)
    return out[:, :count, :count]
