"""The compiled kernel: its arithmetic, its threads, and where it cannot be kept on disk."""

import contextlib
import inspect
import os
import subprocess
import sys
import threading
import time

import mpmath
import numba
import numpy as np
import pytest
from numba import njit
from numba.core import caching
from reference import members

import demur
from demur import kernels
from demur.kernels import (
    arithmetic,
    exponentials,
    lanes,
    narrow,
    narrow_single,
    plain_single,
    small,
    wide_single,
)
from demur.predictions import gather


@njit
def write_growths(x, like, out):
    for i in range(x.size):
        out[i] = arithmetic.expm1(x[i], like)


@njit
def logarithms(x, out):
    for i in range(x.size):
        out[i] = arithmetic.log1p(x[i])


def on_lanes(function):
    """Return a function that applies one of ``lanes`` to an array of numbers, sixteen at a time."""

    @njit
    def each(x, out):
        for i in range(0, x.size, lanes.LANES):
            lanes.store(out, i, function(lanes.load(x, i)))

    def apply(x):
        padded = np.zeros(-(-x.size // lanes.LANES) * lanes.LANES, x.dtype)
        padded[: x.size] = x
        out = np.empty_like(padded)
        each(padded, out)
        return out[: x.size]

    return apply


growths, growths_of_doubles, exponentials_of, logarithms_of, logarithms_of_one_and = map(
    on_lanes,
    (exponentials.expm1, exponentials.expm1_double, exponentials.exp, exponentials.log, exponentials.log1p),
)


def relative_errors(found, function, x):
    with mpmath.workdps(40):
        exact = np.array([float(function(mpmath.mpf(float(v)))) for v in x])
    return np.abs(found / exact - 1)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-2, 0.3, 3.0, 30.0, 200.0])
def test_exponential(scale) -> None:
    """Full precision for float64; for float32 1.5e-11 at most, falling with the exponent."""
    x = np.clip(np.random.default_rng(0).normal(size=500) * scale, -690.0, 690.0)
    out = np.empty_like(x)
    write_growths(x, np.float64(0), out)
    # An exponent rounded to eps of itself moves the result by as much.
    assert relative_errors(out, mpmath.expm1, x).max() < 6e-16 * max(1.0, np.abs(x).max())
    assert relative_errors(growths_of_doubles(x), mpmath.expm1, x).max() < 6e-16 * max(1.0, np.abs(x).max())
    write_growths(x, np.float32(0), out)
    assert relative_errors(out, mpmath.expm1, x).max() < max(6e-16, min(1.5e-11, 1e-10 * scale))


@pytest.mark.parametrize("scale", [1e-14, 1e-8, 1e-3, 0.3, 3.0, 1e6, 1e200])
def test_logarithm(scale) -> None:
    x = np.random.default_rng(1).normal(size=500) * scale
    x = np.where(x > -0.999, x, -x)
    out = np.empty_like(x)
    logarithms(x, out)
    assert relative_errors(out, mpmath.log1p, x).max() < 6e-16


def test_logarithm_of_nothing_is_finite() -> None:
    """0 log 0 = 0 comes out by itself, also where rounding went below -1."""
    x = np.array([-1.0, np.nextafter(-1.0, -2.0)])
    out = np.empty_like(x)
    logarithms(x, out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-2, 0.3, 3.0, 30.0])
def test_single_exponential(scale) -> None:
    x = np.clip(np.random.default_rng(0).normal(size=500) * scale, -80.0, 80.0).astype(np.float32)
    tolerance = 3e-7 * max(1.0, np.abs(x).max() / 8)
    assert relative_errors(growths(x).astype(np.float64), mpmath.expm1, x).max() < tolerance
    assert relative_errors(exponentials_of(x).astype(np.float64), mpmath.exp, x).max() < tolerance
    nothing = np.zeros(1, np.float32)
    assert growths(nothing) == 0.0 and exponentials_of(nothing) == 1.0


def test_single_exponential_is_bounded() -> None:
    """Beyond +-87 there is no exponential in float32 that products with other numbers leave finite."""
    far = np.array([-1e30, -np.inf, np.nan, 1e30, np.inf], np.float32)
    bounds = np.array([-87, -87, -87, 87, 87], np.float32)
    np.testing.assert_array_equal(exponentials_of(far), exponentials_of(bounds))
    np.testing.assert_array_equal(growths(far), growths(bounds))


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 0.3, 3.0, 1e6, 1e20])
def test_single_logarithm(scale) -> None:
    x = (np.random.default_rng(1).normal(size=500) * scale).astype(np.float32)
    x = np.where(x > -0.99, x, -x)
    found = logarithms_of_one_and(x).astype(np.float64)
    assert relative_errors(found, mpmath.log1p, x).max() < 3e-7
    positive = np.abs(x) + np.float32(1e-30)
    exact = np.log(positive.astype(np.float64))
    np.testing.assert_allclose(logarithms_of(positive), exact, rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize("scale", [1e-14, 1e-3, 0.3, 1e6, 1e200])
def test_logarithm_on_lanes(scale) -> None:
    x = np.random.default_rng(1).normal(size=500) * scale
    x = np.where(x > -0.999, x, -x)
    assert relative_errors(logarithms_of_one_and(x), mpmath.log1p, x).max() < 1e-15
    positive = np.abs(x) + 1e-200
    np.testing.assert_allclose(logarithms_of(positive), np.log(positive), rtol=1e-15, atol=1e-15)


def test_arithmetic_on_lanes() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 16)).astype(np.float32)
    pairs = rng.normal(size=40).astype(np.float32)

    @njit
    def everything(x, y, pairs, out):
        a, b = lanes.load(x, 0), lanes.load(y, 0)
        lanes.store(out, 0, lanes.larger(a, b))
        lanes.store(out, 16, lanes.magnitude(a))
        lanes.store(out, 32, lanes.where_less(a, b, lanes.spread(x[0]), b))
        lanes.store(out, 48, a / b - a * b + b)
        first, second = lanes.load_pairs(pairs, 3)
        lanes.store(out, 64, first)
        lanes.store(out, 80, second)
        lanes.store(out, 96, lanes.rounded(lanes.doubled(a)))
        return lanes.add_up(lanes.doubled(a)), lanes.highest(a)

    out = np.empty(112, np.float32)
    total, highest = everything(x, y, pairs, out)
    expected = [np.maximum(x, y), np.abs(x), np.where(x < y, x[0], y), x / y - x * y + y, pairs[3:35:2]]
    np.testing.assert_allclose(out.reshape(7, 16), [*expected, pairs[4:35:2], x], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, x.astype(np.float64).sum(), rtol=1e-14)
    assert highest == x.max()


def agreeing(rng, shape, spread, scale, moved) -> np.ndarray:
    """Members around common logits, each with all of its logits moved, in float32."""
    common = scale * rng.normal(size=(1, *shape[1:]))
    own = spread * rng.normal(size=shape) + moved * rng.normal(size=(shape[0], 1, 1))
    return (common + own).astype(np.float32)


@pytest.mark.parametrize("moved", [0.0, 5.0])
@pytest.mark.parametrize("scale", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("spread", [3.0, 0.5, 0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("classes", [2, 10, 300])
def test_float32_loops_agree_with_float64(classes, spread, scale, moved) -> None:
    """The same numbers, once as float32 and once as float64, from near agreement to contradiction."""
    rng = np.random.default_rng(5)
    logits = agreeing(rng, (30, 36_000 // (30 * classes) + 70, classes), spread, scale, moved)
    for name in ("pairwise", "average", "reverse"):
        single = demur.decompose(logits=logits, measure=name)
        double = demur.decompose(logits=logits.astype(np.float64), measure=name)
        np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=5e-6)
        np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=5e-6)


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_float32_loops_with_weights(classes) -> None:
    rng = np.random.default_rng(6)
    logits = agreeing(rng, (30, 400, classes), 0.3, 2.0, 1.0)
    for shape in ((30,), (30, 400)):
        weights = rng.exponential(size=shape) * 10.0 ** rng.integers(-3, 4, size=shape)
        weights[::7] = 0.0
        single = demur.decompose(logits=logits, weights=weights)
        double = demur.decompose(logits=logits.astype(np.float64), weights=weights)
        np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=5e-6)
        np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=5e-6)


LAYOUTS = {
    "members first": lambda z: z,
    "inputs first": lambda z: np.ascontiguousarray(z.transpose(1, 0, 2)).transpose(1, 0, 2),
    "classes first": lambda z: np.ascontiguousarray(z.transpose(2, 0, 1)).transpose(1, 2, 0),
    "every other": lambda z: np.repeat(np.repeat(z, 2, axis=0), 3, axis=1)[::2, ::3],
    "backwards": lambda z: np.ascontiguousarray(z[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.5, 5.0, 30.0, 100.0])
@pytest.mark.parametrize("spread", [30.0, 3.0, 0.3, 1e-2, 1e-4])
def test_two_classes_have_what_they_have_beside_one_that_all_exclude(spread, scale, dtype, layout) -> None:
    """The loop for two classes against that for few, which takes three, from agreement to contradiction."""
    rng = np.random.default_rng(9)
    for count in (1, 7, 8, 30):
        shape = (count, 17_000 // count + 9, 2)
        two = (scale * rng.normal(size=(1, *shape[1:])) + spread * rng.normal(size=shape)).astype(dtype)
        three = np.concatenate([two.astype(np.float64), np.full((*shape[:2], 1), -np.inf)], axis=2)
        weights = rng.exponential(size=shape[:2])
        weights[1::3, 5:] = 0.0
        for own in (None, weights[:, 0], weights):
            bad = two.copy()
            if own is weights:
                bad[weights == 0.0] = np.nan
            summary = kernels.summarise(gather(demur.Categorical(logits=LAYOUTS[layout](bad)), own, 0))
            expected = kernels.summarise(gather(demur.Categorical(logits=three), own, 0))
            # The other loop rounds logits of 100 to 1e-14, which is 1e-10 of the smallest difference, and
            # exponentials of float32 logits to 1e-11, of which an entropy may be the thousandth part.
            np.testing.assert_allclose(summary, expected, rtol=1e-8)


def test_two_classes_are_told_from_sums_of_one_number_each(monkeypatch) -> None:
    """Control: ordinary members do not fall to the loop for few classes; some, far apart, do."""
    logits = agreeing(np.random.default_rng(10), (50, 400, 2), 1.0, 2.0, 0.0)
    kernels.summarise(gather(demur.Categorical(logits=logits), None, 0))
    left = []
    monkeypatch.setattr(narrow, "summarise", lambda *given: left.extend(given[-1]) or -1)
    kernels.summarise(gather(demur.Categorical(logits=logits), None, 0))
    assert not left
    logits[7, 30, 1] += 200.0
    logits[:25, 40, 0], logits[25:, 40, 0] = 40.0, -40.0
    logits[3, 50, 1] = -np.inf
    logits[3, 60, 0] = np.nan
    kernels.summarise(gather(demur.Categorical(logits=logits), None, 0))
    assert left == [30, 40, 50, 60]


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_inputs_beyond_float32_lanes_are_right_among_others(classes) -> None:
    """Saturated, excluded, identical and contradicting members of single inputs take the other loop."""
    rng = np.random.default_rng(7)
    logits = agreeing(rng, (60 if classes == 2 else 20, 300, classes), 0.3, 2.0, 0.0)
    plain = demur.decompose(logits=logits)
    odd = logits.copy()
    odd[:, 10] = odd[0, 10]
    odd[3, 20] *= 100.0
    odd[5, 30, 1] = -np.inf
    odd[:10, 40, 0] += 30.0
    odd[10:, 40, 1] += 30.0
    found = demur.decompose(logits=odd)
    exact = demur.decompose(logits=odd.astype(np.float64))
    assert found.epistemic[10] == 0.0
    assert found.epistemic[30] == np.inf
    np.testing.assert_allclose(found.epistemic, exact.epistemic, rtol=5e-6)
    np.testing.assert_allclose(found.aleatoric, exact.aleatoric, rtol=5e-6)
    ordinary = np.delete(np.arange(300), [10, 20, 30, 40])
    # No input's bytes hang on its neighbours.
    np.testing.assert_array_equal(found.epistemic[ordinary], plain.epistemic[ordinary])


@pytest.mark.parametrize("classes", [10, 300])
def test_float32_lanes_are_used(classes) -> None:
    """Control: the loops agree to 1e-6 and not to the last digit, so two loops ran."""
    logits = agreeing(np.random.default_rng(8), (30, 300, classes), 0.5, 2.0, 0.0)
    single = kernels.summarise(gather(demur.Categorical(logits=logits), None, 0))
    double = kernels.summarise(gather(demur.Categorical(logits=logits.astype(np.float64)), None, 0))
    assert (np.abs(single[1] / double[1] - 1) > 1e-12).mean() > 0.9


SHARE_IN_SINGLE = """
import sys
import numpy as np
import demur
from demur import kernels
from demur.predictions import gather

def divergence(logits):
    return kernels.summarise(gather(demur.Categorical(logits=logits), None, 0))[1]

noise, classes = float(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(8)
logits = rng.normal(0, 2, (300, classes)) + noise * rng.normal(size=(30, 300, classes))
single = divergence(logits.astype(np.float32))  # first: functions then have the same numbers as elsewhere
double = divergence(logits.astype(np.float32).astype(np.float64))
print((np.abs(single / double - 1) > 1e-12).mean())
"""


@pytest.mark.parametrize("loops", [narrow_single, wide_single])
def test_loops_have_names_of_their_own(loops) -> None:
    """By its name, code of one process is told from that of another."""
    takes = loops.take, loops.take_carefully, loops.add, loops.add_carefully
    assert len({take.py_func.__qualname__ for take in takes}) == 4
    parts = [take.py_func.__globals__ | inspect.getclosurevars(take.py_func).nonlocals for take in takes]
    for name in ("add_members", "finish"):
        assert len({part[name].py_func.__qualname__ for part in parts}) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("classes", [10, 300])
def test_loops_kept_by_several_processes_are_not_taken_for_each_other(classes, tmp_path) -> None:
    """One process compiles the quick loop, another the careful one, a third loads both."""

    def share_in_single(noise: float) -> float:
        command = [sys.executable, "-c", SHARE_IN_SINGLE, str(noise), str(classes)]
        kept = {"NUMBA_CACHE_DIR": str(tmp_path)}
        return float(subprocess.check_output(command, env=os.environ | kept, text=True))

    assert share_in_single(3.0) > 0.9
    assert share_in_single(0.5) > 0.9
    assert share_in_single(0.5) > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 100])
def test_one_thread_and_many_give_the_same_bytes(classes, dtype, monkeypatch) -> None:
    logits = members.ordinary(20, 400_000 // (20 * classes) + 500, classes)
    logits = logits.astype(dtype)
    one_by_one = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("DEMUR_THREADS", threads)
        one_by_one.append(demur.decompose(logits=logits).epistemic)
    np.testing.assert_array_equal(one_by_one[0], one_by_one[1])
    np.testing.assert_array_equal(one_by_one[0], one_by_one[2])


def test_without_numba_the_values_are_the_same(monkeypatch) -> None:
    logits = members.ordinary(10, 100, 60)
    compiled = demur.decompose(logits=logits)
    monkeypatch.setattr(kernels, "has_numba", lambda: False)
    plain = demur.decompose(logits=logits)
    np.testing.assert_allclose(plain.epistemic, compiled.epistemic, rtol=1e-12)
    np.testing.assert_allclose(plain.aleatoric, compiled.aleatoric, rtol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 1e-3])
@pytest.mark.parametrize("shape", [(40, 1500, 2), (40, 600, 5), (40, 300, 10), (40, 20, 200)])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_numba_float32_is_as_exact(shape, spread, weighted, monkeypatch) -> None:
    rng = np.random.default_rng(9)
    logits = agreeing(rng, shape, spread, 2.0, 1.0)
    weights = rng.exponential(size=shape[:2]) if weighted else None
    exact = demur.decompose(logits=logits.astype(np.float64), weights=weights)
    monkeypatch.setattr(kernels, "has_numba", lambda: False)
    plain = demur.decompose(logits=logits, weights=weights)
    np.testing.assert_allclose(plain.epistemic, exact.epistemic, rtol=5e-6)
    np.testing.assert_allclose(plain.aleatoric, exact.aleatoric, rtol=5e-6)
    odd = logits.copy()
    odd[3, 5, 1] = np.nan
    with pytest.raises(ValueError, match=r"logits must be numbers. Got nan at \[3, 5, 1\]"):
        demur.decompose(logits=odd)
    odd[3, 5, 1] = -np.inf
    assert demur.decompose(logits=odd).epistemic[5] == np.inf


@pytest.mark.parametrize(
    "shape", [(3, 40, 32), (40, 300, 10), (90, 40, 8), (1000, 50, 2), (90, 40, 5), (40, 20, 200)]
)
def test_without_numba_no_input_hangs_on_its_neighbours(shape) -> None:
    rng = np.random.default_rng(3)
    logits = (3 * rng.normal(size=shape)).astype(np.float32)
    together, rejected = plain_single.summarise(logits, None)
    assert rejected.size < shape[1]
    alone = [plain_single.summarise(logits[:, b : b + 1], None)[0][:, 0] for b in range(shape[1])]
    np.testing.assert_array_equal(together, np.stack(alone, 1))


@pytest.mark.parametrize("classes", [2, 3, 5, 10, 32, 1000])
@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("moved", [0.0, 3.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_float32_arrays_keep_is_right(classes, spread, moved, weighted) -> None:
    rng = np.random.default_rng(classes)
    shape = (10, 4000 // classes, classes)
    logits = 3 * rng.normal(size=shape[1:]) + spread * rng.normal(size=shape)
    logits = (logits + moved * rng.normal(size=(*shape[:2], 1))).astype(np.float32)
    weights = rng.exponential(size=shape[:2]) if weighted else None
    found, rejected = plain_single.summarise(logits, weights)
    kept = np.setdiff1d(np.arange(shape[1]), rejected)
    assert kept.size
    exact = small.summarise(logits[:, kept].astype(np.float64), weights[:, kept] if weighted else None)
    np.testing.assert_allclose(found[:, kept], exact, rtol=5e-6)


def hard_for_float32(case: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return logits and weights for which float32 sums lose digits, without a sign of it in the figures."""
    rng = np.random.default_rng(4)
    if case == "two classes, a member of no weight far off":
        logits, weights = 2 * rng.normal(size=(16, 1100, 2)), np.ones((16, 1100))
        logits[0, :, 1], weights[0] = 1e6, 0.0
        return logits, weights
    if case == "two classes, the first members far off":
        logits = np.zeros((4000, 50, 2))
        logits[::2, :, 1], logits[1::2, :, 1] = 1.37 + 0.01 * np.arange(50), -0.93
        logits[:4, :, 1] += 1000.0
        return logits, None
    if case == "many classes, equal logits":
        logits = np.zeros((4, 2, 32000))
        for member in range(4):
            logits[member, :, member * 8000 : (member + 1) * 8000] = 1.7
        return logits, None
    if case == "a reference without digits":
        logits = np.full((30, 20, 1000), -101.0)
        logits[:, :, :4] = 1.5 * rng.normal(size=(30, 20, 4))
        logits[-1, :, 4:] += 78.0
        logits[-1, :, :4] -= 10.0
        return logits, None
    two = np.array([[0.26443559, 0.95187968, 3.20280337, -0.66244012],
                    [-0.33218578, 2.19035006, 3.82857299, 2.48317027]])  # fmt: skip
    return np.tile(two[:, None], (16, 300, 1)), None


@pytest.mark.parametrize(
    "case",
    [
        "two classes, a member of no weight far off",
        "two classes, the first members far off",
        "many classes, equal logits",
        "a reference without digits",
        "members that repeat",
    ],
)
def test_float32_arrays_do_not_keep_what_has_lost_digits(case, monkeypatch) -> None:
    logits, weights = hard_for_float32(case)
    logits = logits.astype(np.float32)
    for measure in ("pairwise", "average", "reverse"):
        exact = demur.decompose(logits=logits.astype(np.float64), weights=weights, measure=measure)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "has_numba", lambda: False)
            found = demur.decompose(logits=logits, weights=weights, measure=measure)
        np.testing.assert_allclose(found.epistemic, exact.epistemic, rtol=1e-5)
        np.testing.assert_allclose(found.aleatoric, exact.aleatoric, rtol=1e-5)


@pytest.mark.parametrize("classes", [5, 10, 100])
def test_float32_arrays_keep_members_whose_logits_have_moved_together(classes) -> None:
    rng = np.random.default_rng(classes)
    logits = (2 * rng.normal(size=(20, 50, classes))).astype(np.float32)
    still, rejected = plain_single.summarise(logits, None)
    assert not rejected.size
    moved = logits + np.float32(16) * rng.integers(-2, 3, (20, 50, 1)).astype(np.float32)
    found, rejected = plain_single.summarise(moved, None)
    assert not rejected.size
    np.testing.assert_allclose(found, still, rtol=5e-6)


@pytest.mark.parametrize("classes", [2, 10, 32, 100])
def test_the_order_of_inputs_does_not_change_their_bytes(classes) -> None:
    rng = np.random.default_rng(8)
    inputs = 200_000 // (50 * classes)
    spread = 10 ** rng.uniform(-2, 0.8, (inputs, 1))  # from agreement to contradiction, side by side
    common = rng.choice([0.5, 3.0, 8.0], (inputs, 1)) * rng.normal(size=(inputs, classes))
    logits = (common + spread * rng.normal(size=(50, inputs, classes))).astype(np.float32)
    order = np.argsort(spread[:, 0])  # neighbours that agree as much
    found, turned = demur.decompose(logits=logits), demur.decompose(logits=logits[:, order])
    np.testing.assert_array_equal(turned.epistemic, found.epistemic[order])
    np.testing.assert_array_equal(turned.aleatoric, found.aleatoric[order])


def test_four_numbers_of_sixteen_rows_are_turned_into_planes() -> None:
    @njit
    def turn(flat, starts, box):
        lanes.turn_four(flat, starts, 3, box, 2, 17)

    flat, starts = np.arange(200, dtype=np.float32), np.random.default_rng(0).permutation(190)[:16]
    box = np.full(2 + 17 * 4, -1, np.float32)
    turn(flat, starts, box)
    planes = box[2:].reshape(4, 17)[:, :16]
    np.testing.assert_array_equal(planes, starts + 3 + np.arange(4)[:, None])
    assert (box < 0).sum() == 2 + 4  # nothing beside them is touched


@pytest.mark.parametrize("inputs", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("classes", [2, 3, 4, 5, 7, 8, 9, 16, 33, 64])
def test_lanes_without_input_and_overlapping_classes(inputs, classes) -> None:
    rng = np.random.default_rng(classes)
    count = -(-kernels.SMALLEST // (inputs * classes))
    logits = (2 * rng.normal(size=(count, inputs, classes))).astype(np.float32)
    exact = demur.decompose(logits=logits.astype(np.float64))
    for given in (logits, logits[:, ::-1], logits[..., ::-1], np.asfortranarray(logits)):
        found = demur.decompose(logits=given).epistemic
        found = found[::-1] if given.strides[1] < 0 else found
        np.testing.assert_allclose(found, exact.epistemic, rtol=5e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [5, 100])
def test_members_without_weight_add_nothing_whatever_they_hold(classes, dtype) -> None:
    """Also where they allow a class that all others exclude, or hold what is no number."""
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (9, 800, classes)).astype(dtype)
    logits[:, :300, 1] = -np.inf
    odd = logits.copy()
    odd[4, :300, 1] = 41.0
    odd[4, 300] = np.nan
    odd[4, 301, 2] = np.inf
    for weights in (np.ones(9), np.ones((9, 800)), rng.exponential(size=(9, 800))):
        weights = weights.copy()
        weights[4] = 0.0
        expected = demur.decompose(logits=np.delete(logits, 4, 0), weights=np.delete(weights, 4, 0))
        found = demur.decompose(logits=odd, weights=weights)
        tolerance = 1e-12 if dtype == np.float64 else 6e-6
        np.testing.assert_allclose(found.epistemic, expected.epistemic, rtol=tolerance)
        np.testing.assert_allclose(found.aleatoric, expected.aleatoric, rtol=tolerance)


@pytest.mark.parametrize("classes", [8, 64, 65, 1000])
def test_exponents_too_large_for_float32_are_noticed(classes, monkeypatch) -> None:
    """A class that nearly all members exclude, and one is sure of; all other classes tie."""
    monkeypatch.setattr(kernels, "SMALLEST", 1)
    cases = ((8, 60.0, None), (5, 31.0, None), (2, 60.0, [1, 1e-4]), (2, 28.0, [1, 1e-6]))
    for count, far, weights in cases:
        logits = np.zeros((count, 20, classes), np.float32)
        logits[..., 0] = -59.5
        logits[-1, :, 0] = far
        for measure in ("pairwise", "average"):
            single = demur.decompose(logits=logits, weights=weights, measure=measure)
            double = demur.decompose(logits=logits.astype(np.float64), weights=weights, measure=measure)
            np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=6e-6)
            np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=6e-6)


@pytest.mark.parametrize("moved", [30.0, 1e3, 2.5e4])
@pytest.mark.parametrize("gap", [16, 28, 32])
@pytest.mark.parametrize("classes", [3, 10, 70])
def test_certain_members_whose_logits_move_together(classes, gap, moved, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "SMALLEST", 1)
    rng = np.random.default_rng(0)
    logits = -gap * (np.arange(classes) > 0.0) + 0.003 * rng.normal(size=(4, 40, classes))
    logits = (logits + moved * rng.normal(size=(4, 40, 1))).astype(np.float32)
    for measure in ("pairwise", "average"):
        single = demur.decompose(logits=logits, measure=measure).epistemic
        double = demur.decompose(logits=logits.astype(np.float64), measure=measure).epistemic
        np.testing.assert_allclose(single, double, rtol=6e-6)


@pytest.mark.parametrize("moved", [0.0, 4.0, 14.0])
@pytest.mark.parametrize("classes", [10, 64, 100])
def test_members_that_repeat_repeat_their_errors(classes, moved) -> None:
    """As a chain that stays has them: many members, and nothing averages out."""
    rng = np.random.default_rng(0)
    two = np.array([[[0.4]], [[0.8]]]) * rng.normal(size=(2, 64, classes))
    two[1] += moved
    logits = np.tile(two, (500, 1, 1))[rng.permutation(1000)].astype(np.float32)
    for measure in ("pairwise", "average"):
        single = demur.decompose(logits=logits, measure=measure)
        double = demur.decompose(logits=logits.astype(np.float64), measure=measure)
        np.testing.assert_allclose(single.epistemic, double.epistemic, rtol=1e-5)
        np.testing.assert_allclose(single.aleatoric, double.aleatoric, rtol=1e-5)


def random_case(rng) -> dict:
    """Return logits, or log-probabilities, and weights: any agreement, any layout, few and many classes."""
    classes = int(rng.choice([2, 3, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 66, 80, 81, 129, 500]))
    members, inputs = int(rng.choice([1, 2, 3, 4, 5, 8, 9, 13, 33, 40])), int(rng.integers(1, 60))
    shape = (members, inputs, classes)
    spread = rng.choice([0, 1e-5, 1e-3, 0.05, 0.3, 1, 3, 10, 30]) * rng.choice([1, 0.01], (inputs, 1))
    logits = rng.choice([0, 0.5, 3, 8, 20]) * rng.normal(size=shape[1:]) + spread * rng.normal(size=shape)
    logits *= rng.choice([1, 1, 0.3, 3], (members, 1, 1))  # some cold, some hot
    logits += rng.choice([0, 1, 10, 100]) * rng.normal(size=(members, 1, 1))
    if rng.random() < 0.15:
        logits[..., 1:][rng.random((members, inputs, classes - 1)) < 0.02] = -np.inf
    weights = None
    if rng.random() < 0.4:
        weights = rng.exponential(size=shape[: rng.integers(1, 3)]) * 10.0 ** rng.integers(-3, 3)
        weights[1:][rng.random(weights[1:].shape) < 0.3] = 0.0
    if rng.random() < 0.2:
        name, given = "log_probs", logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    else:
        name, given = "logits", logits
    order = rng.permutation(3)
    laid_out = np.ascontiguousarray(given.astype(np.float32).transpose(order)).transpose(np.argsort(order))
    return {name: laid_out, "weights": weights}


@pytest.mark.parametrize("seed", range(4))
def test_float32_is_right_to_1e_5_whatever_comes(seed, monkeypatch) -> None:
    """Compare with float64 arithmetic on the same numbers; all go through the loops for large arrays."""
    monkeypatch.setattr(kernels, "SMALLEST", 1)
    rng = np.random.default_rng(seed)
    for _ in range(60):
        given = random_case(rng)
        exact = {name: None if v is None else v.astype(np.float64) for name, v in given.items()}
        pairs = [(demur.Moments().update(**each).decompose() for each in (given, exact))]
        for measure in ("pairwise", "average"):
            pairs.append(demur.decompose(measure=measure, **each) for each in (given, exact))
        for single, double in pairs:
            for part in ("total", "aleatoric", "epistemic"):
                found, expected = getattr(single, part), getattr(double, part)
                # Below 1e-35 a result that is float32 has fewer digits.
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-35)


@pytest.mark.parametrize("alone", [True, False])
def test_processes_that_save_at_once_do_not_mix_their_code(alone, monkeypatch, tmp_path) -> None:
    """Control: without the lock, numba leaves the index of one and the code of the other."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    if not alone:
        monkeypatch.setattr(arithmetic, "keep_one_at_a_time", lambda cache: None)

    def double(x):
        return 2 * x

    # Two dispatchers stand for two processes: each compiles for a type of its own, then both save.
    both, compiled = [arithmetic.cached(double) for _ in range(2)], []
    saves = [each._cache.save_overload for each in both]
    for each, number in zip(both, (1.5, 2), strict=True):
        each._cache.save_overload = lambda *result: compiled.append(result)
        each(number)
    met = threading.Barrier(2)
    write_index, write_data = caching.IndexDataCacheFile._save_index, caching.IndexDataCacheFile._save_data

    def index_of_whole_numbers_last(self, overloads):
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait(0.5)
        time.sleep(0.1 if threading.current_thread().name == "whole" else 0.0)
        write_index(self, overloads)

    def data_of_fractions_last(self, name, data):
        time.sleep(0.4 if threading.current_thread().name == "fraction" else 0.0)
        write_data(self, name, data)

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_index", index_of_whole_numbers_last)
    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", data_of_fractions_last)
    threads = [
        threading.Thread(target=save, args=result, name=name)
        for name, save, result in zip(("fraction", "whole"), saves, compiled, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(arithmetic.cached(double)(2), int) == alone


def test_where_nothing_can_be_written_the_kernel_is_compiled_anew(monkeypatch) -> None:
    tried = []

    def refuse_to_cache(**options):
        tried.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(arithmetic, "njit", refuse_to_cache)

    def double(x):
        return 2 * x

    assert arithmetic.cached(double)(21) == 42
    assert [bool(options.get("cache")) for options in tried] == [True, False]
