"""Dropout masks: compiled, and by plain array functions."""

import numpy as np
import pytest

import demur
from demur.kernels import compiling
from demur.kernels import threads as workers
from demur.posteriors import compiled_calls
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
        np.testing.assert_array_equal(product, found[compiled] * values)
    np.testing.assert_array_equal(found[True], found[False])
    dropped = 1 - found[True].mean()
    assert abs(dropped - rate) < 5 * np.sqrt(rate * (1 - rate) / found[True].size)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("features", [1, 16, 31, 100])
@pytest.mark.parametrize("classes", [1, 2, 3, 32])
def test_logits_are_the_same_to_the_last_bit_compiled_or_not(monkeypatch, kind, features, classes):
    rng = np.random.default_rng(1)
    values, weight = (rng.normal(size=(n, features)).astype(kind) for n in (31, classes))
    bias = rng.normal(size=classes).astype(kind)
    found = []
    for wanted in ("always", "never"):
        monkeypatch.setenv("DEMUR_COMPILE", wanted)
        masks, logits = Masks(0.3, 5, features), np.full((17, 31, classes), np.nan, kind)
        masks.write_logits(range(3, 20), np.arange(31) ** 2, values, weight, bias, logits)
        found.append(logits)
    assert found[0].tobytes() == found[1].tobytes()
    kept = masks.draw_kept(range(3, 20), np.arange(31) ** 2)
    tolerance = {"rtol": 0, "atol": 200 * np.finfo(kind).eps}
    np.testing.assert_allclose(found[0], (kept * values.astype(float)) @ weight.T + bias, **tolerance)


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


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_posteriors_call_loops_with_the_types_that_are_compiled_beforehand(kind):
    """Another type, or another order in memory, would be compiled when it is needed."""
    torch = pytest.importorskip("torch")
    for name in compiled_calls.LOOPS:
        compiled_calls.compile_loop(name)
    before = {name: len(compiling.load_loop(name).signatures) for name in compiled_calls.LOOPS}
    x, y = torch.rand(50, 20, dtype=getattr(torch, kind)), torch.randint(10, (50,))
    for classes in (10, 40):  # few, and many
        layer = torch.nn.Linear(20, classes).to(x)
        demur.score(demur.posteriors.LastLayer(layer, dropout=0.2, samples=9), [x], progress=False)
        for method in (demur.posteriors.SGLD, demur.posteriors.SGHMC):
            method(layer, (x, y), samples=2, steps=10, batch_size=20).fit(progress=False)
    Masks(0.2, 1, 30).draw_kept(range(3), np.arange(4))
    assert {name: len(compiling.load_loop(name).signatures) for name in before} == before
