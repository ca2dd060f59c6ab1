"""SNGP: random features against the kernel, its covariance against autograd, draws against closed forms."""

import math

import numpy as np
import pytest
from scipy.special import softmax

import demur
from demur.posteriors.one_pass import SNGP, NetworkTraining
from demur.posteriors.one_pass.random_features import RandomFeatureHead, factorise_precision

torch = pytest.importorskip("torch")
nn = torch.nn
TRAINING = NetworkTraining(epochs=8, batch=32, rate=0.02, optimizer="adam")


def made(seed: int = 0):
    rng = np.random.default_rng(seed)
    y = np.arange(160) % 3
    x = rng.normal(size=(160, 2)) * 0.5 + 3 * np.stack([np.cos(2 * y), np.sin(2 * y)], 1)
    return x, y


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(2, 8), nn.Tanh()).double()
    found = SNGP.fit(
        extractor, made(), classes=3, features=40, training=TRAINING, samples=4000, progress=False
    )
    return extractor, found


@pytest.mark.parametrize("length_scale", [0.7, 2.0])
def test_random_features_are_the_kernel_on_average(length_scale) -> None:
    """The products of D independent features: within five standard errors, and not of another kernel."""
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(6, 4)))
    head = RandomFeatureHead(4, 2, features=40_000, length_scale=length_scale, seed=0)
    expanded = head.expand(x)
    terms = expanded[:, None] * expanded[None] * expanded.shape[1]  # their mean is the product
    error = 5 * terms.std(2) / math.sqrt(expanded.shape[1])
    distances = torch.cdist(x, x).square()
    kernel = torch.exp(-distances / (2 * length_scale**2))
    assert bool(((terms.mean(2) - kernel).abs() < error).all())
    other = torch.exp(-distances / length_scale**2)
    assert not bool(((terms.mean(2) - other).abs() < error).all())  # a control


def test_the_precision_is_the_hessian_of_each_class() -> None:
    x, y = made()
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    head = RandomFeatureHead(2, 3, features=12, length_scale=2.0, seed=0)
    beta = torch.randn(12, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        head.parameters["beta"].copy_(beta)
    expanded = head.expand(features)
    factors = factorise_precision(head, features.split(50))

    def energy(own, k: int):
        whole = torch.cat([beta[:, :k], own[:, None], beta[:, k + 1 :]], 1)
        loss = nn.functional.cross_entropy(expanded @ whole, labels, reduction="sum")
        return loss + whole.square().sum() / 2

    for k in range(3):
        hessian = torch.autograd.functional.hessian(lambda own, k=k: energy(own, k), beta[:, k])
        torch.testing.assert_close(factors[k] @ factors[k].T, hessian, rtol=1e-9, atol=1e-10)


def test_without_data_the_variance_is_the_prior_kernel() -> None:
    head = RandomFeatureHead(2, 3, features=500, length_scale=2.0, seed=0)
    model = SNGP(nn.Identity(), head, factorise_precision(head, []))
    x = torch.randn(5, 2, dtype=torch.float64)
    mean, variance = model.marginals(x)
    expected = head.expand(x).square().sum(1)
    torch.testing.assert_close(variance, expected[:, None].expand(-1, 3))
    assert mean.abs().max() == 0


def test_training_reaches_the_most_likely_weights() -> None:
    """With fixed features the loss is convex: its gradient at the end is that of a minimum."""
    x, y = made()
    found = SNGP.fit(
        nn.Identity(), (x, y), classes=3, features=30, length_scale=2.0, progress=False,
        training=NetworkTraining(epochs=400, batch=160, rate=0.05, optimizer="adam"),
    )  # fmt: skip
    beta, expanded = found.head["beta"].detach().numpy(), found._expand(x).numpy()
    p = softmax(expanded @ beta, axis=1)
    gradient = expanded.T @ (p - np.eye(3)[y]) + beta
    assert np.abs(gradient).max() < 0.02
    assert np.abs(expanded.T @ (p - np.eye(3)[y])).max() > 0.1  # a control: without the prior it is none


def test_members_are_drawn_from_the_marginals(fitted) -> None:
    """Mean and variance of 4000 draws, within five standard errors."""
    _, found = fitted
    x = made(1)[0][:7]
    mean, variance = (each.numpy() for each in found.marginals(x))
    draws = torch.cat(list(found.predict(x))).numpy()
    n = len(draws)
    assert n == 4000
    assert (np.abs(draws.mean(0) - mean) < 5 * np.sqrt(variance / n)).all()
    assert (np.abs(draws.var(0) / variance - 1) < 5 * np.sqrt(2 / n)).all()
    joint = draws[:, 0, 0] - draws[:, 1, 0]  # members are functions: neighbours move together
    assert joint.var() < draws[:, 0, 0].var() + draws[:, 1, 0].var()


def test_draws_do_not_depend_on_earlier_calls_or_batches(fitted) -> None:
    _, found = fitted
    x = made(1)[0][:6]
    whole = torch.cat(list(found.predict(x, members=range(5))))
    parts = torch.cat(list(found.predict(x[2:4], members=range(3, 5), position=2)))
    torch.testing.assert_close(parts, whole[3:, 2:4], rtol=1e-12, atol=1e-12)


def test_mean_field_logits_and_the_score_are_their_formulas(fitted) -> None:
    _, found = fitted
    x = made(1)[0]
    mean, variance = (each.numpy() for each in found.marginals(x))
    logits = mean / np.sqrt(1 + np.pi / 8 * variance)
    np.testing.assert_allclose(found.mean_field_logits(x).numpy(), logits, rtol=1e-12)
    np.testing.assert_allclose(found.score([x]), 3 / (3 + np.exp(logits).sum(1)), rtol=1e-12)


def test_as_a_posterior_and_as_a_column(fitted) -> None:
    _, found = fitted
    x, y = made(1)
    few = SNGP(found.model, found._head, found.factors, samples=30, bound=found.bound)
    scores = demur.score(few, [(x, y)], columns=[few], progress=False)
    assert scores.correct.mean() > 0.95
    np.testing.assert_array_equal(scores.columns["sngp"], few.score([x]))
    far = demur.score(few, [x + 20], columns=[few], progress=False)
    assert np.median(far["pairwise"].epistemic) > 2 * np.median(scores["pairwise"].epistemic)
    assert demur.tasks.detection(scores.columns["sngp"], far.columns["sngp"]).auroc.low > 0.8
    again = demur.score(few, [made(2)[0]], columns=[few], progress=False)
    same = demur.tasks.detection(scores.columns["sngp"], again.columns["sngp"]).auroc
    assert same.low < 0.5 < same.high  # a control: other inputs of the same kind


def test_saved_and_loaded(fitted, tmp_path) -> None:
    extractor, found = fitted
    found.save(tmp_path / "sngp.safetensors")
    again = SNGP.load(tmp_path / "sngp.safetensors", extractor)
    assert (again.fingerprint(), repr(again)) == (found.fingerprint(), repr(found))
    x = made(1)[0]
    np.testing.assert_array_equal(again.score([x]), found.score([x]))
    first, second = (next(iter(each.predict(x, members=range(2)))) for each in (again, found))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_too_many_covariances_are_refused() -> None:
    with pytest.raises(ValueError, match=r"would take 8 GB for 1000 classes .* features=732"):
        SNGP.fit(nn.Identity(), made(), classes=1000)
