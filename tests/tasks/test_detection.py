"""Ranking figures against scikit-learn, pairs counted in loops, and intervals by simulation."""

import time

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from demur.tasks import detection, misclassification
from demur.tasks.levels import average_precision, average_precision_influence, count_levels


def draw(kind, seed, number=80):
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(0, 1, number), rng.normal(0.8, 1.3, number // 2 + 3)
    if kind == "tied":
        return known.round(), unknown.round()
    if kind == "constant":
        return np.zeros(number), np.zeros(7)
    if kind == "infinite":
        known[:3], unknown[:9], unknown[9:12] = np.inf, np.inf, -np.inf
    return known, unknown


def finite(known, unknown):
    """Scikit-learn takes no infinities; numbers beyond all others rank the same."""
    both = np.concatenate([known, unknown])
    return np.clip(both, -1e6, 1e6), np.repeat([0, 1], [len(known), len(unknown)])


@pytest.mark.parametrize("kind", ["plain", "tied", "constant", "infinite"])
@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_scikit_learn(kind, seed) -> None:
    known, unknown = draw(kind, seed)
    found = detection(known, unknown, resamples=100)
    scores, truth = finite(known, unknown)
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert float(found.auroc) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert float(found.aupr) == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
    assert float(found.fpr95) == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1e-12)
    np.testing.assert_allclose(found.curve.fpr, fpr, atol=1e-12)
    np.testing.assert_allclose(found.curve.tpr, tpr, atol=1e-12)
    for figure in (found.auroc, found.aupr, found.fpr95):
        assert 0 <= figure.low <= figure.value <= figure.high <= 1


def test_order_of_inputs_does_not_matter() -> None:
    known, unknown = draw("tied", 0)
    rng = np.random.default_rng(1)
    there, back = detection(known, unknown), detection(rng.permutation(known), rng.permutation(unknown))
    assert there.to_dict() == back.to_dict()


def test_misclassification_takes_errors_as_positives() -> None:
    known, unknown = draw("tied", 3)
    scores, correct = np.concatenate([known, unknown]), np.repeat([True, False], [len(known), len(unknown)])
    found, same = misclassification(scores, correct, resamples=200), detection(known, unknown, resamples=200)
    for name in ("auroc", "aupr", "fpr95"):
        assert float(getattr(found, name)) == float(getattr(same, name))


@pytest.mark.parametrize("number", [1, 5, 50])
def test_a_perfect_ranking_of_few_inputs_proves_little(number) -> None:
    found = detection(np.zeros(number), np.ones(number))
    assert (found.auroc.value, found.aupr.value, found.fpr95.value) == (1, 1, 0)
    # An AUROC of `low` puts all of so many separate pairs in order with probability 0.025.
    assert found.auroc.low**number == pytest.approx(0.025)
    assert found.auroc.high == 1
    # All of so few positives may lie above the threshold: then nothing is known of the rate at it.
    assert found.aupr.low < 1 and found.fpr95.high == 1
    worst = detection(np.ones(number), np.zeros(number)).auroc
    assert worst.value == worst.low == 0
    assert worst.high == pytest.approx(1 - found.auroc.low)


def test_fpr95_is_binomial_in_threshold_and_rate() -> None:
    # 400 positives surely have some below the threshold, so the end is Clopper-Pearson's of none out of 90.
    found = detection(np.zeros(90), np.ones(400)).fpr95
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 90), rel=1e-6)
    # Against the mixture drawn at random: a threshold between neighbours, then a rate of the alarms there.
    known, unknown = draw("infinite", 0, 300)
    rng = np.random.default_rng(0)
    ordered = np.concatenate([[-np.inf], np.sort(unknown), [np.nan]])  # nothing is above NaN
    below = rng.binomial(len(unknown), 0.05, 100_000) + rng.integers(0, 2, 100_000)
    alarms = np.array([np.sum(known >= t) for t in ordered])[below]
    low = np.quantile(rng.beta(alarms, 300 - alarms + 1), 0.025)
    high = np.quantile(rng.beta(alarms + 1, np.maximum(300 - alarms, 1e-9)), 0.975)
    found = detection(known, unknown, resamples=100).fpr95
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.005)


def test_delong_variance_is_that_of_loops() -> None:
    known, unknown = draw("tied", 5)
    kernel = (unknown[:, None] > known) + (unknown[:, None] == known) / 2
    variance = kernel.mean(1).var(ddof=1) / len(unknown) + kernel.mean(0).var(ddof=1) / len(known)
    auc = kernel.mean()
    half = norm.ppf(0.975) * np.sqrt(variance) / (auc * (1 - auc))
    found = detection(known, unknown, resamples=100).auroc
    logits = np.log(auc / (1 - auc)) + np.array([-half, half])
    np.testing.assert_allclose([found.low, found.high], 1 / (1 + np.exp(-logits)), rtol=1e-12)


def test_influence_of_precision_is_its_derivative() -> None:
    known, unknown = draw("tied", 2)
    levels = count_levels(
        np.concatenate([known, unknown]), np.arange(len(known) + len(unknown)) >= len(known)
    )
    p, n = levels.positive.astype(float) + 2, levels.negative.astype(float) + 2
    of_positive, of_negative = average_precision_influence(p, n)
    h = 1e-6
    for level in range(len(p)):
        step = h * (np.arange(len(p)) == level)
        by_p = (average_precision(p + step, n) - average_precision(p - step, n)) / (2 * h)
        by_n = (average_precision(p, n + step) - average_precision(p, n - step)) / (2 * h)
        assert of_positive[level] == pytest.approx(by_p, abs=1e-8)
        assert of_negative[level] == pytest.approx(by_n, abs=1e-8)


def test_asymptotic_and_bootstrap_intervals_agree_for_many_inputs() -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(0, 1, 4000), rng.normal(1, 1, 4000)
    drawn = detection(known, unknown, interval="bootstrap", resamples=500)
    formula = detection(known, unknown, interval="asymptotic")
    a, b = drawn.aupr, formula.aupr
    assert a.value == b.value
    assert (b.high - b.low) == pytest.approx(a.high - a.low, rel=0.15)


def test_a_seed_fixes_the_intervals() -> None:
    known, unknown = draw("plain", 0)
    assert detection(known, unknown, seed=3).to_dict() == detection(known, unknown, seed=3).to_dict()
    assert detection(known, unknown, seed=3).to_dict() != detection(known, unknown, seed=4).to_dict()


def test_splits_are_disjoint_and_give_their_spread() -> None:
    known, unknown = draw("plain", 0, 300)
    found = detection(known, unknown, splits=3).auroc
    assert found.method == "splits" and found.spread is not None and found.spread > 0
    assert str(found) == f"{found.value:.4f} ± {found.spread:.4f}"
    with pytest.raises(ValueError, match=r"splits must be from 2 to .* 2\. Got 3"):
        detection([1.0, 2.0], [3.0, 4.0, 5.0], splits=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: detection([], [1.0]), r"id_scores must be one number per input.*shape \(0,\)"),
        (lambda: detection([1.0], [[1.0]]), r"ood_scores must be one number per input.*\(1, 1\)"),
        (lambda: detection([1.0, np.nan], [1.0]), r"Got NaN for 1 of 2 inputs, first at input 1"),
        (lambda: misclassification([1.0, 2.0], [True, True]), "Got 2 that are all right"),
        (lambda: misclassification([1.0, 2.0], [0, 0]), "Got 2 that are all wrong"),
        (lambda: misclassification([1.0, 2.0], [True]), r"correct must have shape \(2,\)"),
        (lambda: misclassification([1.0, 2.0], [3, 4]), "correct must be True"),
        (lambda: detection([1.0], [2.0], confidence=95), "confidence must be between 0 and 1"),
        (lambda: detection([1.0], [2.0], interval="wald"), "interval must be 'auto'"),
        (lambda: detection([1.0], [2.0], resamples=3), "resamples must be at least 100"),
    ],
)
def test_bad_input_is_told(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_many_scores_take_seconds() -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(0, 1, 500_000), rng.normal(1, 1, 500_000)
    begin = time.process_time()
    found = detection(known, unknown)
    assert time.process_time() - begin < 5
    assert float(found.auroc) == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.003)


def test_intervals_hold_their_values_also_at_the_extremes() -> None:
    """All positives below all negatives: resampled precision lies above its value."""
    found = detection(np.linspace(1, 2, 400), np.linspace(0, 0.5, 180))
    for each in (found.auroc, found.aupr, found.fpr95):
        assert each.low <= each.value <= each.high
