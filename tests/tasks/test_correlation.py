"""Rank correlation: SciPy's value, ties and infinities, and an interval that covers."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from demur.tasks import rank_correlation


@pytest.mark.parametrize("levels", [3, 20, None])
def test_the_value_is_scipys_with_and_without_ties(levels):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = x + rng.normal(size=200)
    if levels:
        y = np.floor(y * levels / 6)
    found = rank_correlation(x, y, resamples=100)
    assert found.value == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert found.low < found.value < found.high


def test_resamples_are_those_of_repeated_inputs():
    """The weights of a resample stand for inputs that are there so many times."""
    from demur.tasks.correlation import correlation

    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 6, (2, 40))
    rows = rng.integers(0, 40, 40)
    levels = [np.unique(each, return_inverse=True)[1] for each in (x, y)]
    found = correlation(levels, np.bincount(rows, minlength=40).astype(float))
    assert found == pytest.approx(spearmanr(x[rows], y[rows]).statistic, abs=1e-12)


def test_influence_is_the_derivative_by_the_weight_of_an_input():
    from demur.tasks.correlation import _influence, correlation

    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, 40)
    levels = [np.unique(each, return_inverse=True)[1] for each in (x, x + rng.integers(0, 4, 40))]
    found = _influence(levels)
    for index in range(40):
        step = 40 * 1e-5 * (np.arange(40) == index)
        slope = (correlation(levels, 1 + step) - correlation(levels, 1 - step)) / 2e-5
        assert slope == pytest.approx(found[index], abs=1e-8)


def test_infinite_scores_rank_above_all():
    x = np.array([1.0, 2.0, 3.0, np.inf, np.inf])
    finite = np.array([1.0, 2.0, 3.0, 9.0, 9.0])
    y = np.array([2.0, 1.0, 3.0, 5.0, 4.0])
    assert rank_correlation(x, y).value == rank_correlation(finite, y).value


@pytest.mark.parametrize("runs", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_the_interval_covers(runs):
    """Draws of 150 inputs with a known correlation; 95 % nominal. Of 300, 3 standard errors are 3.8 %."""
    rng, rho, inside = np.random.default_rng(2), 0.6, 0
    truth = 6 / np.pi * np.arcsin(rho / 2)
    for draw in range(runs):
        x, noise = rng.normal(size=(2, 150))
        found = rank_correlation(x, rho * x + np.sqrt(1 - rho**2) * noise, resamples=300, seed=draw)
        inside += found.low <= truth <= found.high
    assert 0.95 - 3 * np.sqrt(0.95 * 0.05 / runs) <= inside / runs
    assert runs < 300 or inside / runs <= 0.985


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2, 3], "must be of the same inputs. Got 2 and 3"),
        ([1, 1, 1], [1, 2, 3], "two different values"),
        ([1, np.nan, 2], [1, 2, 3], "NaN for 1 of 3"),
    ],
)
def test_bad_input_is_told(x, y, message):
    with pytest.raises(ValueError, match=message):
        rank_correlation(x, y)
