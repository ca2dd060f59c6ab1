"""The compiled kernel: its arithmetic, its threads, and where it cannot be kept on disk."""

import mpmath
import numpy as np
import pytest
from numba import njit
from reference import members

import demur
from demur import kernels
from demur.kernels import arithmetic


@njit
def exponentials(x, like, out):
    for i in range(x.size):
        out[i] = arithmetic.expm1(x[i], like)


@njit
def logarithms(x, out):
    for i in range(x.size):
        out[i] = arithmetic.log1p(x[i])


def relative_errors(found, function, x):
    with mpmath.workdps(40):
        exact = np.array([float(function(mpmath.mpf(float(v)))) for v in x])
    return np.abs(found / exact - 1)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-2, 0.3, 3.0, 30.0, 200.0])
def test_exponential(scale) -> None:
    """Full precision for float64; for float32 1.5e-11 at most, falling with the exponent."""
    x = np.clip(np.random.default_rng(0).normal(size=500) * scale, -690.0, 690.0)
    out = np.empty_like(x)
    exponentials(x, np.float64(0), out)
    # An exponent rounded to eps of itself moves the result by as much.
    assert relative_errors(out, mpmath.expm1, x).max() < 6e-16 * max(1.0, np.abs(x).max())
    exponentials(x, np.float32(0), out)
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


@pytest.mark.parametrize("classes", [3, 100])
def test_one_thread_and_many_give_the_same_bytes(classes, monkeypatch) -> None:
    logits = members.ordinary(20, 400_000 // (20 * classes) + 500, classes)
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
