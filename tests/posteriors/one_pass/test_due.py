"""DUE: its Gaussian processes against exact ones, its bound against the evidence, and its draws."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import demur
from demur.posteriors.one_pass import DUE, NetworkTraining
from demur.posteriors.one_pass.gaussian_process import GaussianProcessHead, find_centres

from .made import check_direction, digits

torch = pytest.importorskip("torch")
nn = torch.nn


def rbf(x, y, length: float, scale: float) -> np.ndarray:
    return scale**2 * np.exp(-((x[:, None] - y[None]) ** 2).sum(2) / (2 * length**2))


def exact(points: int = 7, noise: float = 0.3):
    """Points, noisy values there, and a head whose q is the exact posterior of a regression on them."""
    rng = np.random.default_rng(0)
    x, values = rng.normal(size=(points, 2)), rng.normal(size=points)
    length, scale, constant = 1.3, 1.7, 0.4
    head = GaussianProcessHead(torch.from_numpy(x), 1, length_scale=length)
    k = rbf(x, x, length, scale)
    lower = np.linalg.cholesky(k)
    # The posterior of v, where f = constant + L v and values = f + noise.
    covariance = np.linalg.inv(np.eye(points) + lower.T @ lower / noise**2)
    mean = covariance @ lower.T @ (values - constant) / noise**2
    factor = np.linalg.cholesky(covariance)
    with torch.no_grad():
        head.parameters["log_scale"].fill_(math.log(scale))
        head.parameters["constant"].fill_(constant)
        head.parameters["mean"][0] = torch.from_numpy(mean)
        head.parameters["lower"][0] = torch.from_numpy(factor)
        head.parameters["log_diagonal"][0] = torch.from_numpy(np.log(np.diag(factor)))
    return x, values, noise, (length, scale, constant), head


def test_with_all_data_as_inducing_points_it_predicts_as_the_exact_process() -> None:
    x, values, noise, (length, scale, constant), head = exact()
    new = np.random.default_rng(1).normal(size=(9, 2)) * 2
    k, cross = rbf(x, x, length, scale) + noise**2 * np.eye(len(x)), rbf(x, new, length, scale)
    mean = constant + cross.T @ np.linalg.solve(k, values - constant)
    variance = scale**2 - (cross * np.linalg.solve(k, cross)).sum(0)
    found = [each.detach().numpy()[:, 0] for each in head.marginals(torch.from_numpy(new))]
    np.testing.assert_allclose(found[0], mean, rtol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-9)
    with torch.no_grad():
        head.parameters["log_length_scale"].add_(0.1)  # a control: another length scale is another process
    assert not np.allclose(
        head.marginals(torch.from_numpy(new))[1].detach().numpy()[:, 0], variance, rtol=1e-3
    )


def test_its_bound_is_then_the_evidence() -> None:
    x, values, noise, (length, scale, constant), head = exact()
    mean, variance = (each.detach().numpy()[:, 0] for each in head.marginals(torch.from_numpy(x)))
    fit = -0.5 * np.log(2 * np.pi * noise**2) - ((values - mean) ** 2 + variance) / (2 * noise**2)
    k = rbf(x, x, length, scale) + noise**2 * np.eye(len(x))
    evidence = multivariate_normal(np.full(len(x), constant), k).logpdf(values)
    assert fit.sum() - head.divergence().item() == pytest.approx(evidence, rel=1e-10)
    with torch.no_grad():
        head.parameters["mean"].mul_(1.1)  # a control: any other q stays below
    mean = head.marginals(torch.from_numpy(x))[0].detach().numpy()[:, 0]
    fit = -0.5 * np.log(2 * np.pi * noise**2) - ((values - mean) ** 2 + variance) / (2 * noise**2)
    assert fit.sum() - head.divergence().item() < evidence - 1e-3


def test_far_away_the_prior_comes_back() -> None:
    *_, (_, scale, constant), head = exact()
    mean, variance = head.marginals(torch.full((1, 2), 1e3, dtype=torch.float64))
    assert (mean.item(), variance.item()) == (pytest.approx(constant), pytest.approx(scale**2))


def test_at_an_inducing_point_the_variance_is_not_negative() -> None:
    *_, head = exact()
    with torch.no_grad():
        head.parameters["log_diagonal"].fill_(-50)
        head.parameters["lower"].zero_()
    assert bool((head.marginals(head.parameters["points"].detach())[1] >= 0).all())


def test_inducing_points_that_are_alike_are_refused() -> None:
    points = torch.zeros(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="Inducing points must be apart"):
        GaussianProcessHead(points, 2, length_scale=1.0).marginals(points)
    with pytest.raises(ValueError, match="inducing must be at most"):
        find_centres(torch.zeros(10, 3), 2, seed=0)


def test_centres_are_those_of_clusters() -> None:
    rng = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    x = np.concatenate([m + rng.normal(size=(50, 2)) for m in middles])
    found = np.stack(sorted(find_centres(torch.from_numpy(x), 3, seed=0).tolist()))
    expected = np.stack(sorted([part.mean(0).tolist() for part in np.split(x, 3)]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def fit(epochs: int):
    x, y, noise = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16), nn.Tanh())
    training = NetworkTraining(epochs=epochs, batch=64, rate=0.05, optimizer="adam")
    found = DUE.fit(
        model, (x[:600], y[:600]), classes=5, inducing=10, draws=8, training=training, samples=50,
        progress=False,
    )  # fmt: skip
    return model, found, (x[600:], y[600:]), noise


@pytest.fixture(scope="module")
def fitted():
    return fit(epochs=2)


@pytest.mark.slow
def test_it_classifies_digits_and_notices_noise() -> None:
    _, found, (x, y), noise = fit(epochs=20)
    scores = demur.score(found, [(x, y)], columns=[found], progress=False)
    assert scores.correct.mean() > 0.9
    np.testing.assert_allclose(scores.columns["due"], scores["average"].total, rtol=1e-12)
    known = scores.columns["due"]
    check_direction(known, found.score([noise]), 0.7)


def test_members_have_the_marginals_and_do_not_depend_on_batches(fitted) -> None:
    _, found, (x, _), _ = fitted
    many = DUE(found.model, found._head, samples=4000)
    mean, variance = (each.numpy() for each in many.marginals(x[:5]))
    draws = torch.cat(list(many.predict(x[:5]))).numpy()
    assert (np.abs(draws.mean(0) - mean) < 5 * np.sqrt(variance / 4000)).all()
    assert (np.abs(draws.var(0) / variance - 1) < 5 * np.sqrt(2 / 4000)).all()
    part = torch.cat(list(many.predict(x[2:4], members=range(3, 9), position=2))).numpy()
    np.testing.assert_allclose(part, draws[3:9, 2:4], rtol=1e-5, atol=1e-5)


def test_saved_and_loaded(fitted, tmp_path) -> None:
    model, found, (x, _), _ = fitted
    found.save(tmp_path / "due.safetensors")
    again = DUE.load(tmp_path / "due.safetensors", model)
    assert (again.fingerprint(), repr(again)) == (found.fingerprint(), repr(found))
    np.testing.assert_array_equal(again.score([x]), found.score([x]))
