"""Scores and calibration of predicted numbers: against scipy and brute force, and intervals by simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

import demur
from demur.tasks import misclassification, regression, within

RNG = np.random.default_rng(0)
SLOW = pytest.mark.slow
MEAN, SCALE, Y = RNG.normal(size=(4, 30)), np.exp(0.3 * RNG.normal(size=(4, 30))), RNG.normal(size=30)
WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5])


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_gaussian_figures_against_scipy(weights) -> None:
    found = regression(demur.Gaussian(MEAN, scale=SCALE), Y, weights=weights, level=0.8)
    shares = (np.ones(4) if weights is None else weights)[:, None]
    shares = shares / shares.sum()
    density = np.sum(shares * stats.norm.pdf(Y, MEAN, SCALE), axis=0)
    cdf = np.sum(shares * stats.norm.cdf(Y, MEAN, SCALE), axis=0)
    error = np.sum(shares * MEAN, axis=0) - Y
    assert found.nll is not None and found.inputs.nll is not None
    np.testing.assert_allclose(found.inputs.nll, -np.log(density), rtol=1e-12)
    np.testing.assert_allclose(found.pit, cdf, rtol=1e-12)
    np.testing.assert_allclose(found.inputs.error, error, rtol=1e-9, atol=1e-15)
    assert float(found.nll) == pytest.approx(-np.log(density).mean())
    assert float(found.rmse) == pytest.approx(np.sqrt(np.mean(error**2)))
    inside = np.abs(cdf - 0.5) <= 0.4
    assert float(found.coverage) == inside.mean()
    np.testing.assert_array_equal((found.inputs.low <= Y) & (found.inputs.high >= Y), inside)
    assert float(found.width) == pytest.approx(np.mean(found.inputs.high - found.inputs.low))
    np.testing.assert_array_equal(found.histogram, np.histogram(cdf, 10, (0, 1))[0])
    assert found.histogram.sum() == 30 and found.level == 0.8
    half = stats.t.ppf(0.975, 29) * found.inputs.crps.std(ddof=1) / math.sqrt(30)
    assert (found.crps.low, found.crps.high) == pytest.approx(
        (float(found.crps) - half, float(found.crps) + half)
    )
    relative = stats.t.ppf(0.975, 29) * np.std(error**2, ddof=1) / math.sqrt(30) / np.mean(error**2)
    assert found.rmse.high / found.rmse.low == pytest.approx(math.exp(relative))
    assert set(found.to_dict()) == {"crps", "nll", "rmse", "coverage", "width", "calibration_error"}


def test_a_single_input_has_no_interval_and_exact_predictions_no_error() -> None:
    one = regression(demur.Gaussian(np.zeros((2, 1)), scale=1.0), [0.3])
    assert one.crps.high == math.inf and one.rmse.low == 0 and one.rmse.high == math.inf
    exact = regression(demur.Points(np.ones((2, 5))), np.ones(5))
    assert float(exact.rmse) == exact.rmse.high == 0 and float(exact.coverage) == 1


def test_crps_of_numbers_by_pairs() -> None:
    values = RNG.normal(size=(4, 30))
    found = regression(demur.Points(values), Y, weights=WEIGHTS)
    shares = WEIGHTS / WEIGHTS.sum()
    away = np.sum(shares[:, None] * np.abs(values - Y), axis=0)
    pairs = np.einsum("i,j,ijn->n", shares, shares, np.abs(values[:, None] - values[None]))
    np.testing.assert_allclose(found.inputs.crps, away - pairs / 2, rtol=1e-12)
    assert found.nll is None and found.inputs.nll is None and "nll" not in found.to_dict()
    one = regression(demur.Points(values[:1]), Y)
    np.testing.assert_allclose(one.inputs.crps, np.abs(values[0] - Y))  # the absolute error
    assert float(one.coverage) == 0 and np.all(one.inputs.low == values[0])


def test_draws_find_the_gaussian_figures() -> None:
    """1,000 draws of each of 4 members: CRPS unbiased, within 4.5 standard errors of the closed form."""
    rng = np.random.default_rng(1)
    mean, y = rng.normal(size=(4, 200)), rng.normal(size=200)
    exact = regression(demur.Gaussian(mean, scale=1.0), y)
    few = regression(demur.Draws(mean[:, None] + rng.normal(size=(4, 3, 200))), y)
    difference = few.inputs.crps - exact.inputs.crps
    assert abs(difference.mean()) < 4.5 * difference.std() / math.sqrt(200) < 0.15
    many = regression(demur.Draws(mean[:, None] + rng.normal(size=(4, 1000, 200))), y)
    assert abs(many.pit - exact.pit).max() < 0.05
    assert abs(many.inputs.low - exact.inputs.low).max() < 0.5


def test_pit_of_exchangeable_numbers_is_uniform_however_few_they_are() -> None:
    """Outcome and five draws of one distribution, rounded to make ties: Kolmogorov's p-value above 1e-4."""
    rng = np.random.default_rng(2)
    for digits in (0, 8):
        numbers, y = np.round(rng.normal(size=(5, 5000)), digits), np.round(rng.normal(size=5000), digits)
        pit = regression(demur.Points(numbers), y, seed=3).pit
        assert stats.kstest(pit, "uniform").pvalue > 1e-4
    same = [regression(demur.Points(numbers), y, seed=s).pit for s in (3, 3, 4)]
    np.testing.assert_array_equal(same[0], same[1])
    assert np.any(same[0] != same[2])


def test_calibration_error_is_the_area_between_cdf_and_diagonal() -> None:
    zeros = np.zeros((1, 7))
    for y in (RNG.normal(size=7), np.zeros(7), np.repeat([-9.0, 9.0], [3, 4]), np.full(7, -20.0)):
        found = regression(demur.Gaussian(zeros, scale=1.0), y)
        steps = np.unique(np.concatenate([found.pit, [0, 1], np.arange(8) / 7]))
        wanted = sum(
            integrate.quad(lambda p, pit=found.pit: abs(np.mean(pit <= p) - p), a, b)[0]
            for a, b in itertools.pairwise(steps)
        )
        assert float(found.calibration_error) == pytest.approx(wanted, abs=1e-9)
    assert float(found.calibration_error) == 0.5


def true_calibration_error(scale: float, shift: float) -> float:
    """Of N(0, 1) predictions of N(shift, scale) outcomes."""
    p = (np.arange(20_000) + 0.5) / 20_000
    return float(np.mean(np.abs(stats.norm.cdf((stats.norm.ppf(p) - shift) / scale) - p)))


@pytest.mark.parametrize(
    ("scale", "shift"),
    [
        (1.0, 0.0),
        (1.05, 0.0),
        *(pytest.param(*each, marks=SLOW) for each in [(2.0, 0.0), (1.0, 0.5)]),
        (0.4, 0.1),
    ],
)
@pytest.mark.parametrize("number", [40, pytest.param(400, marks=SLOW)])
def test_intervals_hold_the_truth(scale, shift, number) -> None:
    """100 draws at 90 %: at least 77 hold it (fewer 5 times in 100,000 if 90 % is true)."""
    truth = {
        "calibration_error": true_calibration_error(scale, shift),
        "rmse": math.hypot(scale, shift),
        "coverage": float(np.diff(stats.norm.cdf((stats.norm.ppf([0.1, 0.9]) - shift) / scale))[0]),
        "nll": 0.5 * math.log(2 * math.pi) + (scale**2 + shift**2) / 2,
    }
    held = dict.fromkeys(truth, 0)
    members = demur.Gaussian(np.zeros((1, number)), scale=1.0)
    for seed in range(100):
        y = np.random.default_rng([seed, 5]).normal(shift, scale, number)
        found = regression(members, y, level=0.8, confidence=0.9, seed=seed)
        for name, value in truth.items():
            estimate = getattr(found, name)
            held[name] += estimate.low <= value <= estimate.high
    assert min(held.values()) >= 77, held


def test_calibration_error_sees_what_is_wrong() -> None:
    """Control: too narrow, too wide and shifted predictions are told from calibrated ones."""
    y = np.random.default_rng(6).normal(size=2000)
    zeros = np.zeros((1, 2000))
    good = regression(demur.Gaussian(zeros, scale=1.0), y).calibration_error
    assert good.low == 0
    for bad in (
        demur.Gaussian(zeros, scale=0.6),
        demur.Gaussian(zeros, scale=1.6),
        demur.Gaussian(zeros + 0.4, 1.0),
    ):
        assert regression(bad, y).calibration_error.low > good.high


# --- within ---------------------------------------------------------------------------------------


def test_within_by_absolute_and_relative_tolerance() -> None:
    predicted, y = np.array([1.0, -2.0, 0.0, 5.0]), np.array([1.5, -2.5, 0.0, 4.0])
    np.testing.assert_array_equal(within(predicted, y, 0.5), [True, True, True, False])
    np.testing.assert_array_equal(within(predicted, y, 0.25, relative=True), [False, True, True, True])
    np.testing.assert_array_equal(within(predicted, y, [0.1, 1, 0, 1]), [False, True, True, True])
    np.testing.assert_array_equal(within(predicted, y, 0), [False, False, True, False])
    members = demur.Gaussian(np.stack([predicted - 1, predicted + 1]), variance=1.0)
    np.testing.assert_array_equal(within(members, y, 0.5), within(predicted, y, 0.5))
    torch = pytest.importorskip("torch")
    normal = torch.distributions.Normal(torch.tensor(np.stack([predicted - 1, predicted + 1])), 1.0)
    np.testing.assert_array_equal(within(normal, torch.tensor(y), 0.5), within(predicted, y, 0.5))


def test_within_is_what_misclassification_takes() -> None:
    rng = np.random.default_rng(7)
    spread = np.repeat([0.1, 2.0], 200)
    members = demur.Points(spread * rng.normal(size=(10, 400)))
    correct = within(members, spread * rng.normal(size=400), 0.5)
    assert float(misclassification(demur.decompose(members).epistemic, correct).auroc) > 0.9


BAD = {
    "shape": (lambda: regression(demur.Gaussian(MEAN, scale=SCALE), Y[:5]), "one number per input"),
    "outputs": (lambda: regression(demur.Points(np.zeros((3, 30, 2))), Y), "several outputs one by one"),
    "NaN": (lambda: regression(demur.Points(MEAN), np.where(Y[3] == Y, np.nan, Y)), "Got nan at input 3"),
    "level": (lambda: regression(demur.Points(MEAN), Y, level=90), r"Write 0\.9"),
    "bins": (lambda: regression(demur.Points(MEAN), Y, bins=0), "bins must be a whole number"),
    "labels": (lambda: regression(demur.Points(MEAN), ["a"] * 30), "outcomes must be one number per input"),
    "array": (lambda: regression(MEAN, Y), "predictions of numbers"),
    "within members": (lambda: within(MEAN, Y, 0.1), r"predicted must be one number per input"),
    "within lengths": (lambda: within(Y[:3], Y, 0.1), r"shape \(30,\)"),
    "within tolerance": (lambda: within(Y, Y, -0.1), "tolerance must be at least 0"),
    "within NaN": (lambda: within(np.full(30, np.nan), Y, 0.1), "30 such numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_one_line(case) -> None:
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
