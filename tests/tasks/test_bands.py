"""Bands about curves: against loops, and how often they hold the truth."""

import numpy as np
import pytest
from scipy import stats

from demur.tasks import accuracy_band, best_accuracy, detection, misclassification, roc_band, selective
from demur.tasks.estimate import proportion


def drawn(seed, known=60, unknown=40, round_to=None):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 1, known), rng.normal(1, 1, unknown)
    return (a, b) if round_to is None else (a.round(round_to), b.round(round_to))


@pytest.mark.parametrize("round_to", [None, 0])
def test_the_roc_band_is_what_all_boxes_cover(round_to):
    found = detection(*drawn(0, round_to=round_to))
    curve, band = found.curve, roc_band(found)
    each = 1 - np.sqrt(0.95)
    e, f = (np.sqrt(np.log(2 / each) / (2 * n)) for n in (60, 40))
    for x, low, high in zip(*band, strict=True):
        above = [t for s, t in zip(curve.fpr, curve.tpr, strict=True) if s <= x + e]
        below = [t for s, t in zip(curve.fpr, curve.tpr, strict=True) if s >= x - e]
        assert high == min(1.0, max(above) + f)
        assert low == (1.0 if x == 1 else max(0.0, min(below) - f))
    assert (band.low <= curve.tpr).all() and (curve.tpr <= band.high).all()


def test_the_roc_band_holds_the_whole_true_curve():
    # TPR at FPR x of N(0, 1) against N(1, 1). Massart's bound holds for every n: at least 95 % of 400 draws,
    # less 3 standard errors of 0.011.
    x = np.linspace(0, 1, 201)
    truth = stats.norm.sf(stats.norm.isf(x) - 1)
    held = 0
    for seed in range(400):
        band = roc_band(detection(*drawn(seed), interval="asymptotic"), x)
        held += bool(((band.low <= truth) & (truth <= band.high)).all())
    assert held / 400 >= 0.95 - 3 * 0.011


def test_the_roc_band_begins_and_ends_where_every_curve_does():
    band = roc_band(detection(*drawn(0)), [0.0, 0.5, 1.0])
    assert band.low[0] == 0 and band.low[2] == band.high[2] == 1
    assert band.low[1] < band.high[1]


def test_a_wider_confidence_is_a_wider_band():
    found = detection(*drawn(1))
    narrow, wide = roc_band(found, confidence=0.5), roc_band(found, confidence=0.99)
    assert (wide.low <= narrow.low).all() and (wide.high >= narrow.high).all()


def test_infinite_scores_have_a_band():
    band = roc_band(misclassification([0.0, 1.0, np.inf, np.inf], [True, True, True, False]))
    assert np.isfinite(band.low).all() and np.isfinite(band.high).all()


def test_the_accuracy_band_is_clopper_pearson():
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=50)
    correct = rng.uniform(size=50) > scores / 2
    band = accuracy_band(selective(scores, correct, interval="asymptotic"), confidence=0.9)
    ranked = correct[np.argsort(scores)]
    for k, (at, low, high) in enumerate(zip(*band, strict=True), start=1):
        expected = proportion(int(ranked[:k].sum()), k, 0.9)
        assert (at, low, high) == (k / 50, pytest.approx(expected.low), pytest.approx(expected.high))


def test_ties_give_a_smooth_band_and_the_ends_are_exact():
    found = selective(np.zeros(10), [True] * 7 + [False] * 3, interval="asymptotic")
    band = accuracy_band(found)
    assert (np.diff(band.low) > 0).all() and (np.diff(band.high) < 0).all()
    assert band.low[-1] == pytest.approx(proportion(7, 10, 0.95).low)
    right = accuracy_band(selective([1.0, 2.0], [True, True], interval="asymptotic"))
    wrong = accuracy_band(selective([1.0, 2.0], [False, False], interval="asymptotic"))
    assert right.high.tolist() == [1, 1] and wrong.low.tolist() == [0, 0]
    with pytest.raises(ValueError, match="from 1 to 10"):
        accuracy_band(found, [0, 3])


def test_the_oracle_has_all_errors_last():
    rng = np.random.default_rng(0)
    correct = rng.uniform(size=40) < 0.7
    found = selective(rng.uniform(size=40), correct, interval="asymptotic")
    oracle = selective(~correct, correct, interval="asymptotic")
    np.testing.assert_allclose(best_accuracy(found), oracle.curve.accuracy)
    assert (best_accuracy(found) >= found.curve.accuracy).all()
