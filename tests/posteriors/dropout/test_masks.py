"""Dropout masks: compiled, and by plain array functions."""

import numpy as np
import pytest

from demur.kernels import threads as workers
from demur.posteriors.dropout.masks import Masks

pytest.importorskip("numba")


@pytest.mark.parametrize("rate", [0.2, 0.5, 1 / 3, 0.999, 1e-3])
@pytest.mark.parametrize("features", [1, 7, 64, 301])
def test_masks_are_the_same_however_they_are_drawn(monkeypatch, rate, features):
    rng = np.random.default_rng(0)
    members, places = range(3, 60), rng.integers(0, 1000, 31)
    values = rng.normal(size=(31, features)).astype(np.float32)
    found = {}
    for compiled in (True, False):
        monkeypatch.setenv("DEMUR_COMPILE", "always" if compiled else "never")
        masks = Masks(rate, 5, features)
        found[compiled] = masks.draw_kept(members, places).copy()
    product = np.full((57, 31, features), np.nan, np.float32)
    masks.apply(members, places, values, product)
    np.testing.assert_array_equal(found[True], found[False])
    np.testing.assert_array_equal(product, found[True] * values)
    dropped = 1 - found[True].mean()
    assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / found[True].size)


def test_threads_draw_the_masks_of_one(monkeypatch):
    members, places, values = range(4), np.arange(200), np.ones((200, 501), np.float32)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(workers, "count_threads", lambda threads=threads: threads)
        found.append(np.full((4, 200, 501), np.nan, np.float32))
        Masks(0.2, 5, 501).apply(members, places, values, found[-1])
    np.testing.assert_array_equal(found[0], Masks(0.2, 5, 501).draw_kept(members, places))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
