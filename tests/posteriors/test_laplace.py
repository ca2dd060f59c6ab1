"""Laplace has the posterior and the evidence that it should, draws from it, and resumes."""

import numpy as np
import pytest
from reference import laplace as reference
from scipy import optimize, stats

import demur
from demur.posteriors import Features, Laplace, features
from demur.posteriors.curvature import last_layer, whole_network
from demur.posteriors.curvature.decomposed import Decomposed

torch = pytest.importorskip("torch")
nn = torch.nn

BIAS = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])


def layer_of(features=4, classes=3, bias=True, seed=0):
    """A linear layer, features and labels, with the features that the reference takes."""
    rng = np.random.default_rng(seed)
    layer = nn.Linear(features, classes, bias=bias).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(rng.normal(size=(classes, features))))
        if bias:
            layer.bias.copy_(torch.from_numpy(rng.normal(size=classes)))
    x, y = rng.normal(size=(60, features)) + 0.5, rng.integers(classes, size=60)
    return layer, x, y, np.hstack([x, np.ones((60, 1))]) if bias else x


def theta_of(layer):
    return last_layer.stack_parameters(layer).numpy()


def dense(decomposed: Decomposed) -> np.ndarray:
    """The matrix that was decomposed, one column at a time."""
    shape = decomposed.values.shape
    unit = torch.eye(decomposed.values.numel(), dtype=torch.float64)
    q = torch.stack([decomposed.multiply(each.reshape(shape)).flatten() for each in unit], 1)
    return (q * decomposed.values.flatten() @ q.T).numpy()


# --- the curvature, against dense references ---------------------------------------------------------


@BIAS
@pytest.mark.parametrize("likelihood", ["classification", "regression"])
@pytest.mark.parametrize("structure", ["kronecker", "full", "diagonal"])
def test_the_curvature_of_a_last_layer_is_the_dense_one(structure, likelihood, bias) -> None:
    layer, x, y, phi = layer_of(bias=bias)
    targets = y if likelihood == "classification" else np.random.default_rng(1).normal(size=(60, 3))
    posterior = Laplace.fit(
        layer, [(x[:25], targets[:25]), (x[25:], targets[25:])], structure=structure, likelihood=likelihood
    )
    theta = theta_of(layer)
    full = reference.full_curvature(phi, theta, likelihood)
    expected = {
        "full": full,
        "diagonal": np.diag(np.diag(full)),
        "kronecker": reference.kronecker_curvature(phi, theta, likelihood),
    }[structure]
    np.testing.assert_allclose(dense(posterior.curvature.decomposed), expected, rtol=1e-9, atol=1e-11)


def test_a_separate_bias_is_independent_of_the_weights() -> None:
    layer, x, y, phi = layer_of()
    found = dense(Laplace.fit(layer, [(x, y)], bias="separate").curvature.decomposed)
    expected = reference.kronecker_curvature(phi, theta_of(layer), separate=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    joint = dense(Laplace.fit(layer, [(x, y)]).curvature.decomposed)
    assert np.abs(joint - expected).max() > 0.1


@pytest.mark.parametrize("likelihood", ["classification", "regression"])
@pytest.mark.parametrize("at_once", [1 << 25, 100, 1], ids=["all", "few", "one by one"])
def test_the_diagonal_of_a_network_is_that_of_its_jacobians(monkeypatch, likelihood, at_once) -> None:
    monkeypatch.setattr(whole_network, "NUMBERS_AT_ONCE", at_once)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 3)).double()
    x = torch.randn(7, 3).double()
    y = torch.arange(7) % 3 if likelihood == "classification" else torch.randn(7, 3).double()
    found = Laplace.fit(
        model, [(x[:4], y[:4]), (x[4:], y[4:])], structure="diagonal", layers="all", likelihood=likelihood
    )
    model.eval()
    expected = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for one in x:
        out = model(one)
        rows = [torch.autograd.grad(out[k], list(model.parameters()), retain_graph=True) for k in range(3)]
        p = out.softmax(0).detach()
        middle = torch.diag(p) - torch.outer(p, p) if likelihood == "classification" else torch.eye(3)
        for place, name in enumerate(expected):
            jacobian = torch.stack([row[place] for row in rows])
            expected[name] += torch.einsum("k...,kl,l...->...", jacobian, middle.double(), jacobian)
    for name, value in expected.items():
        np.testing.assert_allclose(found.curvature.tensors[name], value, rtol=1e-9, atol=1e-14)


def test_a_network_whose_only_layer_is_linear_has_one_diagonal() -> None:
    layer, x, y, _ = layer_of()
    whole, last = (
        Laplace.fit(layer, [(x, y)], structure="diagonal", layers=layers) for layers in ("all", "last")
    )
    together = torch.cat([whole.curvature.tensors["weight"], whole.curvature.tensors["bias"][:, None]], 1)
    np.testing.assert_allclose(together, last.curvature.tensors["values"], rtol=1e-9)
    assert whole.prior_precision == pytest.approx(last.prior_precision, rel=1e-9)
    assert whole.log_marginal_likelihood == pytest.approx(last.log_marginal_likelihood, rel=1e-12)


def test_a_sample_of_the_training_data_is_scaled_up() -> None:
    layer, x, y, _ = layer_of()
    twice = Laplace.fit(layer, [(x, y), (x, y)])
    scaled = Laplace.fit(layer, [(x, y)], training_inputs=120)
    np.testing.assert_allclose(dense(scaled.curvature.decomposed), dense(twice.curvature.decomposed))
    assert scaled.prior_precision == pytest.approx(twice.prior_precision)
    assert scaled.log_marginal_likelihood == pytest.approx(twice.log_marginal_likelihood)


# --- Bayesian linear regression: everything is exact ---------------------------------------------------


def regression_of(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3)) * [1.0, 0.3, 2.0]
    y = x @ [1.0, -2.0, 0.5] + 0.7 + 0.4 * rng.normal(size=40)
    return x, y, np.hstack([x, np.ones((40, 1))])


def solve(x, phi, y, precision, noise):
    """A layer at the mean of the exact posterior, which it returns with the covariance."""
    covariance = np.linalg.inv(phi.T @ phi / noise + precision * np.eye(4))
    mean = covariance @ phi.T @ y / noise
    layer = nn.Linear(3, 1).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(mean[None, :3]))
        layer.bias.copy_(torch.from_numpy(mean[3:]))
    return layer, mean, covariance


def exact_evidence(phi, y, precision, noise):
    covariance = noise * np.eye(len(y)) + phi @ phi.T / precision
    return stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)


@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_linear_regression_has_its_exact_posterior_and_evidence(structure) -> None:
    x, y, phi = regression_of()
    layer, _, covariance = solve(x, phi, y, 0.3, 0.2)
    found = Laplace.fit(
        layer, [(x, y)], structure=structure, likelihood="regression", prior_precision=0.3, noise_variance=0.2
    )
    assert found.log_marginal_likelihood == pytest.approx(exact_evidence(phi, y, 0.3, 0.2), rel=1e-11)
    precision = dense(found.curvature.decomposed) / 0.2 + 0.3 * np.eye(4)
    np.testing.assert_allclose(np.linalg.inv(precision), covariance, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("precision", "noise"),
    [
        pytest.param(None, None, id="both"),
        pytest.param(None, 0.2, id="prior", marks=pytest.mark.slow),
        pytest.param(0.3, None, id="noise", marks=pytest.mark.slow),
    ],
)
def test_fitting_and_solving_in_turn_reaches_the_maximum_of_the_exact_evidence(precision, noise) -> None:
    """The maximum over prior and noise, with the parameters as they are, is that of a direct optimiser; in
    turn with the exact mean it is the maximum of the evidence itself, since that mean is its optimum."""
    x, y, phi = regression_of()

    def given(log):
        a, b = np.exp(log)
        return precision or a, noise or b

    options = {"prior_precision": precision or "marginal_likelihood", "likelihood": "regression"}
    options |= {"noise_variance": noise or "marginal_likelihood", "structure": "full"}
    layer = solve(x, phi, y, 1.0, 1.0)[0]
    found = Laplace.fit(layer, [(x, y)], **options)

    def fixed(log):
        a, b = given(log)
        return -found.curvature.evidence.log_marginal_likelihood(a, b)

    tight = {"method": "Nelder-Mead", "options": {"xatol": 1e-9, "fatol": 1e-12}}
    best = optimize.minimize(fixed, np.zeros(2), **tight)
    assert found.log_marginal_likelihood == pytest.approx(-best.fun, abs=1e-9)
    np.testing.assert_allclose((found.prior_precision, found.noise_variance), given(best.x), rtol=1e-4)
    for _ in range(200):
        layer = solve(x, phi, y, found.prior_precision, found.noise_variance)[0]
        found = Laplace.fit(layer, [(x, y)], **options)
    best = optimize.minimize(lambda log: -exact_evidence(phi, y, *given(log)), np.zeros(2), **tight)
    assert found.log_marginal_likelihood == pytest.approx(-best.fun, abs=1e-8)
    np.testing.assert_allclose((found.prior_precision, found.noise_variance), given(best.x), rtol=1e-4)


@BIAS
@pytest.mark.parametrize("structure", ["kronecker", "full", "diagonal"])
def test_the_marginal_likelihood_of_classes_is_that_of_determinants_and_maximal(structure, bias) -> None:
    layer, x, y, phi = layer_of(bias=bias)
    found = Laplace.fit(layer, [(x, y)], structure=structure)
    theta, curvature = theta_of(layer), dense(found.curvature.decomposed)
    log_p = np.log(reference.softmax(phi @ theta.T))[np.arange(60), y].sum()

    def evidence(precision):
        return reference.log_evidence(curvature, theta, log_p, precision)

    assert found.log_marginal_likelihood == pytest.approx(evidence(found.prior_precision), rel=1e-10)
    best = optimize.minimize_scalar(lambda log: -evidence(np.exp(log)), bounds=(-8, 8), method="bounded")
    assert np.exp(best.x) == pytest.approx(found.prior_precision, rel=1e-3)
    assert found.log_marginal_likelihood >= -best.fun - 1e-10
    given = Laplace.fit(layer, [(x, y)], structure=structure, prior_precision=2.0)
    assert given.log_marginal_likelihood == pytest.approx(evidence(2.0), rel=1e-10)


# --- draws --------------------------------------------------------------------------------------------


def draw_all(posterior) -> np.ndarray:
    """The drawn parameters, (members, outputs, features and bias)."""
    found = posterior._members.heads.parameters(range(posterior.members))
    parts = [found["weight"], *([found["bias"][..., None]] if "bias" in found else [])]
    return torch.cat(parts, 2).double().numpy()


def has_covariance(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> bool:
    """Whether all means, and all products of two parameters, are within 5 standard errors.

    15 parameters have 15 + 120 statistics: it is wrong once in 13,000 seeds.
    """
    away = draws.reshape(len(draws), -1) - mean.ravel()
    variance = np.diag(covariance)
    means = np.abs(away.mean(0)) < 5 * np.sqrt(variance / len(away))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / len(away))
    return bool(means.all() and (np.abs(away.T @ away / len(away) - covariance) < 5 * error).all())


@pytest.mark.parametrize("structure", ["kronecker", "full", "diagonal"])
def test_heads_have_the_mean_and_covariance_of_the_posterior(structure) -> None:
    layer, x, y, _ = layer_of()
    posterior = Laplace.fit(layer, [(x, y)], structure=structure, prior_precision=0.5, samples=4000)
    precision = dense(posterior.curvature.decomposed) + 0.5 * np.eye(15)
    draws, theta = draw_all(posterior), theta_of(layer)
    assert has_covariance(draws, theta, np.linalg.inv(precision))
    # Controls: classes and features swapped, the other structure, a prior of another width.
    wrong = np.linalg.inv(precision).reshape(3, 5, 3, 5).transpose(1, 0, 3, 2).reshape(15, 15)
    assert not has_covariance(draws, theta, wrong)
    other = Laplace.fit(layer, [(x, y)], structure="full" if structure != "full" else "kronecker")
    swapped = np.linalg.inv(dense(other.curvature.decomposed) + 0.5 * np.eye(15))
    assert not has_covariance(draws, theta, swapped)
    assert not has_covariance(draws, theta, np.linalg.inv(precision + 0.5 * np.eye(15)))


def test_parameters_of_a_network_have_the_covariance_of_the_posterior() -> None:
    layer, x, y, _ = layer_of()
    posterior = Laplace.fit(
        layer, [(x, y)], structure="diagonal", layers="all", prior_precision=0.5, samples=4000
    )
    drawn = posterior._members.parameters()
    draws = torch.cat([drawn["weight"], drawn["bias"][..., None]], 2).numpy()
    h = torch.cat([posterior.curvature.tensors["weight"], posterior.curvature.tensors["bias"][:, None]], 1)
    covariance = np.diag(1 / (h.numpy().ravel() + 0.5))
    assert has_covariance(draws, theta_of(layer), covariance)
    assert not has_covariance(draws, theta_of(layer), covariance * 1.2)


def test_the_spread_of_logits_is_that_of_the_linear_model() -> None:
    """Functions of an input far from the data vary as the prior says; near them, less."""
    layer, x, y, phi = layer_of()
    posterior = Laplace.fit(layer, [(x, y)], structure="full", prior_precision=0.5, samples=4000)
    covariance = np.linalg.inv(reference.full_curvature(phi, theta_of(layer)) + 0.5 * np.eye(15))
    logits = torch.cat(list(posterior.predict(x[:4]))).numpy()
    for place, one in enumerate(phi[:4]):
        j = np.kron(np.eye(3), one)
        assert has_covariance(logits[:, place], theta_of(layer) @ one, j @ covariance @ j.T)


@pytest.mark.parametrize("structure", ["kronecker", "full", "diagonal", "all"])
def test_a_draw_belongs_to_seed_and_member(monkeypatch, structure) -> None:
    layer, x, y, _ = layer_of()
    options = {"layers": "all", "structure": "diagonal"} if structure == "all" else {"structure": structure}
    few, many = (Laplace.fit(layer, [(x, y)], samples=n, seed=3, **options) for n in (6, 12))
    expected = torch.cat(list(many.predict(x)))
    np.testing.assert_allclose(torch.cat(list(few.predict(x))), expected[:6], rtol=1e-10)
    np.testing.assert_allclose(
        torch.cat(list(many.predict(x, members=range(9, 2, -3)))), expected[[9, 6, 3]], rtol=1e-10
    )
    other = Laplace(layer, many.curvature, samples=12, seed=4)
    assert (torch.cat(list(other.predict(x))) != expected).all()
    again = Laplace(layer, many.curvature, samples=12, seed=3)
    monkeypatch.setattr("demur.posteriors.curvature.draws.BYTES_HELD", 300)  # few heads are kept
    for _ in range(2):
        np.testing.assert_allclose(torch.cat(list(again.predict(x))), expected, rtol=1e-10)


@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("products", ["exact", "bfloat16"])
def test_both_orders_give_the_same_scores(classes, products) -> None:
    layer, x, y, _ = layer_of(classes=classes)
    posterior = Laplace.fit(layer.float(), [(x, y)], samples=20, products=products)
    batches = [(x[:7], y[:7]), (x[7:30], y[7:30])]
    one, other = (
        demur.score(posterior, batches, order=order, progress=False) for order in ("batch", "member")
    )
    for name, values in one.columns.items():
        np.testing.assert_allclose(other.columns[name], values, rtol=2e-5, atol=1e-7, err_msg=name)
    with torch.no_grad():
        expected = layer(torch.from_numpy(x[:30]).float()).argmax(1)
    np.testing.assert_array_equal(one.deployed, expected)


@BIAS
def test_rounded_products_change_scores_by_a_fraction_of_their_standard_error(bias) -> None:
    layer, x, y, _ = layer_of(features=64, classes=40, bias=bias)
    posterior = Laplace.fit(layer.float(), [(x, y)], samples=100, prior_precision=20.0)
    rounded = Laplace(layer, posterior.curvature, prior_precision=20.0, samples=100, products="bfloat16")
    exact, found = (
        demur.score(each, [x], stderr=True, progress=False)["pairwise"] for each in (posterior, rounded)
    )
    error = np.abs(found.epistemic - exact.epistemic)
    assert 0 < (error / exact.epistemic).mean() < 3e-3
    assert (error / exact.stderr.epistemic).max() < 0.2


# --- predicted numbers ---------------------------------------------------------------------------------


def test_regression_has_the_exact_predictive_variance() -> None:
    x, y, phi = regression_of()
    layer, mean, covariance = solve(x, phi, y, 0.3, 0.2)
    posterior = Laplace.fit(
        layer, [(x, y)], likelihood="regression", prior_precision=0.3, noise_variance=0.2, samples=4000
    )
    found = demur.score(posterior, [(x, y)], measures=["pairwise", "A3"], progress=False)
    np.testing.assert_allclose(found["pairwise"].aleatoric, 0.5 * np.log(2 * np.pi * np.e * 0.2), rtol=1e-6)
    # Between two Gaussians of one variance: the variance of their means, over it. The rest is sampling error.
    expected = np.einsum("nf,fg,ng->n", phi, covariance, phi) / 0.2
    np.testing.assert_allclose(found["pairwise"].epistemic, expected, rtol=5 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(found.predictions, phi @ mean, atol=5 * np.sqrt(expected.max() * 0.2 / 4000))
    assert (found["A3"].epistemic > 0).all()


def test_several_outputs_are_vectors() -> None:
    layer, x, _, _ = layer_of()
    y = x[:, :3] + 1
    posterior = Laplace.fit(layer, [(x, y)], likelihood="regression", samples=10)
    one, other = (
        demur.score(posterior, [x[:5], x[5:9]], measures=["pairwise"], order=order, progress=False)
        for order in ("batch", "member")
    )
    np.testing.assert_allclose(one["pairwise"].epistemic, other["pairwise"].epistemic, rtol=1e-9)
    assert one["pairwise"].epistemic.shape == (9,)


# --- networks, files and interruptions -------------------------------------------------------------------


def network_of():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    return model, torch.randn(50, 4), torch.arange(50) % 3


WAYS = pytest.mark.parametrize(
    "options",
    [{}, {"structure": "full", "likelihood": "regression"}, {"structure": "diagonal", "layers": "all"}],
    ids=["kronecker", "regression", "whole network"],
)


@WAYS
def test_a_file_gives_the_same_posterior(tmp_path, options) -> None:
    model, x, y = network_of()
    y = torch.nn.functional.one_hot(y).float() if "likelihood" in options else y
    posterior = Laplace.fit(model, [(x, y)], samples=7, seed=5, path=tmp_path / "fit", **options)
    posterior.save(tmp_path / "saved")
    kind = {"measures": ["pairwise"], "progress": False}
    expected = demur.score(posterior, [x], **kind)["pairwise"].epistemic
    for name in ("fit", "saved"):
        loaded = Laplace.load(tmp_path / name, model)
        assert loaded.fingerprint() == posterior.fingerprint()
        assert loaded.log_marginal_likelihood == posterior.log_marginal_likelihood
        np.testing.assert_array_equal(demur.score(loaded, [x], **kind)["pairwise"].epistemic, expected)
    assert Laplace.load(tmp_path / "saved", model, samples=9, seed=1).members == 9
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(ValueError, match="model must have the parameters that"):
        Laplace.load(tmp_path / "saved", model)


@WAYS
def test_a_killed_fit_resumes_with_the_same_curvature(tmp_path, monkeypatch, options) -> None:
    model, x, y = network_of()
    y = torch.nn.functional.one_hot(y).float() if "likelihood" in options else y
    data = [(x[i : i + 10], y[i : i + 10]) for i in range(0, 50, 10)]
    kind = whole_network.NetworkSums if "layers" in options else last_layer.LastLayerSums
    # Features come in batches of their own.
    loader = data if "layers" in options else features(model, data, rows=10)
    expected = Laplace.fit(model, loader, **options).curvature
    path, before, calls = tmp_path / "fit", kind.add, []

    def add(self, *given):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        before(self, *given)

    monkeypatch.setattr(kind, "add", add)
    with pytest.raises(KeyboardInterrupt):
        Laplace.fit(model, loader, path=path, every=0.0, **options)
    resumed = Laplace.fit(model, loader, path=path, every=0.0, **options)
    assert len(calls) == 4 + 2
    assert resumed.curvature.fingerprint() == expected.fingerprint()
    again = Laplace.fit(model, loader, path=path, samples=5, **options)
    assert len(calls) == 4 + 2 and again.members == 5
    assert again.curvature.fingerprint() == expected.fingerprint()


def test_a_file_of_another_fit_or_of_other_data_is_refused(tmp_path) -> None:
    model, x, y = network_of()
    options = {"structure": "diagonal", "layers": "all", "path": tmp_path / "fit"}
    data = [(x[:25], y[:25]), (x[25:], y[25:])]
    Laplace.fit(model, data, **options)
    for other, message in (
        ([data[0], (x[25:] + 1, y[25:])], "Got others at input 25"),
        ([*data, data[0]], "Got others at input 50"),
        (data[:1], "expected 2 batches"),
    ):
        with pytest.raises(ValueError, match=message):
            Laplace.fit(model, other, **options)
    with pytest.raises(ValueError, match="layers was 'all' and is 'last'"):
        Laplace.fit(model, data, **options | {"layers": "last"})


def test_features_are_cached_and_the_network_is_left_as_it_was(tmp_path) -> None:
    model, x, y = network_of()
    model.train()
    state = torch.random.get_rng_state()
    first = Laplace.fit(model, [(x, y)], cache=tmp_path / "features")
    assert model.training and (tmp_path / "features" / "features.bin").exists()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())
    second = Laplace.fit(model, [(x, y)], cache=tmp_path / "features")
    assert first.fingerprint() == second.fingerprint()
    given = Laplace.fit(model[3], features(model, [(x, y)]))
    assert given.curvature.fingerprint() == first.curvature.fingerprint()


def test_a_forward_of_ones_own_and_named_inputs() -> None:
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x, scale):
            return {"found": self.b(torch.tanh(self.a(x)) * scale)}

    torch.manual_seed(0)
    model, x, y = Two(), torch.randn(20, 4), torch.arange(20) % 3
    data = [{"x": x, "scale": torch.ones(20, 1), "labels": y}]

    def forward(model, given):
        return model(**given)["found"]

    for options in ({}, {"structure": "diagonal", "layers": "all"}):
        posterior = Laplace.fit(model, data, forward=forward, samples=5, **options)
        assert demur.score(posterior, data, progress=False).members == 5


# --- what is refused -----------------------------------------------------------------------------------


def test_what_is_refused_is_refused_in_one_line(monkeypatch) -> None:
    layer, x, y, _ = layer_of()
    data = [(x, y)]
    cases = [
        ({"structure": "kfac"}, "structure must be 'kronecker' or 'full' or 'diagonal'. Got 'kfac'"),
        ({"layers": "all"}, "layers='all' takes structure='diagonal'. Got 'kronecker'"),
        ({"prior_precision": -1.0}, "prior_precision must be 'marginal_likelihood' or a positive number"),
        ({"prior_precision": None}, "prior_precision must be .* Got None"),
        ({"prior_precision": [1.0, 2.0]}, r"prior_precision must be .* Got \[1.0, 2.0\]"),
        ({"noise_variance": "guess"}, "noise_variance must be 'marginal_likelihood'"),
        ({"samples": 0}, "samples must be a positive integer"),
        ({"training_inputs": 1.5}, "training_inputs must be a positive integer"),
        ({"likelihood": "regression"}, r"labels must be numbers of shape \(60, 3\)"),
        ({"products": "half"}, "products must be 'exact' or 'bfloat16'"),
        ({"noise_variance": 0.1}, "noise_variance goes with likelihood='regression'. Got 0.1 for classes"),
        ({"products": "bfloat16", "layers": "all", "structure": "diagonal"}, "goes with layers='last'"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            Laplace.fit(layer, data, **options)
    with pytest.raises(ValueError, match="labels must be integers from 0 to 2"):
        Laplace.fit(layer, [(x, y + 1)])
    with pytest.raises(ValueError, match="labels must be one class for each input"):
        Laplace.fit(layer, [(x, np.eye(3, dtype=int)[y])])
    numbers = np.full((len(x), 3), np.nan)
    for options in ({}, {"prior_precision": 1.0, "noise_variance": 1.0}):
        with pytest.raises(ValueError, match=r"labels must be finite numbers\. Got NaN"):
            Laplace.fit(layer, [(x, numbers)], likelihood="regression", **options)
    with pytest.raises(ValueError, match=r"model must return finite outputs\. Got NaN"):
        Laplace.fit(layer, [(x * np.nan, y)], structure="diagonal", layers="all")
    for layers in ("last", "all"):
        with pytest.raises(ValueError, match="fit takes labels"):
            Laplace.fit(layer, [x], layers=layers, structure="diagonal")
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        Laplace.fit("net", data)
    with pytest.raises(ValueError, match=r"Features must be 4, as the last layer takes\. Got 5"):
        Laplace.fit(layer, Features(np.zeros((2, 5)), np.zeros(2, int)))
    large = nn.Linear(1280, 1000)
    with pytest.raises(
        ValueError,
        match=r"at most 1\.1 GB. Got 1281000 parameters .* 1\.31e\+04 GB. Use structure='kronecker'",
    ):
        Laplace.fit(large, Features(np.zeros((2, 1280)), np.zeros(2, int)), structure="full")
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    with pytest.raises(ValueError, match="takes parameters other than 0"):
        Laplace.fit(layer, data)


def test_a_perfect_fit_has_no_best_noise() -> None:
    layer, x, _, _ = layer_of()
    with torch.no_grad():
        y = layer(torch.from_numpy(x))
    with pytest.raises(ValueError, match="Got data that the model fits exactly"):
        Laplace.fit(layer, [(x, y)], likelihood="regression")


def test_a_network_that_cannot_be_differentiated_input_by_input_says_so() -> None:
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else self.layer(-x)

    _, x, y = network_of()
    with pytest.raises(ValueError, match=r"it cannot: .* Use layers='last'"):
        Laplace.fit(Branch(), [(x, y)], layers="all", structure="diagonal")
