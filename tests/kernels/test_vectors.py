"""Vectors of sixteen numbers in compiled loops."""

import numpy as np
from numba import njit

from demur.kernels import vectors


def test_arithmetic() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 16)).astype(np.float32)
    pairs = rng.normal(size=40).astype(np.float32)

    @njit
    def everything(x, y, pairs, out):
        a, b = vectors.load(x, 0), vectors.load(y, 0)
        vectors.store(out, 0, vectors.larger(a, b))
        vectors.store(out, 16, vectors.magnitude(a))
        vectors.store(out, 32, vectors.where_less(a, b, vectors.spread(x[0]), b))
        vectors.store(out, 48, a / b - a * b + b)
        first, second = vectors.load_pairs(pairs, 3)
        vectors.store(out, 64, first)
        vectors.store(out, 80, second)
        vectors.store(out, 96, vectors.to_single(vectors.to_double(a)))
        return vectors.add_up(vectors.to_double(a)), vectors.highest(a)

    out = np.empty(112, np.float32)
    total, highest = everything(x, y, pairs, out)
    expected = [np.maximum(x, y), np.abs(x), np.where(x < y, x[0], y), x / y - x * y + y, pairs[3:35:2]]
    np.testing.assert_allclose(out.reshape(7, 16), [*expected, pairs[4:35:2], x], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, x.astype(np.float64).sum(), rtol=1e-14)
    assert highest == x.max()


def test_four_numbers_of_sixteen_rows_are_turned_into_planes() -> None:
    @njit
    def turn(flat, starts, box):
        vectors.turn_four(flat, starts, 3, box, 2, 17)

    flat, starts = np.arange(200, dtype=np.float32), np.random.default_rng(0).permutation(190)[:16]
    box = np.full(2 + 17 * 4, -1, np.float32)
    turn(flat, starts, box)
    planes = box[2:].reshape(4, 17)[:, :16]
    np.testing.assert_array_equal(planes, starts + 3 + np.arange(4)[:, None])
    assert (box < 0).sum() == 2 + 4  # nothing beside them is touched
