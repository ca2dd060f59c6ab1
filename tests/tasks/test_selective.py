"""Accuracy over the fraction kept against loops over all orders of ties."""

import numpy as np
import pytest
from reference.selective import area_under_generalized_risk, list_orders, prediction_rejection_ratio
from sklearn.metrics import roc_auc_score

from demur.tasks import compare, misclassification, selective
from demur.tasks.kept_areas import (
    area_influence,
    area_of,
    excess_influence,
    excess_of,
    generalized_risk_influence,
    generalized_risk_of,
)
from demur.tasks.selective import count_right_and_wrong


def by_loops(scores, correct) -> np.ndarray:
    """Average the curve over all orders of the inputs that agree with the scores."""
    curves = [
        np.cumsum(np.asarray(correct)[list(order)]) / np.arange(1, len(scores) + 1)
        for order in list_orders(scores)
    ]
    return np.mean(curves, axis=0)


@pytest.mark.parametrize("seed", range(6))
def test_ties_are_the_mean_over_their_orders(seed) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.choice([0.0, 1.0, 2.0, np.inf], 7)
    correct = rng.uniform(size=7) < 0.6
    found = selective(scores, correct, resamples=100)
    expected = by_loops(scores, correct)
    np.testing.assert_allclose(found.curve.accuracy, expected, atol=1e-14)
    assert float(found.auc) == pytest.approx(expected.mean(), abs=1e-14)
    assert float(found.aurc) == pytest.approx(1 - expected.mean(), abs=1e-14)
    best = by_loops(np.arange(7), np.sort(correct)[::-1]).mean()
    assert float(found.excess) == pytest.approx(best - expected.mean(), abs=1e-14)
    assert float(found.augrc) == pytest.approx(area_under_generalized_risk(scores, correct), abs=1e-14)
    ratio = prediction_rejection_ratio(scores, correct)
    assert float(found.prr) == pytest.approx(ratio, abs=1e-13) and found.prr.low <= ratio <= found.prr.high
    for kept in range(1, 8):
        assert float(found.accuracy_at(kept / 7)) == pytest.approx(expected[kept - 1], abs=1e-12)
    for target in (0.3, 0.5, 0.65, 0.9):
        good = np.flatnonzero(expected >= target)
        assert float(found.coverage_at(target)) == pytest.approx((good[-1] + 1) / 7 if len(good) else 0)


@pytest.mark.parametrize("kept", [0.2, 0.55, 1.0])
def test_the_curve_does_not_depend_on_the_number_of_inputs(kept) -> None:
    # One ranking at n = 99 and n = 100: accuracy 0.9 in the certain half, 0.6 in the other, all tied.
    curves = []
    for number in (99, 100, 9900):
        scores = np.arange(number) >= number / 2
        values = selective(scores.astype(float), np.arange(number) % 3 > 0, resamples=100)
        curves.append(np.interp(kept, *values.curve))
    assert np.ptp(curves) < 0.01
    assert float(selective(np.zeros(99), np.arange(99) % 3 > 0).auc) == pytest.approx(2 / 3, abs=1e-15)


def test_constant_scores_have_the_accuracy_everywhere() -> None:
    found = selective(np.full(100, np.inf), np.arange(100) < 80)
    np.testing.assert_allclose(found.curve.accuracy, 0.8, rtol=1e-14)
    assert float(found.auc) == pytest.approx(0.8, abs=1e-14)


def test_all_right_is_not_certain_to_stay_so() -> None:
    found = selective(np.arange(50.0), np.ones(50, bool))
    assert (found.auc.value, found.auc.high, found.excess.value) == (1, 1, 0)
    assert found.auc.low == pytest.approx(0.025 ** (1 / 50))
    assert float(selective(np.arange(5.0), np.zeros(5)).auc) == 0


def test_influence_is_what_leaving_inputs_out_shows() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000).round(1)
    correct = rng.uniform(size=20_000) < 0.8
    right, wrong = count_right_and_wrong(scores, correct)
    figures = (
        (area_of, area_influence),
        (excess_of, excess_influence),
        (generalized_risk_of, generalized_risk_influence),
    )
    for figure, influences in figures:
        for level in (1, 20, 40):
            for kind, of_kind in enumerate(influences(right, wrong)):
                more = [right.copy(), wrong.copy()]
                more[kind][level] += 1
                change = figure(*more) - figure(right, wrong)
                assert change == pytest.approx(of_kind[level], rel=0.03, abs=1e-6)


def test_a_perfect_ranking_of_few_errors_proves_little() -> None:
    found = selective(np.arange(50.0), np.arange(50) < 40)
    assert (found.excess.value, found.excess.low) == (0, 0)
    # The share of errors that may come before all others, by the integral of the accuracy over shares kept.
    first, c = 0.2 * (1 - 0.025 ** (1 / 10)), np.linspace(1e-9, 1, 2_000_001)
    best, worst = np.minimum(1, 0.8 / c), np.clip((c - first) / c, 0, 0.8 / c)
    assert found.excess.high == pytest.approx(np.mean(best - worst), abs=1e-5)


def test_many_inputs_take_the_formula() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=120_000)
    correct = rng.uniform(size=120_000) > scores / 2
    found = selective(scores, correct)
    assert found.auc.method == "asymptotic"
    assert found.auc.low < 0.875 < found.auc.high  # accuracy 1 - c/4 of the share c
    drawn = selective(scores[:9000], correct[:9000], resamples=400).auc
    formula = selective(scores[:9000], correct[:9000], interval="asymptotic").auc
    assert formula.high - formula.low == pytest.approx(drawn.high - drawn.low, rel=0.15)


def test_splits_and_bad_input() -> None:
    rng = np.random.default_rng(0)
    found = selective(rng.uniform(size=90), rng.uniform(size=90) < 0.7, splits=3)
    assert found.auc.spread is not None and found.aurc.spread == found.auc.spread
    with pytest.raises(ValueError, match="coverage must be above 0"):
        found.accuracy_at(0)
    with pytest.raises(ValueError, match="accuracy must be above 0"):
        found.coverage_at(2)


@pytest.mark.parametrize("ties", [False, True])
def test_formulas_of_shares_and_accuracies_agree_with_resampling(ties) -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(size=5001)
    correct = rng.uniform(size=5001) > scores / 2
    scores = np.floor(20 * scores) if ties else scores
    formula = selective(scores, correct)
    drawn = selective(scores, correct, interval="bootstrap", resamples=500)
    pairs = [(formula.accuracy_at(c), drawn.accuracy_at(c)) for c in (0.1, 0.6, 0.97, 1.0)]
    pairs += [(formula.coverage_at(a), drawn.coverage_at(a)) for a in (0.8, 0.85, 0.9)]
    for a, b in pairs:
        assert (a.method, b.method) == ("asymptotic", "percentile") and a.value == pytest.approx(b.value)
        assert a.high - a.low == pytest.approx(b.high - b.low, rel=0.3)
        assert (a.low + a.high) / 2 == pytest.approx((b.low + b.high) / 2, abs=0.2 * (b.high - b.low))


def test_shares_of_many_inputs_at_the_ends() -> None:
    scores = np.arange(6000.0)
    found = selective(scores, scores < 5500)  # all errors last
    sure = found.accuracy_at(0.5)
    assert (sure.value, sure.high) == (1, 1) and sure.low == pytest.approx(0.025 ** (1 / 3000))
    whole = found.coverage_at(1.0)
    assert (whole.low, whole.high) == (0, whole.value) and whole.value == pytest.approx(5500 / 6000)
    assert found.coverage_at(0.5).value == found.coverage_at(0.5).low == 1
    none = selective(scores, scores < 0).coverage_at(0.9)
    assert (none.value, none.low) == (0, 0) and none.high < 0.01


def test_rejection_ratio_and_generalized_risk_are_those_of_their_papers() -> None:
    rng = np.random.default_rng(5)
    scores = rng.choice(12, 400) / 4.0
    correct = rng.uniform(size=400) > scores / 5
    found = selective(scores, correct)
    for order in (rng.permutation(400), np.arange(400)[::-1], np.argsort(correct, kind="stable")):
        again = selective(scores[order], correct[order])
        assert (again.augrc, again.prr) == (found.augrc, found.prr)  # the order of ties has no say
    errors = 1 - correct.mean()
    auroc = float(misclassification(scores, correct).auroc)
    closed = (1 - auroc) * errors * (1 - errors) + errors**2 / 2  # Traub et al. (2024), section 3
    assert float(found.augrc) == pytest.approx(closed, abs=1e-14)
    assert float(found.prr) == pytest.approx((errors / 2 - closed) / (errors / 2 - errors**2 / 2), abs=1e-12)
    ranked = np.argsort(np.argsort(correct, kind="stable"))
    best, worst = selective(-1.0 * ranked, correct), selective(ranked, correct)
    assert (float(best.prr), float(worst.prr)) == (1, -1)
    assert float(best.augrc) == pytest.approx(errors**2 / 2) and best.augrc.high > best.augrc.value
    assert float(selective(np.zeros(400), correct).prr) == 0


def test_rejection_ratio_without_errors_is_unknown() -> None:
    found = selective(np.arange(50.0), np.ones(50, bool))
    assert np.isnan(found.prr.value) and (found.prr.low, found.prr.high) == (-1, 1)
    share = 1 - 0.025 ** (1 / 50)
    assert (found.augrc.value, found.augrc.high) == (0, pytest.approx(share - share**2 / 2))
    wrong = selective(np.arange(50.0), np.zeros(50)).augrc
    assert (wrong.value, wrong.high, wrong.low) == (0.5, 0.5, pytest.approx((1 - share) ** 2 / 2))
    with pytest.raises(ValueError, match="both right and wrong"):
        compare(np.arange(5.0), np.arange(5.0), "selective", correct=np.ones(5), figure="prr")


@pytest.mark.parametrize("clusters", [False, True])
def test_intervals_of_new_figures_agree_with_resampling(clusters) -> None:
    rng = np.random.default_rng(2)
    scores = rng.uniform(size=2000).round(2)
    correct = rng.uniform(size=2000) > scores / 2
    options = {"clusters": rng.integers(300, size=2000)} if clusters else {}
    formula = selective(scores, correct, interval="asymptotic", **options)
    drawn = selective(scores, correct, interval="bootstrap", resamples=400, **options)
    ratio = drawn.figure(lambda r, w: np.array([estimate_of_prr(*each) for each in zip(r, w, strict=True)]))
    for a, b in ((formula.augrc, drawn.augrc), (formula.prr, ratio)):
        assert a.value == pytest.approx(b.value)
        assert a.high - a.low == pytest.approx(b.high - b.low, rel=0.2)
        assert (a.low + a.high) / 2 == pytest.approx((b.low + b.high) / 2, abs=0.15 * (b.high - b.low))
    a, b = scores, rng.uniform(size=2000).round(1)
    for figure, of in (("augrc", "augrc"), ("prr", "prr")):
        compared = compare(a, b, "selective", correct=correct, figure=figure, resamples=500, **options)
        other = selective(b, correct, interval="asymptotic")
        difference = float(getattr(formula, of)) - float(getattr(other, of))
        assert compared.difference.value == pytest.approx(difference, abs=1e-12)
        assert compared.difference.low < difference < compared.difference.high and compared.p_value < 0.01


def estimate_of_prr(right, wrong) -> float:
    scores = np.repeat(np.arange(2 * len(right)) // 2, np.stack([right, wrong], 1).ravel())
    correct = np.repeat(np.tile([True, False], len(right)), np.stack([right, wrong], 1).ravel())
    return 2 * float(roc_auc_score(~correct, scores)) - 1


def test_splits_average_the_new_figures() -> None:
    rng = np.random.default_rng(0)
    scores, correct = rng.uniform(size=90), rng.uniform(size=90) < 0.7
    found = selective(scores, correct, splits=3)
    assert found.prr.spread is not None and found.augrc.spread is not None
    assert -1 <= found.prr.low <= found.prr.value <= found.prr.high <= 1
