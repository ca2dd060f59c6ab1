"""Calibration against scikit-learn and loops."""

import math

import numpy as np
import pytest
from sklearn.metrics import log_loss

from demur.tasks import calibration


def draw(seed, number=400):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([0.5, 1, 2], number)
    labels = np.array([rng.choice(3, p=p) for p in probs])
    return probs, labels


def test_figures_are_those_of_loops() -> None:
    probs, labels = draw(0)
    found = calibration(probs, labels, bins=10, resamples=100)
    assert float(found.nll) == pytest.approx(log_loss(labels, probs), rel=1e-12)
    squares = [sum((p[c] - (c == y)) ** 2 for c in range(3)) for p, y in zip(probs, labels, strict=True)]
    assert float(found.brier) == pytest.approx(np.mean(squares), rel=1e-12)
    order = np.argsort(probs.max(1))
    right = (probs.argmax(1) == labels)[order]
    error = sum(
        abs(probs.max(1)[order][i : i + 40].mean() - right[i : i + 40].mean()) / 10 for i in range(0, 400, 40)
    )
    assert float(found.ece) == pytest.approx(error, rel=1e-12)
    np.testing.assert_array_equal(found.curve.number, 40)


def test_inputs_of_one_confidence_share_a_bin() -> None:
    found = calibration(np.full((30, 2), 0.5), np.arange(30) % 2, bins=7, resamples=100)
    assert found.curve.number.tolist() == [30]
    assert float(found.ece) == 0


def test_an_excluded_label_costs_infinity() -> None:
    found = calibration([[1.0, 0.0], [0.5, 0.5]], [1, 0], bins=1, resamples=100)
    assert (found.nll.value, found.nll.high) == (math.inf, math.inf)
    assert math.isfinite(found.brier.value)


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [0], r"probs must have shape \(inputs, classes\)"),
        ([[0.5, 0.6]], [0], "sum to one"),
        ([[0.5, np.nan]], [0], "sum to one"),
        ([[0.5, 0.5]], [2], "labels must be from 0 to 1"),
        ([[0.5, 0.5]], [0.5], "labels must be integers"),
    ],
)
def test_bad_input_is_told(probs, labels, message) -> None:
    with pytest.raises(ValueError, match=message):
        calibration(probs, labels, bins=1)
