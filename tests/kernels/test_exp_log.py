"""Exponentials and logarithms of compiled loops: single numbers and vectors, float32 and float64."""

import mpmath
import numpy as np
import pytest
from numba import njit

from demur.kernels import exp_log, vectors


def apply_to_vectors(function):
    """Return a function that applies one of ``exp_log`` to an array of numbers, sixteen at a time."""

    @njit
    def each(x, out):
        for i in range(0, x.size, vectors.LANES):
            vectors.store(out, i, function(vectors.load(x, i)))

    def apply(x):
        padded = np.zeros(-(-x.size // vectors.LANES) * vectors.LANES, x.dtype)
        padded[: x.size] = x
        out = np.empty_like(padded)
        each(padded, out)
        return out[: x.size]

    return apply


def apply_to_numbers(function):
    """Do so one number at a time."""

    @njit
    def each(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    def apply(x):
        out = np.empty_like(x)
        each(x, out)
        return out

    return apply


WAYS = {"numbers": apply_to_numbers, "vectors": apply_to_vectors}


@pytest.fixture(params=WAYS, scope="module")
def functions(request):
    """Every function, compiled once for each way to call it."""
    names = ("exp", "rough_exp", "expm1", "log", "log1p")
    return {name: WAYS[request.param](getattr(exp_log, name)) for name in names}


def relative_errors(found, function, x):
    with mpmath.workdps(40):
        exact = np.array([float(function(mpmath.mpf(float(v)))) for v in x])
    return np.abs(found / exact - 1)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-2, 0.3, 3.0, 30.0, 200.0])
def test_exponential(functions, scale) -> None:
    x = np.clip(np.random.default_rng(0).normal(size=500) * scale, -690.0, 690.0)
    # An exponent rounded to eps of itself moves the result by as much.
    tolerance = 6e-16 * max(1.0, np.abs(x).max())
    assert relative_errors(functions["expm1"](x), mpmath.expm1, x).max() < tolerance
    assert relative_errors(functions["exp"](x), mpmath.exp, x).max() < tolerance


def test_exponential_is_bounded(functions) -> None:
    """Beyond, there is no exponential that products with other numbers leave finite."""
    for kind, farthest in ((np.float32, 87), (np.float64, 708)):
        far = np.array([-1e30, -np.inf, np.nan, 1e30, np.inf], kind)
        bounds = np.array([-farthest, -farthest, -farthest, farthest, farthest], kind)
        for name in ("exp", "expm1"):
            np.testing.assert_array_equal(functions[name](far), functions[name](bounds))
    assert functions["expm1"](np.zeros(1)) == 0.0 and functions["exp"](np.zeros(1)) == 1.0


def test_both_exponentials_at_once() -> None:
    @njit
    def both(x, out):
        for i in range(x.size):
            out[0, i], out[1, i] = exp_log.expm1_and_exp(x[i])

    x, out = np.linspace(-40, 40, 301), np.empty((2, 301))
    both(x, out)
    np.testing.assert_allclose(out, [np.expm1(x), np.exp(x)], rtol=2e-14)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-2, 0.3, 3.0, 30.0])
def test_single_exponential(functions, scale) -> None:
    x = np.clip(np.random.default_rng(0).normal(size=500) * scale, -80.0, 80.0).astype(np.float32)
    tolerance = 3e-7 * max(1.0, np.abs(x).max() / 8)
    for name, exact in (("expm1", mpmath.expm1), ("exp", mpmath.exp), ("rough_exp", mpmath.exp)):
        assert relative_errors(functions[name](x).astype(np.float64), exact, x).max() < tolerance
    nothing = np.zeros(1, np.float32)
    assert functions["expm1"](nothing) == 0.0 and functions["rough_exp"](nothing) == 1.0


@pytest.mark.parametrize("scale", [1e-14, 1e-8, 1e-3, 0.3, 3.0, 1e6, 1e200])
def test_logarithm(functions, scale) -> None:
    x = np.random.default_rng(1).normal(size=500) * scale
    x = np.where(x > -0.999, x, -x)
    assert relative_errors(functions["log1p"](x), mpmath.log1p, x).max() < 1e-15
    positive = np.abs(x) + 1e-200
    np.testing.assert_allclose(functions["log"](positive), np.log(positive), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 0.3, 3.0, 1e6, 1e20])
def test_single_logarithm(functions, scale) -> None:
    x = (np.random.default_rng(1).normal(size=500) * scale).astype(np.float32)
    x = np.where(x > -0.99, x, -x)
    found = functions["log1p"](x).astype(np.float64)
    assert relative_errors(found, mpmath.log1p, x).max() < 3e-7
    positive = np.abs(x) + np.float32(1e-30)
    exact = np.log(positive.astype(np.float64))
    np.testing.assert_allclose(functions["log"](positive), exact, rtol=2e-7, atol=2e-7)


def test_logarithm_of_nothing_is_finite(functions) -> None:
    """0 log 0 = 0 comes out by itself, also where rounding went below -1."""
    assert np.isfinite(functions["log1p"](np.array([-1.0, np.nextafter(-1.0, -2.0)]))).all()
