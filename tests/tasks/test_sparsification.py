"""Error over the fraction kept, against loops over what is kept."""

import itertools

import numpy as np
import pytest

from demur.tasks import sparsification
from demur.tasks.sparsification import (
    _ERRORS,
    _influence,
    area_between,
    order_losses,
    remaining_error,
)


def slow_curve(scores, errors, power):
    """Error of k inputs kept, by all orders that the scores allow: the mean loss over them, then the root."""
    number = len(scores)
    orders = [
        order for order in itertools.permutations(range(number)) if np.all(np.diff(scores[list(order)]) >= 0)
    ]
    losses = np.abs(errors) ** power
    curve = []
    for kept in range(1, number + 1):
        means = [losses[list(order[:kept])].mean() for order in orders]
        curve.append(np.mean(means) ** (1 / power))
    return np.array(curve)


@pytest.mark.parametrize(("error", "power"), [("rmse", 2), ("mae", 1)])
def test_curves_are_those_of_loops_with_ties(error, power):
    rng = np.random.default_rng(0)
    scores, errors = rng.integers(0, 4, 7).astype(float), rng.normal(size=7)
    scores[scores == 3] = np.inf
    found = sparsification(scores, errors, error=error, resamples=100)
    curve, oracle = slow_curve(scores, errors, power), slow_curve(np.abs(errors), errors, power)
    np.testing.assert_allclose(found.curve.error, curve, rtol=1e-12)
    np.testing.assert_allclose(found.oracle.error, oracle, rtol=1e-12)
    np.testing.assert_allclose(found.curve.kept, np.arange(1, 8) / 7)
    assert float(found.ause) == pytest.approx(np.mean(curve - oracle) / curve[-1], rel=1e-12)


def test_scores_that_follow_the_errors_are_the_oracle_and_others_are_not():
    errors = np.random.default_rng(1).normal(size=500)
    assert float(sparsification(np.abs(errors) ** 3, errors, resamples=100).ause) == 0
    random = sparsification(np.random.default_rng(2).normal(size=500), errors, resamples=200).ause
    worst = sparsification(-np.abs(errors), errors, resamples=100).ause
    assert 0.3 < random.low < float(random) < random.high < float(worst)


def test_a_constant_score_keeps_the_error_of_all():
    errors = np.array([3.0, -4.0, 0.0, 1.0])
    found = sparsification(np.zeros(4), errors, resamples=100)
    np.testing.assert_allclose(found.curve.error, np.sqrt(np.mean(errors**2)))


def test_the_unit_of_the_errors_does_not_matter_and_a_seed_fixes_the_interval():
    rng = np.random.default_rng(3)
    errors = rng.normal(size=100)
    scores = np.abs(errors) + rng.normal(size=100)
    first, second = (sparsification(scores, scale * errors, resamples=200).ause for scale in (1, 2**10))
    assert first == second


def test_resamples_are_those_of_repeated_inputs():
    """The interval's ends, from resamples that are spelled out."""
    rng = np.random.default_rng(4)
    errors, scores = rng.normal(size=40), rng.integers(0, 9, 40).astype(float)
    found = sparsification(scores, errors, resamples=100, seed=5).ause
    draws, areas = np.random.default_rng([5, 0xDE3]), []
    for _ in range(100):
        rows = draws.integers(0, 40, 40, dtype=np.uint32)
        again = sparsification(scores[rows], errors[rows], resamples=100)
        areas.append(float(again.ause))
    np.testing.assert_allclose([found.low, found.high], np.quantile(areas, [0.025, 0.975]), rtol=1e-9)


@pytest.mark.parametrize(
    ("scores", "errors", "options", "message"),
    [
        ([1.0, 2.0], [1.0], {}, r"one number per score, shape \(2,\). Got float64 of shape \(1,\)"),
        ([1.0, 2.0], [1.0, np.nan], {}, "errors must be finite. Got 1"),
        ([1.0, 2.0], [0.0, 0.0], {}, "nothing to rank"),
        ([1.0, np.nan], [0.0, 1.0], {}, "scores must be numbers or infinity"),
        ([1.0, 2.0], [0.0, 1.0], {"error": "mse"}, "error must be one of 'rmse', 'mae'. Got 'mse'"),
        ([1.0, 2.0], [0.0, 1.0], {"resamples": 5}, "resamples must be at least 100"),
    ],
)  # fmt: skip
def test_bad_input_is_told(scores, errors, options, message):
    with pytest.raises(ValueError, match=message):
        sparsification(scores, errors, **options)


@pytest.mark.parametrize("error", ["rmse", "mae"])
@pytest.mark.parametrize("ties", [False, True])
def test_influence_is_the_derivative_by_the_weight_of_an_input(error, ties):
    """With many copies of all inputs, some more or fewer of one: the area changes as the influence says."""
    rng = np.random.default_rng(0)
    scores, errors = rng.normal(size=30), rng.normal(size=30)
    errors[:2] = 0
    if ties:
        scores, errors = np.round(scores), np.round(2 * errors) / 2
    kind = _ERRORS[error]
    copies = 2000
    found = _influence(np.repeat(scores, copies), np.repeat(errors, copies), kind)[::copies]
    whole = order_losses(scores, kind.loss(errors)), order_losses(np.abs(errors), kind.loss(errors))
    for index in range(0, 30, 3):
        areas = []
        for more in (-20, 20):
            counts = np.full(30, copies) + more * (np.arange(30) == index)
            areas.append(area_between(*(remaining_error(each, kind.root, counts) for each in whole)))
        slope = (areas[1] - areas[0]) * 30 * copies / 40
        assert slope == pytest.approx(found[index], rel=0.01, abs=2e-3)
