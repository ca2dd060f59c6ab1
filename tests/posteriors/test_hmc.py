"""HMC draws from the law that it should, says how far it can be trusted, and resumes."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import demur
from demur.posteriors import HMC
from demur.posteriors.chains import diagnostics, hamiltonian

torch = pytest.importorskip("torch")

NOISE, SCALE = 0.5, 2.0


def linear_problem():
    """y = x w + noise; returns model, data, likelihood, and the exact posterior's mean and covariance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) * [1.0, 0.3, 0.1]
    y = x @ rng.normal(size=3) + NOISE * rng.normal(size=40)
    precision = x.T @ x / NOISE**2 + np.eye(3) / SCALE**2
    covariance = np.linalg.inv(precision)
    model = torch.nn.Linear(3, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    data = torch.from_numpy(x), torch.from_numpy(y)

    def log_likelihood(out, target):
        return -((out[:, 0] - target) ** 2) / (2 * NOISE**2)

    return model, data, log_likelihood, covariance @ x.T @ y / NOISE**2, covariance


def sample_linear(**options):
    model, data, likelihood, mean, covariance = linear_problem()
    settings = {"samples": 400, "chains": 4, "burn_in": 60, "prior_scale": SCALE, "trajectory": 0.5} | options
    posterior = HMC(model, data, log_likelihood=likelihood, **settings).fit(progress=False)
    return posterior, posterior.parameters()["weight"][:, 0].numpy(), mean, covariance


def agrees(samples: np.ndarray, chains: int, mean: np.ndarray, covariance: np.ndarray) -> bool:
    """Whether means and squares are within 4.5 standard errors of the law, at the draws' effective size.

    The squares have a size of their own. With 6 statistics it is wrong once in 20,000 seeds.
    """
    centred = samples - mean
    variance = np.diag(covariance)
    for values, expected, spread in ((samples, mean, variance), (centred**2, variance, 2 * variance**2)):
        size = diagnostics.effective_size(values.reshape(chains, -1, values.shape[1]))
        if not (np.abs(values.mean(0) - expected) < 4.5 * np.sqrt(spread / size)).all():
            return False
    return True


def test_batches_change_nothing_but_roundings() -> None:
    few = {"samples": 10, "burn_in": 10, "chains": 1}
    whole, parts = (sample_linear(batch_size=each, **few)[1] for each in (10_000, 7))
    np.testing.assert_allclose(parts, whole, rtol=1e-3, atol=1e-4)
    assert np.std(whole, axis=0).min() > 0.01


@pytest.mark.parametrize("batch_size", [10_000, pytest.param(7, marks=pytest.mark.slow)])
def test_linear_regression_has_its_exact_posterior(batch_size) -> None:
    posterior, samples, mean, covariance = sample_linear(batch_size=batch_size)
    assert agrees(samples, 4, mean, covariance)
    found = posterior.diagnostics
    assert found.rhat < 1.1 and found.worst_rhat < 1.1 and found.least_effective_size > 30
    assert all(0.6 < each < 0.99 for each in found.acceptance)


def test_without_the_rejections_the_same_check_objects(monkeypatch) -> None:
    monkeypatch.setattr(hamiltonian, "compute_acceptance", lambda *_: 1.0)
    _, samples, mean, covariance = sample_linear(step_size=0.11)
    assert not agrees(samples, 4, mean, covariance)


def test_a_large_fixed_step_is_still_exact() -> None:
    _, samples, mean, covariance = sample_linear(step_size=0.11, samples=600)
    assert agrees(samples, 4, mean, covariance)


def test_temperature_and_prior_mean_change_the_law_as_they_should() -> None:
    model, data, likelihood, _, _ = linear_problem()
    x, y = (each.numpy() for each in data)
    centre = np.array([1.0, -1.0, 3.0])
    precision = x.T @ x / NOISE**2 + np.eye(3) / SCALE**2
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2 + centre / SCALE**2)
    posterior = HMC(
        model, data, samples=400, chains=4, trajectory=0.4, log_likelihood=likelihood, prior_scale=SCALE,
        temperature=0.5, prior_mean={"weight": centre[None]},
    )  # fmt: skip
    samples = posterior.parameters()["weight"][:, 0].numpy()
    assert agrees(samples, 4, mean, 0.5 * np.linalg.inv(precision))


@pytest.mark.slow
def test_a_skewed_posterior_has_its_quantiles() -> None:
    """Three successes in a row: the log odds have a long upper tail. A symmetric target hides a sign."""
    model = torch.nn.Linear(1, 2, bias=False).double()
    data = torch.ones(3, 1).double(), torch.ones(3, dtype=torch.long)
    posterior = HMC(model, data, samples=800, chains=4, prior_scale=3.0, trajectory=4.0)
    weight = posterior.parameters()["weight"][:, :, 0].numpy()
    odds = weight[:, 1] - weight[:, 0]  # its prior has standard deviation 3 sqrt(2)

    def density(z):
        return math.exp(-3 * math.log1p(math.exp(-z))) * stats.norm.pdf(z, 0, 3 * math.sqrt(2))

    whole = integrate.quad(density, -40, 60)[0]
    size = float(diagnostics.effective_size(odds.reshape(4, -1)))
    for place in (-1.0, 1.0, 3.0, 6.0, 9.0):
        expected = integrate.quad(density, -40, place)[0] / whole
        error = math.sqrt(expected * (1 - expected) / size)
        assert abs((odds < place).mean() - expected) < 4.5 * error
    assert stats.skew(odds) > 0.1


def sample_prior(**options):
    """Samples of one parameter whose prior is all there is, of standard deviation 1: its period is 2 pi."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    return HMC(
        model, (torch.ones(1, 1).double(), torch.zeros(1).double()), prior_scale=1.0,
        log_likelihood=lambda out, _: 0 * out[:, 0], **options,
    ).fit(progress=False)  # fmt: skip


@pytest.mark.parametrize("periods", [0.5, 1.0])
def test_trajectories_of_whole_periods_do_not_end_where_they_began(periods) -> None:
    posterior = sample_prior(samples=300, chains=2, burn_in=30, trajectory=2 * math.pi * periods)
    weight = posterior.parameters()["weight"].numpy().reshape(2, -1)
    assert diagnostics.effective_size(weight) > 60
    assert diagnostics.effective_size(weight**2) > 60


def test_chains_that_never_move_have_no_effective_size() -> None:
    found = sample_prior(samples=8, chains=2, burn_in=0, step_size=1e3).diagnostics
    assert found.acceptance == (0.0, 0.0) and math.isinf(found.worst_rhat)
    assert math.isnan(found.least_effective_size)


def test_scores_come_from_the_posterior() -> None:
    def forward(model, x):
        return torch.cat([torch.zeros_like(model(x)), model(x)], dim=-1)

    posterior, samples, *_ = sample_linear(samples=40, burn_in=30, forward=forward)
    logits = torch.cat(list(posterior.predict(np.eye(3)))).numpy()
    np.testing.assert_allclose(logits[..., 1], samples, rtol=1e-12)
    scores = demur.score(posterior, [np.eye(3)])
    expected = demur.decompose(logits=logits).epistemic
    np.testing.assert_allclose(scores["pairwise"].epistemic, expected, rtol=1e-9)
    rhat, size = posterior.diagnose(np.eye(3))
    assert rhat.shape == size.shape == (3, 2)


def test_a_killed_run_resumes_with_the_same_samples(tmp_path, monkeypatch) -> None:
    _, whole, *_ = sample_linear(samples=40, burn_in=20)
    before = hamiltonian.HamiltonianChain._advance
    calls = iter(range(10_000))

    def stop_in_the_second_chain(self) -> None:
        if next(calls) == 41:
            raise KeyboardInterrupt
        before(self)

    monkeypatch.setattr(hamiltonian.HamiltonianChain, "_advance", stop_in_the_second_chain)
    with pytest.raises(KeyboardInterrupt):
        sample_linear(samples=40, burn_in=20, checkpoint=tmp_path / "run", every=0.0)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "chain-0.safetensors",
        "chain-1.safetensors",
    ]
    left = iter(range(10_000))

    def count(self) -> None:
        next(left)
        before(self)

    monkeypatch.setattr(hamiltonian.HamiltonianChain, "_advance", count)
    posterior, resumed, *_ = sample_linear(samples=40, burn_in=20, checkpoint=tmp_path / "run", every=0.0)
    np.testing.assert_array_equal(resumed, whole)
    assert next(left) == 4 * 30 - 41
    with pytest.raises(ValueError, match=r"of others: .*burn_in was 20 and is 10"):
        sample_linear(samples=40, burn_in=10, checkpoint=tmp_path / "run")
    posterior.save(tmp_path / "samples.safetensors")
    loaded = HMC.load(tmp_path / "samples.safetensors", torch.nn.Linear(3, 1, bias=False).double())
    np.testing.assert_array_equal(loaded.parameters()["weight"][:, 0].numpy(), whole)
    assert loaded.diagnostics == posterior.diagnostics and repr(loaded) == repr(posterior)
    assert "R-hat" in repr(loaded) and "effective size" in str(loaded.diagnostics)


def test_random_generators_and_the_model_stay_as_they_were() -> None:
    model, data, likelihood, *_ = linear_problem()
    torch.manual_seed(1)
    before = torch.get_rng_state(), model.weight.detach().clone()
    HMC(model, data, samples=8, chains=2, burn_in=2, log_likelihood=likelihood).fit(progress=False)
    assert torch.equal(torch.get_rng_state(), before[0]) and torch.equal(model.weight, before[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 10, "chains": 4}, "multiple of chains"),
        ({"burn_in": -1}, "0 or more"),
        ({"start": "random"}, "'prior' or 'model'"),
        ({"acceptance": 1.5}, "between 0 and 1"),
        ({"prior_scale": math.inf}, "start='prior' takes a prior_scale"),
        ({"trajectory": 0.0}, "trajectory must be positive"),
        ({"step_size": 0}, "step_size must be positive"),
        ({"temperature": 0.0}, "temperature must be positive"),
    ],
)
def test_what_it_refuses(options, message) -> None:
    model, data, *_ = linear_problem()
    with pytest.raises(ValueError, match=message):
        HMC(model, data, **options)


def test_a_start_without_a_finite_posterior_is_refused() -> None:
    model, (x, y), likelihood, *_ = linear_problem()
    with pytest.raises(FloatingPointError, match="start of chain 0"):
        HMC(model, (x * math.nan, y), samples=8, chains=2, log_likelihood=likelihood).fit(progress=False)


def test_a_loader_is_read_whole() -> None:
    model, (x, y), likelihood, *_ = linear_problem()
    data = torch.utils.data.TensorDataset(x, y)
    settings = {"samples": 8, "chains": 2, "burn_in": 5, "log_likelihood": likelihood, "batch_size": 16}
    arrays = HMC(model, (x, y), **settings).parameters()["weight"]
    torch.testing.assert_close(HMC(model, data, **settings).parameters()["weight"], arrays)
    loader = torch.utils.data.DataLoader(data, batch_size=16, drop_last=True)
    with pytest.raises(ValueError, match=r"each of its 40 inputs once in a pass. Got 32"):
        HMC(model, loader, **settings)


# --- diagnostics ---------------------------------------------------------------------------------


def autoregressive(rng, chains, length, rho):
    noise = rng.normal(size=(chains, length)) * math.sqrt(1 - rho**2)
    draws = np.empty((chains, length))
    draws[:, 0] = rng.normal(size=chains)
    for step in range(1, length):
        draws[:, step] = rho * draws[:, step - 1] + noise[:, step]
    return draws


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.4])
def test_effective_size_of_an_autoregressive_chain(rho) -> None:
    """n (1 - rho) / (1 + rho); with 40,000 draws the estimate's own error is a few percent."""
    draws = autoregressive(np.random.default_rng(1), 4, 10_000, rho)
    expected = draws.size * (1 - rho) / (1 + rho)
    assert float(diagnostics.effective_size(draws)) == pytest.approx(expected, rel=0.15)
    assert abs(float(diagnostics.split_rhat(draws)) - 1) < 0.01


def test_rhat_objects_to_chains_that_differ() -> None:
    rng = np.random.default_rng(2)
    same = rng.normal(size=(4, 500))
    shifted, wider, drifting = same.copy(), same.copy(), same + np.linspace(0, 3, 500)
    shifted[0] += 2
    wider[0] *= 5
    assert float(diagnostics.split_rhat(same)) < 1.01
    for wrong in (shifted, wider, drifting):
        assert float(diagnostics.split_rhat(wrong)) > 1.1
    both = diagnostics.split_rhat(np.stack([same, shifted], axis=-1))
    assert both.shape == (2,) and both[0] < 1.01 < both[1]
    with pytest.raises(ValueError, match="4 draws or more"):
        diagnostics.split_rhat(np.zeros((2, 3)))
