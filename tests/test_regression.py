"""Gaussians: exact where members are far from 0 or from each other; the average integrated, and bounded."""

import functools

import mpmath
import numpy as np
import pytest
from reference import families, loops
from reference.families import Mixture
from scipy import stats

import demur
from demur.core import gaussian_integral
from demur.core.gaussian_integral import divergence_from_average

PARTS = loops.PARTS


def members(count, inputs, seed=0, spread=1.0):
    rng = np.random.default_rng([seed, count, inputs])
    return rng.normal(size=(count, inputs)), np.exp(spread * rng.normal(size=(count, inputs)))


def pairs(name, parameters, weights=None):
    weights = np.ones(parameters.shape[:2]) if weights is None else weights
    return families.over_inputs(lambda p, w: families.pairwise(name, p, w), parameters, weights)


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["at once", "one by one", "merged"])
def test_far_from_zero_and_close_together(way) -> None:
    """Means of 1e6 that differ by 1e-3, variances that differ a hundredfold."""
    rng = np.random.default_rng(0)
    mean = 1e6 + 1e-3 * rng.normal(size=(8, 4))
    variance = 1e-6 * 10 ** rng.uniform(-2, 0, size=(8, 4))
    wanted = pairs("Gaussian", np.stack([mean, variance], -1))
    if way == "at once":
        found = demur.decompose(demur.Gaussian(mean, variance))
    elif way == "one by one":
        moments = demur.Moments()
        for m, v in zip(mean, variance, strict=True):
            moments.update(demur.Gaussian(m, v))
        found = moments.decompose()
    else:
        first = demur.Moments().update(demur.Gaussian(mean[:3], variance[:3]))
        found = demur.Moments().update(demur.Gaussian(mean[3:], variance[3:])).merge(first).decompose()
    for part in PARTS:
        np.testing.assert_allclose(getattr(found, part), wanted[part], rtol=1e-12)


def test_ratios_of_variances() -> None:
    mean = np.array([[0.0], [1.0], [-2.0], [0.5]])
    variance = np.array([[1.0], [1e-12], [1e12], [3.0]])
    wanted = pairs("Gaussian", np.stack([mean, variance], -1))
    moments = functools.reduce(
        lambda m, i: m.update(demur.Gaussian(mean[i], variance[i])), range(4), demur.Moments()
    )
    for found in (demur.decompose(demur.Gaussian(mean, variance)), moments.decompose()):
        np.testing.assert_allclose(found.epistemic, wanted["epistemic"], rtol=1e-12)
    by_scale = demur.decompose(demur.Gaussian(mean, scale=np.sqrt(variance)))
    np.testing.assert_allclose(by_scale.epistemic, wanted["epistemic"], rtol=1e-12)


@pytest.mark.parametrize("kind", ["diagonal Gaussian", "full Gaussian"])
def test_ratios_of_variances_of_vectors(kind) -> None:
    """Coordinates in units that differ by 1e6 each way, members that differ by 1e12 in each variance."""
    rng = np.random.default_rng(0)
    units = np.array([1e-6, 1.0, 1e6])
    narrow = 10 ** rng.uniform(-6, 6, size=(4, 2, 3))
    scale = units * narrow
    mean = scale * rng.normal(size=scale.shape)
    if kind == "diagonal Gaussian":
        parameters = np.concatenate([mean, scale**2], -1)
        prediction = demur.MultivariateGaussian(mean, scale=scale)
        rtol = 1e-12
    else:
        correlation = np.array([[1.0, 0.4, -0.2], [0.4, 1.0, 0.3], [-0.2, 0.3, 1.0]])
        covariance = scale[..., :, None] * correlation * scale[..., None, :]
        covariance = (covariance + covariance.swapaxes(-1, -2)) / 2
        parameters = np.concatenate([mean, covariance.reshape((4, 2, 9))], -1)
        prediction = demur.MultivariateGaussian(mean, covariance=covariance)
        rtol = 1e-10
    wanted = pairs(kind, parameters)
    np.testing.assert_allclose(demur.decompose(prediction).epistemic, wanted["epistemic"], rtol=rtol)
    np.testing.assert_allclose(demur.decompose(prediction).aleatoric, wanted["aleatoric"], rtol=rtol)


def test_a_nearly_singular_covariance_is_as_good_as_its_digits() -> None:
    """Rotated, a variance of 1e-10 beside one of 1 is known to 1e-6 only: that is the input's own error."""
    c, s = np.cos(0.7), np.sin(0.7)
    turn = np.array([[c, -s], [s, c]])
    narrow = turn @ np.diag([1.0, 1e-10]) @ turn.T
    covariance = np.stack([np.eye(2), (narrow + narrow.T) / 2])[:, None]
    mean = np.array([[[0.0, 0.0]], [[0.3, -0.1]]])
    wanted = pairs("full Gaussian", np.concatenate([mean, covariance.reshape((2, 1, 4))], -1))
    found = demur.decompose(demur.MultivariateGaussian(mean, covariance=covariance))
    np.testing.assert_allclose(found.epistemic, wanted["epistemic"], rtol=1e-5)


def test_a_full_covariance_without_correlations_is_a_diagonal_one() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(4, 3, 2)), np.exp(rng.normal(size=(4, 3, 2)))
    diagonal = demur.decompose(demur.MultivariateGaussian(mean, variance))
    full = demur.decompose(demur.MultivariateGaussian(mean, covariance=variance[..., None] * np.eye(2)))
    each = demur.decompose(demur.Gaussian(mean, variance))
    for part in PARTS:
        np.testing.assert_allclose(getattr(full, part), getattr(diagonal, part), rtol=1e-12)
        np.testing.assert_allclose(getattr(each, part).sum(axis=-1), getattr(diagonal, part), rtol=1e-12)


def test_entropies_may_be_negative_and_are_not_clamped() -> None:
    found = demur.decompose(demur.Gaussian(np.zeros((2, 1)), 1e-6))
    np.testing.assert_allclose(found.aleatoric, 0.5 * np.log(2 * np.pi * np.e * 1e-6), rtol=1e-14)
    assert found.total[0] < 0 and found.epistemic[0] == 0.0


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.7, 5.0, 39.999, 40.0, 55.0, 300.0, 2e4])
def test_entropy_of_poisson(rate) -> None:
    with mpmath.workdps(40):
        wanted = float(families.poisson_entropy([mpmath.mpf(rate)]))
    np.testing.assert_allclose(demur.decompose(demur.Poisson([rate])).aleatoric, wanted, rtol=3e-14)


@pytest.mark.parametrize("shape", [1e-6, 0.1, 1.0, 3.0, 9.999, 10.0, 77.0, 1e6, 1e12])
def test_entropy_of_gamma(shape) -> None:
    with mpmath.workdps(60):
        wanted = float(families.gamma_entropy([mpmath.mpf(shape), mpmath.mpf(2)]))
    np.testing.assert_allclose(
        demur.decompose(demur.Gamma([shape], [2.0])).aleatoric, wanted, rtol=2e-14, atol=2e-14
    )


# --- the average --------------------------------------------------------------------------------

INPUTS = {
    "ordinary": members(4, 2),
    "a hundredfold": (1e6 + 1e-3 * members(4, 1)[0], 1e-6 * 10 ** np.array([[-2.0], [0.0], [-1.0], [-0.5]])),
    "a spike in a plain": (np.array([[0.0], [2.0], [-2.5]]), np.array([[1.0], [1e-12], [1e-9]])),
    "close": (1 + 1e-5 * members(3, 1)[0], 2 * (1 + 1e-5 * members(3, 1, seed=1)[0])),
    "means only": (np.array([[0.0], [0.5]]), np.ones((2, 1))),
    "variances only": (np.zeros((3, 1)), np.array([[1.0], [100.0], [0.01]])),
}


@pytest.mark.parametrize("name", INPUTS)
def test_information_and_its_stated_error(name) -> None:
    mean, variance = INPUTS[name]
    weights = np.random.default_rng(2).exponential(size=len(mean)) + 0.1
    gaussian = demur.Gaussian(mean, variance)
    found = demur.information(gaussian, weights=weights)
    average = demur.decompose(gaussian, weights=weights, measure="average")
    lower, upper = demur.information_bounds(gaussian, weights=weights)
    np.testing.assert_array_equal(average.epistemic, found.value)
    for index in range(mean.shape[1]):
        with mpmath.workdps(25):
            mixture = Mixture(mean[:, index], variance[:, index], weights)
            wanted = mixture.information()
            assert abs(mpmath.mpf(found.value[index]) - wanted) <= found.error[index]
            np.testing.assert_allclose(
                found.value[index], float(wanted), rtol=1e-8 if name == "close" else 1e-12
            )
            # The integral in another form, which cancels where members agree.
            entropy = float(mixture.entropy())
        np.testing.assert_allclose(average.total[index], entropy, rtol=1e-10)
        assert found.error[index] <= 1e-8 * found.value[index]
        assert lower[index] <= found.value[index] <= upper[index]


Q, OTHER = (0.3, 0.7), (-1.0, 2.5)
CELL_WEIGHTS = np.array([1.0, 2.0, 0.5])


@functools.cache
def cells_by_integration():
    """Total, aleatoric and epistemic part of every cell with the average, (inputs, 3)."""
    mean, variance = members(3, 2)
    wanted: dict[str, list] = {}
    for index in range(2):
        with mpmath.workdps(20):
            own = Mixture(mean[:, index], variance[:, index], CELL_WEIGHTS, others=(Q, OTHER))
            entropy, i, m = own.entropy(), own.information(), own.reverse()
            h = [families.gaussian_entropy(list(map(mpmath.mpf, given))) for given in (Q, OTHER)]
            away, farther = (own.kl(own.members[k], own.average) for k in (3, 4))
            to = own.kl(own.average, own.members[3])
        for cell, parts in {
            "A2": (h[0], away), "A2 of two": (sum(h) / 2, (away + farther) / 2), "B1": (entropy, to),
            "B2": (entropy, 0), "B3": (entropy, m), "C2": (entropy - i, i),
        }.items():  # fmt: skip
            wanted.setdefault(cell, []).append([float(parts[0] + parts[1]), *map(float, parts)])
    return {cell: np.array(rows) for cell, rows in wanted.items()}


def test_all_cells_with_the_average(xp) -> None:
    mean, variance = members(3, 2)
    given = demur.Gaussian(xp.array([Q[0]] * 2), xp.array([Q[1]] * 2))
    both = demur.Gaussian(xp.array([[Q[0]] * 2, [OTHER[0]] * 2]), xp.array([[Q[1]] * 2, [OTHER[1]] * 2]))
    gaussian = demur.Gaussian(xp.array(mean), xp.array(variance))

    def found(*sides):
        return demur.decompose(gaussian, weights=xp.array(CELL_WEIGHTS), measure=demur.Measure(*sides))

    wanted = cells_by_integration()
    for cell, sides in {
        "A2": (given, "bma"), "A2 of two": (both, "bma"), "B1": ("bma", given),
        "B2": ("bma", "bma"), "B3": ("bma", "each"), "C2": ("each", "bma"),
    }.items():  # fmt: skip
        result = found(*sides)
        for part, values in zip(PARTS, wanted[cell].T, strict=True):
            xp.close(getattr(result, part), values, atol=1e-12)
    moments = demur.Moments().update(given)
    xp.close(found("bma", moments).epistemic, wanted["B1"][:, 2], atol=1e-12)
    with pytest.raises(ValueError, match="predictor must be Gaussian predictions"):
        found(moments, "bma")


def test_a_million_draws_agree() -> None:
    """Monte Carlo of E log(p_i / average), within 4.5 standard errors: 7e-6 to fail by chance, four times."""
    mean, variance = members(5, 4)
    found = demur.information(demur.Gaussian(mean, variance)).value
    rng = np.random.default_rng(0)
    count = 1_000_000
    for index in range(4):
        chosen = rng.integers(5, size=count)
        m, s = mean[:, index], np.sqrt(variance[:, index])
        y = m[chosen] + s[chosen] * rng.normal(size=count)
        logs = -0.5 * ((y[:, None] - m) / s) ** 2 - np.log(s)
        draws = logs[np.arange(count), chosen] - np.log(np.exp(logs).mean(axis=1))
        assert abs(draws.mean() - found[index]) < 4.5 * draws.std() / np.sqrt(count)


def test_members_far_apart_are_told_apart_completely() -> None:
    mean = np.array([[0.0], [1e12], [-1e12]])
    weights = np.array([1.0, 2.0, 5.0])
    found = demur.information(demur.Gaussian(mean, scale=np.array([[1.0], [3.0], [0.1]])), weights=weights)
    np.testing.assert_allclose(found.value, stats.entropy(weights), rtol=1e-12)
    lower, upper = demur.information_bounds(demur.Gaussian(mean, 1.0), weights=weights)
    np.testing.assert_allclose([lower, upper], np.full((2, 1), stats.entropy(weights)), rtol=1e-12)


def test_identical_members_have_no_information_exactly(xp) -> None:
    mean, variance = members(1, 3)
    same = demur.Gaussian(xp.array(np.repeat(mean, 5, 0)), xp.array(np.repeat(variance, 5, 0)))
    weights = xp.array(np.random.default_rng(0).exponential(size=5))
    for measure in ("pairwise", "average", "reverse", "bma"):
        found = demur.decompose(same, weights=weights, measure=measure).epistemic
        np.testing.assert_array_equal(xp.numpy(found), 0.0)
    assert not np.any(xp.numpy(demur.information(same, weights=weights).error))
    for bound in demur.information_bounds(same, weights=weights):
        np.testing.assert_array_equal(np.abs(xp.numpy(bound)), 0.0)


@pytest.mark.parametrize("difference", [1e-3, 1e-5, 1e-7])
def test_information_of_members_that_nearly_agree(difference) -> None:
    """To second order I = M = K / 2, whatever the weights."""
    rng = np.random.default_rng(0)
    mean, variance = 3 + difference * rng.normal(size=(6, 3)), 2 * (1 + difference * rng.normal(size=(6, 3)))
    k, i, m = (demur.decompose(demur.Gaussian(mean, variance), measure=n).epistemic for n in loops.NAMES)
    np.testing.assert_allclose(i, k / 2, rtol=max(10 * difference, 1e-6))
    np.testing.assert_allclose(m, k / 2, rtol=max(10 * difference, 1e-6))


@pytest.mark.parametrize("apart", [0.1, 3.0, 100.0])
def test_the_stated_error_holds_over_many_mixtures(monkeypatch, apart) -> None:
    """Ten members whose scales differ up to a thousandfold, against panels a third as wide."""
    rng = np.random.default_rng([0, int(apart * 10)])
    gaussian = demur.Gaussian(
        apart * rng.normal(size=(10, 200)), scale=10 ** rng.uniform(-1.5, 1.5, size=(10, 200))
    )
    weights = rng.exponential(size=(10, 200))
    found = demur.information(gaussian, weights=weights)
    monkeypatch.setattr(gaussian_integral, "WIDEST_PANEL", 1.0)
    monkeypatch.setattr(gaussian_integral, "TOLERANCE", 1e-13)
    monkeypatch.setattr(gaussian_integral, "REACH", 11.0)
    finer = demur.information(gaussian, weights=weights)
    off = np.abs(found.value - finer.value)
    assert (off <= found.error + finer.error).all()
    assert (found.error <= 1e-9 * found.value).all()
    assert (off <= 1e-12 * found.value).all()
    lower, upper = demur.information_bounds(gaussian, weights=weights)
    rounded = 1 + 1e-14  # far apart both bounds are I itself
    assert (lower <= rounded * found.value).all() and (found.value <= rounded * upper).all()


def test_control_fixed_points_miss_a_spike() -> None:
    """Gauss-Hermite with 64 points a member, the usual way, is what the panels are there to beat."""
    mean, variance = np.array([[0.0], [0.37]]), np.array([[1.0], [1e-6]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    y = mean + np.sqrt(variance) * nodes
    logs = -0.5 * (y[..., None] - mean[:, 0]) ** 2 / variance[:, 0] - 0.5 * np.log(variance[:, 0])
    away = logs[np.arange(2), :, np.arange(2)] - np.log(np.exp(logs).mean(axis=-1))
    usual = np.mean(away @ weights) / np.sqrt(2 * np.pi)
    with mpmath.workdps(20):
        wanted = float(Mixture(mean[:, 0], variance[:, 0]).information())
    assert abs(usual - wanted) > 1e-4
    found = demur.information(demur.Gaussian(mean, variance)).value[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_control_sums_about_zero_lose_everything() -> None:
    mean, variance = 1e6 + 1e-3 * members(8, 1)[0], np.full((8, 1), 1e-6)
    first, second = mean / variance, -0.5 / variance
    about_zero = np.mean(mean * first, 0) - mean.mean(0) * first.mean(0)
    about_zero += np.mean((variance + mean**2) * second, 0) - (variance + mean**2).mean(0) * second.mean(0)
    wanted = pairs("Gaussian", np.stack([mean, variance], -1))["epistemic"]
    assert (np.abs(about_zero / wanted - 1) > 1e-6).all()


def test_units_and_origin_do_not_matter() -> None:
    mean, variance = members(5, 6)
    here = demur.information(demur.Gaussian(mean, variance)).value
    for scale in (1e-9, 1e9):
        there = demur.information(demur.Gaussian(scale * mean, scale**2 * variance)).value
        np.testing.assert_allclose(there, here, rtol=1e-11)
    bits = demur.information(demur.Gaussian(mean, variance), base=2)
    np.testing.assert_allclose(bits.value * np.log(2), here, rtol=1e-14)


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("measure", ["average", "reverse"])
def test_unbiased_and_standard_errors_of_the_average(measure, groups) -> None:
    mean, variance = members(4, 2)
    weights = np.array([1.0, 0.5, 2.0, 1.5])
    found = demur.decompose(
        demur.Gaussian(mean, variance), weights=weights, measure=measure, groups=groups, stderr=True
    )
    unbiased = demur.decompose(
        demur.Gaussian(mean, variance), weights=weights, measure=measure, groups=groups, unbiased=True
    )

    def of_all(rows, own, measure=None):
        m, v = np.array(rows).T
        i = float(divergence_from_average(m[:, None], v[:, None], np.array(own)[:, None]).value[0])
        k = families.pairwise("Gaussian", rows, own)
        name = {loops.NAMES[n]: n for n in loops.NAMES}.get(measure, measure)
        epistemic = {"average": i, "reverse": k["epistemic"] - i, "pairwise": k["epistemic"]}[name]
        aleatoric = k["aleatoric"] + (i if name == "reverse" else 0.0)
        return {"total": aleatoric + epistemic, "aleatoric": aleatoric, "epistemic": epistemic}

    for index in range(2):
        rows = np.stack([mean[:, index], variance[:, index]], -1).tolist()
        error = loops.stderr_one(rows, weights.tolist(), groups=groups, statistic=of_all, measure=measure)
        for part in PARTS:
            np.testing.assert_allclose(getattr(found.stderr, part)[index], error[part], rtol=1e-7)
        own, whole = weights.tolist(), sum(weights)
        parts = loops.group_of(own, groups)
        i = len(parts) * of_all(rows, own, "average")["epistemic"] - sum(
            (1 - sum(own[k] for k in part) / whole)
            * of_all(*loops.without(rows, own, part), "average")["epistemic"]
            for part in parts
        )
        k = of_all(rows, own, "pairwise")["epistemic"] / (1 - sum(w * w for w in own) / whole**2)
        wanted = {"average": i, "reverse": k - i}[measure]
        np.testing.assert_allclose(unbiased.epistemic[index], wanted, rtol=1e-8)


def test_members_without_weight_are_not_integrated() -> None:
    mean, variance = members(5, 3)
    weights = np.ones((5, 3))
    weights[1, 0] = weights[4, 2] = 0.0
    mean[1, 0], variance[4, 2] = np.nan, -1.0
    found = demur.information(demur.Gaussian(mean, variance), weights=weights).value
    for index in range(3):
        kept = weights[:, index] > 0
        alone = demur.information(demur.Gaussian(mean[kept, index], variance[kept, index])).value
        np.testing.assert_allclose(found[index], alone, rtol=1e-11)


def test_many_inputs_are_integrated_in_parts() -> None:
    mean, variance = members(40, 1000)
    found = demur.decompose(demur.Gaussian(mean, variance), measure="average").epistemic
    some = demur.information(demur.Gaussian(mean[:, ::250], variance[:, ::250])).value
    np.testing.assert_allclose(found[::250], some, rtol=1e-12)
    k = demur.decompose(demur.Gaussian(mean, variance)).epistemic
    assert (found > 0).all() and (found < k).all()


def test_what_the_average_cannot_do() -> None:
    torch = pytest.importorskip("torch")
    mean = torch.zeros((3, 2), requires_grad=True)
    with pytest.raises(ValueError, match="no gradient passes"):
        demur.decompose(demur.Gaussian(mean, 1.0), measure="average")
    for measure in ("average", "reverse", "bma"):
        with pytest.raises(ValueError, match=r"average of Gaussian.*all members at once"):
            demur.Moments().update(demur.Gaussian(np.zeros((3, 2)), 1.0)).decompose(measure)
    with pytest.raises(ValueError, match="Got Poisson ones"):
        demur.information(demur.Poisson(np.ones((2, 2))))
    for function in (demur.information, demur.information_bounds, demur.variance):
        with pytest.raises(ValueError, match="takes predictions of numbers"):
            function(np.full((2, 3, 2), 0.5))


# --- bounds -------------------------------------------------------------------------------------


def test_bounds_by_definition() -> None:
    mean, variance = members(4, 3)
    weights = np.array([1.0, 2.0, 0.5, 1.0])
    share = weights / weights.sum()
    lower, upper = demur.information_bounds(demur.Gaussian(mean, variance), weights=weights)
    for index in range(3):
        rows = list(zip(mean[:, index], variance[:, index], strict=True))
        near = [
            [(m - n) ** 2 / (4 * (v + w)) + 0.5 * np.log((v + w) / (2 * np.sqrt(v * w))) for n, w in rows]
            for m, v in rows
        ]
        far = [[float(families.gaussian_kl(p, q)) for q in rows] for p in rows]
        low, high = (-share @ np.log(np.exp(-np.array(d)) @ share) for d in (near, far))
        mixed = share @ variance[:, index] + share @ (mean[:, index] - share @ mean[:, index]) ** 2
        high = min(high, 0.5 * np.log(mixed) - 0.5 * share @ np.log(variance[:, index]))
        np.testing.assert_allclose([lower[index], upper[index]], [low, high], rtol=1e-11)


def brute_force(name, rows):
    """I of equally weighted members by a fine grid, or all counts."""
    if name == "Poisson":
        y = np.arange(400)
        p = np.array([stats.poisson.pmf(y, r[0]) for r in rows])
        step = 1.0
    else:
        y = np.exp(np.linspace(-40, 6, 400_001))
        shapes = [(1.0, r[0]) if name == "exponential" else tuple(r) for r in rows]
        p = np.array([stats.gamma.pdf(y, a, scale=1 / b) for a, b in shapes]) * y
        step = np.log(y[1] / y[0])
    average = p.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 1e-290, p * np.log(p / average), 0.0)
    return terms.sum(axis=1).mean() * step


@pytest.mark.parametrize("name", ["Poisson", "exponential", "gamma"])
def test_bounds_hold_for_other_families(name) -> None:
    case = families.CASES[name]
    rng = np.random.default_rng(5)
    for spread in (0.03, 0.3, 1.0):
        parameters = case.draw(rng, 1, 4) * np.exp(spread * rng.normal(size=(5, 4, len(case.draw(rng)))))
        lower, upper = demur.information_bounds(case.make(parameters, np.asarray))
        for index in range(4):
            wanted = brute_force(name, parameters[:, index].tolist())
            assert 0 < lower[index] <= wanted <= upper[index]


@pytest.mark.parametrize("name", ["diagonal Gaussian", "full Gaussian"])
def test_bounds_of_vectors_hold_against_draws(name) -> None:
    case = families.CASES[name]
    parameters = case.draw(np.random.default_rng(1), 4, 1)
    lower, upper = demur.information_bounds(case.make(parameters, np.asarray))
    mean = parameters[:, 0, :3]
    rest = parameters[:, 0, 3:]
    matrices = [np.diag(r) if name.startswith("diag") else r.reshape((3, 3)) for r in rest]
    known = [stats.multivariate_normal(m, c) for m, c in zip(mean, matrices, strict=True)]
    draws = []
    for member in known:
        y = member.rvs(size=50_000, random_state=1)
        logs = np.stack([k.logpdf(y) for k in known])
        draws.append(member.logpdf(y) - np.log(np.exp(logs).mean(axis=0)))
    draws = np.concatenate(draws)
    assert lower[0] < draws.mean() < upper[0]


# --- variances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in families.CASES if n != "multi-label"])
def test_law_of_total_variance(xp, name) -> None:
    case = families.CASES[name]
    parameters = case.draw(np.random.default_rng(0), 5, 3)
    weights = np.array([1.0, 0.0, 2.0, 0.5, 1.0])
    share = weights / weights.sum()
    mean = case.mean(parameters)
    own = {
        "Gaussian": lambda p: p[..., 1],
        "diagonal Gaussian": lambda p: p[..., 3:],
        "full Gaussian": lambda p: p[..., 3::4],
        "Poisson": lambda p: p[..., 0],
        "exponential": lambda p: p[..., 0] ** -2.0,
        "gamma": lambda p: p[..., 0] / p[..., 1] ** 2,
    }[name](parameters)
    spoiled = parameters.copy()
    spoiled[1] = np.nan
    found = demur.variance(case.make(spoiled, xp.array), weights=xp.array(weights))
    aleatoric = np.einsum("m,m...->...", share, own)
    epistemic = np.einsum("m,m...->...", share, mean**2) - np.einsum("m,m...->...", share, mean) ** 2
    xp.close(found.aleatoric, aleatoric)
    xp.close(found.epistemic, epistemic)
    xp.close(found.total, aleatoric + epistemic)


def test_variance_far_from_zero_and_of_identical_members() -> None:
    mean = 1e9 + np.array([[0.0], [1e-3], [2e-3]])
    found = demur.variance(demur.Gaussian(mean, 1.0))
    np.testing.assert_allclose(found.epistemic, np.var(mean - 1e9, axis=0), rtol=1e-12)
    same = demur.variance(demur.Gaussian(np.full((7, 1), 0.1), 0.3), weights=np.linspace(0.1, 0.7, 7))
    assert same.epistemic[0] == 0.0


# --- where predictions come from ----------------------------------------------------------------


def test_distributions_of_torch() -> None:
    torch = pytest.importorskip("torch")
    d = torch.distributions
    mean, variance = (torch.tensor(a) for a in members(4, 6))
    matrix = torch.tensor(families.covariances(np.random.default_rng(0), 4, 2))
    vectors = torch.tensor(np.random.default_rng(1).normal(size=(4, 2, 3)))
    p = torch.sigmoid(mean)
    same = [
        (d.Normal(mean, variance.sqrt()), demur.Gaussian(mean, variance)),
        (
            d.Independent(d.Normal(mean.reshape(4, 2, 3), variance.sqrt().reshape(4, 2, 3)), 1),
            demur.MultivariateGaussian(mean.reshape(4, 2, 3), variance.reshape(4, 2, 3)),
        ),
        (d.MultivariateNormal(vectors, matrix), demur.MultivariateGaussian(vectors, covariance=matrix)),
        (d.Poisson(variance), demur.Poisson(variance)),
        (d.Exponential(variance), demur.Exponential(variance)),
        (d.Gamma(variance, variance + 1), demur.Gamma(variance, variance + 1)),
        (d.Bernoulli(probs=p), demur.Bernoulli(p)),
        (d.Bernoulli(logits=mean), demur.Bernoulli(logits=mean)),
        (d.Independent(d.Bernoulli(p.reshape(4, 2, 3)), 1), demur.MultiLabel(p.reshape(4, 2, 3))),
        (d.Categorical(torch.stack([1 - p, p], -1)), demur.Bernoulli(p)),
    ]
    for theirs, ours in same:
        found, wanted = demur.decompose(theirs), demur.decompose(ours)
        assert isinstance(found.epistemic, torch.Tensor)
        torch.testing.assert_close(found.epistemic, wanted.epistemic, rtol=1e-9, atol=0)
        torch.testing.assert_close(found.aleatoric, wanted.aleatoric, rtol=1e-9, atol=0)
    measure = demur.Measure(d.Normal(mean[0], 1.0), "each")
    assert demur.decompose(same[0][0], measure=measure).epistemic.shape == (6,)
    assert demur.Moments().update(same[0][0]).count == 4
    with pytest.raises(TypeError, match="Expected an array"):
        demur.decompose(d.Laplace(mean, variance))


def test_numbers_beside_arrays_and_mixed_types(xp) -> None:
    mean, _ = members(3, 2)
    whole = demur.decompose(demur.Gaussian(xp.array(mean), xp.array(np.full((3, 2), 0.5))))
    for variance in (0.5, np.float64(0.5), xp.array(0.5)):
        found = demur.decompose(demur.Gaussian(xp.array(mean), variance))
        xp.close(found.total, xp.numpy(whole.total))
    single = demur.decompose(demur.Gaussian(xp.array(mean, "float32"), 0.5))
    assert xp.dtype_name(single.total) == "float32"
    half = demur.decompose(
        demur.Gaussian(xp.array(mean, "float16"), scale=xp.array(np.full((3, 2), 3e-4), "float16"))
    )
    assert np.isfinite(xp.numpy(half.epistemic)).all()  # its square is below what float16 holds
    whole_numbers = demur.decompose(demur.Poisson(np.array([[1], [3]])))
    np.testing.assert_allclose(whole_numbers.epistemic, np.log(3) / 2)
