"""The average of members as a distribution of a number: against scipy, integrals and brute force."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import demur
from demur.core import predictive

RNG = np.random.default_rng(0)
MEAN, SCALE = 3 * RNG.normal(size=(5, 6)), np.exp(RNG.normal(size=(5, 6)))
WEIGHTS = np.array([0.5, 1.0, 0.0, 2.0, 0.3])
LEVELS = [1e-9, 0.01, 0.3, 0.5, 0.8, 0.999, 1 - 1e-9]


def cdf_of(place, weights):
    shares = weights / weights.sum()
    return lambda y: float(np.sum(shares * stats.norm.cdf(y, MEAN[:, place], SCALE[:, place])))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_gaussian_quantiles_against_a_root_finder(weights) -> None:
    own = np.ones(5) if weights is None else weights
    members = demur.Gaussian(MEAN, scale=SCALE)
    found = demur.quantiles(members, np.array(LEVELS), weights=weights)
    assert found.shape == (7, 6)
    for place in range(6):
        cdf = cdf_of(place, own)
        for row, q in enumerate(LEVELS[:-1]):
            wanted = optimize.brentq(lambda y, q=q, cdf=cdf: cdf(y) - q, -200, 200, xtol=1e-13, rtol=1e-14)
            assert abs(found[row, place] - wanted) < 1e-9 * max(1, abs(wanted))


def test_quantiles_invert_the_cdf_where_modes_are_far_apart() -> None:
    """A narrow member far from a wide one, and a gap of no density between two: every step stays inside."""
    mean = np.array([[0.0, 0.0, 1e8, 0.0], [1e3, 50.0, 1e8 + 1, 1e-3]])
    scale = np.array([[1.0, 1.0, 1e-3, 1.0], [1e-6, 1.0, 1e-3, 1e-9]])
    members = demur.Gaussian(mean, scale=scale)
    for q in (0.01, 0.25, 0.4999, 0.5001, 0.75, 0.99):
        x = demur.quantiles(members, q)
        up, down = (
            np.mean(stats.norm.cdf(x + sign * 1e-8 * (1 + abs(x)), mean, scale), axis=0) for sign in (1, -1)
        )
        assert np.all((down <= q) & (q <= up))


def test_one_member_has_its_own_quantiles_in_both_tails() -> None:
    members = demur.Gaussian(np.array([[2.0]]), scale=3.0)
    for q in (1e-300, 1e-12, 0.2, 0.5, 0.9):
        np.testing.assert_allclose(demur.quantiles(members, q), stats.norm.ppf(q, 2, 3), rtol=1e-13)
    upper = demur.quantiles(members, 1 - 2.0**-50)
    np.testing.assert_allclose(upper, stats.norm.isf(2.0**-50, 2, 3), rtol=1e-13)


def test_intervals_are_pairs_of_quantiles() -> None:
    members = demur.Gaussian(MEAN, scale=SCALE)
    low, high = demur.interval(members, 0.8)
    np.testing.assert_allclose(np.stack([low, high]), demur.quantiles(members, [0.1, 0.9]), rtol=1e-13)
    assert np.all(demur.interval(members)[1] > high)


@pytest.mark.parametrize("kind", ["Points", "Draws"])
def test_quantiles_of_numbers_by_the_definition(kind) -> None:
    values = np.round(RNG.normal(size=(5, 4, 3) if kind == "Draws" else (5, 3)), 1)  # ties
    weights = WEIGHTS
    found = demur.quantiles(getattr(demur, kind)(values), [0.1, 0.5, 0.93], weights=weights)
    for place in range(3):
        flat = values[..., place].reshape(5, -1)
        shares = np.repeat(weights, flat.shape[1]) / flat.shape[1] / weights.sum()
        for row, q in enumerate([0.1, 0.5, 0.93]):
            enough = [x for x in flat.ravel() if shares[flat.ravel() <= x].sum() >= q - 1e-12]
            assert found[row, place] == min(enough)


def test_a_share_that_is_met_exactly_counts() -> None:
    numbers = demur.Points(np.arange(1.0, 101.0))
    for k in range(1, 100):
        assert demur.quantiles(numbers, k / 100) == k
    assert [float(end) for end in demur.interval(numbers, 0.9)] == [5, 95]


def test_means_of_every_kind() -> None:
    shares = (WEIGHTS / WEIGHTS.sum())[:, None]
    np.testing.assert_allclose(
        demur.mean(demur.Gaussian(MEAN, scale=SCALE), weights=WEIGHTS), np.sum(shares * MEAN, axis=0)
    )
    np.testing.assert_allclose(demur.mean(demur.Points(MEAN), weights=WEIGHTS), np.sum(shares * MEAN, axis=0))
    draws = RNG.normal(size=(5, 7, 2, 3))
    np.testing.assert_allclose(demur.mean(demur.Draws(draws)), draws.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(demur.mean(demur.Gamma(SCALE, 2.0)), SCALE.mean(axis=0) / 2)
    np.testing.assert_allclose(
        demur.mean(demur.MultivariateGaussian(draws, variance=1.0)), draws.mean(axis=0), rtol=1e-12
    )
    assert np.all(demur.mean(demur.Points(np.full((3, 2), 0.1))) == 0.1)


def test_results_come_back_in_the_library_of_the_predictions(xp) -> None:
    members = demur.Gaussian(xp.array(MEAN), scale=xp.array(SCALE))
    exact = demur.Gaussian(MEAN, scale=SCALE)
    xp.close(demur.quantiles(members, [0.1, 0.9]), demur.quantiles(exact, [0.1, 0.9]))
    xp.close(demur.mean(members), demur.mean(exact), atol=1e-6)
    low, _ = demur.interval(demur.Points(xp.array(MEAN)), 0.5)
    xp.close(low, demur.interval(demur.Points(MEAN), 0.5).low)


def test_gaussian_crps_and_log_density_against_integrals() -> None:
    shares = np.repeat((WEIGHTS / WEIGHTS.sum())[:, None], 6, axis=1)
    mixture = predictive.GaussianMixture(MEAN, SCALE, shares)
    y = RNG.normal(size=6)
    crps, log_density = mixture.crps(y), mixture.log_density(y)
    for place in range(6):
        cdf = cdf_of(place, WEIGHTS)
        below = integrate.quad(lambda z, cdf=cdf: cdf(z) ** 2, -60, y[place], limit=200)[0]
        above = integrate.quad(lambda z, cdf=cdf: (1 - cdf(z)) ** 2, y[place], 60, limit=200)[0]
        np.testing.assert_allclose(crps[place], below + above, rtol=1e-7)
        density = np.sum(shares[:, place] * stats.norm.pdf(y[place], MEAN[:, place], SCALE[:, place]))
        np.testing.assert_allclose(log_density[place], np.log(density), rtol=1e-12)
    far = predictive.GaussianMixture(np.zeros((2, 1)), np.ones((2, 1)), np.full((2, 1), 0.5))
    np.testing.assert_allclose(far.log_density(np.array([100.0])), stats.norm.logpdf(100.0), rtol=1e-12)


def test_crps_is_the_score_of_the_decomposition() -> None:
    """Mean CRPS of a mixture over outcomes drawn from itself is its entropy under the energy kernel."""
    rng = np.random.default_rng(5)
    mean, scale = np.array([0.0, 2.0]), np.array([1.0, 0.5])
    mixture = predictive.GaussianMixture(
        np.repeat(mean[:, None], 40_000, 1), np.repeat(scale[:, None], 40_000, 1), np.full((2, 40_000), 0.5)
    )
    member = rng.integers(0, 2, 40_000)
    crps = mixture.crps(rng.normal(mean[member], scale[member]))
    draws = rng.normal(mean[:, None, None], scale[:, None, None], size=(2, 50, 2000))
    entropy = demur.decompose(demur.Draws(draws), measure="bma").total
    error = np.hypot(crps.std() / np.sqrt(40_000), entropy.std() / np.sqrt(2000))
    assert abs(crps.mean() - entropy.mean()) < 4.5 * error < 0.03


def test_blocks_of_inputs_give_what_all_inputs_give(monkeypatch) -> None:
    members = demur.Gaussian(MEAN, scale=SCALE)
    whole = demur.quantiles(members, 0.3)
    monkeypatch.setattr(predictive, "_NUMBERS_AT_ONCE", 1)
    np.testing.assert_allclose(demur.quantiles(members, 0.3), whole, rtol=1e-13)


BAD = {
    "q of 1": (lambda: demur.quantiles(demur.Points(MEAN), 1.0), r"q must be between 0 and 1"),
    "level in percent": (lambda: demur.interval(demur.Points(MEAN), 90), "level must be between 0 and 1"),
    "family": (lambda: demur.quantiles(demur.Poisson(SCALE), 0.5), r"Poisson.*demur\.Draws"),
    "classes": (lambda: demur.quantiles(np.full((3, 2, 2), 0.5), 0.5), "predictions of numbers"),
    "vectors": (
        lambda: demur.interval(demur.MultivariateGaussian(np.zeros((3, 2, 2)), variance=1.0)),
        "Expected Gaussian predictions of a number",
    ),
    "scale": (lambda: demur.mean(demur.Points(MEAN, scale=2.0)), "Leave it out for a result of each"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_one_line(case) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_gradients_are_refused_and_not_lost() -> None:
    torch = pytest.importorskip("torch")
    members = demur.Gaussian(torch.tensor(MEAN, requires_grad=True), scale=1.0)
    with pytest.raises(ValueError, match="no gradient passes"):
        demur.quantiles(members, 0.5)
    demur.mean(members).sum().backward()  # but passes through the mean
