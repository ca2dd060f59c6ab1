"""The same posteriors as laplace-torch, and its objects as posteriors; skipped where it is not installed."""

import copy
import warnings

import numpy as np
import pytest

import demur
from demur.posteriors import Laplace, from_laplace
from demur.posteriors.networks import derive_seed

torch = pytest.importorskip("torch")
nn = torch.nn
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies' own
    laplace = pytest.importorskip("laplace")

pytestmark = pytest.mark.filterwarnings("ignore")

LIKELIHOODS = pytest.mark.parametrize("likelihood", ["classification", "regression"])


def problem_of(likelihood="classification", bias=True):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3, bias=bias)).double()
    x = torch.randn(90, 4).double()
    noise = torch.randn(90, 3).double()
    y = (x[:, :3] + noise).argmax(1) if likelihood == "classification" else x[:, :3] + 0.3 * noise
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=40)
    return model, x, y, data


def fit_theirs(model, data, likelihood, subset, structure, **options):
    # It leaves hooks in the network.
    la = laplace.Laplace(copy.deepcopy(model), likelihood, subset, structure, **options)
    la.fit(data)
    return la


def covariance_of(posterior) -> np.ndarray:
    """Ours in the order of laplace-torch: all weights, and then the biases."""
    noise, about = posterior.noise_variance or 1.0, posterior.curvature.decomposed
    outputs, inputs = about.values.shape
    unit = torch.eye(outputs * inputs, dtype=torch.float64)
    q = torch.stack([about.multiply(each.reshape(outputs, inputs)).flatten() for each in unit], 1)
    whole = (q / (about.values.flatten() / noise + posterior.prior_precision)) @ q.T
    numbers = np.arange(outputs * inputs).reshape(outputs, inputs)
    order = np.concatenate([numbers[:, :6].ravel(), numbers[:, 6:].ravel()])
    return whole.numpy()[np.ix_(order, order)]


@LIKELIHOODS
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("structure", "theirs"), [("kronecker", "kron"), ("full", "full"), ("diagonal", "diag")]
)
def test_mean_covariance_and_marginal_likelihood_are_the_same(structure, theirs, bias, likelihood) -> None:
    model, _, _, data = problem_of(likelihood, bias)
    ours = Laplace.fit(model, data, structure=structure, likelihood=likelihood, bias="separate")
    la = fit_theirs(
        model, data, likelihood, "last_layer", theirs,
        prior_precision=ours.prior_precision, sigma_noise=(ours.noise_variance or 1.0) ** 0.5,
    )  # fmt: skip
    covariance = {
        "kron": lambda: la.posterior_precision.to_matrix(exponent=-1),
        "full": lambda: la.posterior_covariance,
        "diag": lambda: torch.diag(la.posterior_variance),
    }[theirs]()
    np.testing.assert_allclose(covariance_of(ours), covariance.detach(), rtol=1e-4, atol=1e-6)
    assert float(la.log_marginal_likelihood()) == pytest.approx(ours.log_marginal_likelihood, rel=1e-4)
    last = model[2]
    mean = torch.cat([each.flatten() for each in last.parameters()]).detach()
    np.testing.assert_allclose(la.mean, mean)
    if theirs == "full":  # a control: the other structure is another posterior
        other = Laplace.fit(model, data, likelihood=likelihood, prior_precision=ours.prior_precision)
        same = likelihood == "regression"  # of which Kronecker factors are exact, with a joint bias
        assert (np.abs(covariance_of(other) - covariance.detach().numpy()).max() < 1e-6) == same


@LIKELIHOODS
def test_the_diagonal_of_a_whole_network_is_the_same(likelihood) -> None:
    model, _, _, data = problem_of(likelihood)
    ours = Laplace.fit(model, data, structure="diagonal", layers="all", likelihood=likelihood)
    la = fit_theirs(
        model, data, likelihood, "all", "diag",
        prior_precision=ours.prior_precision, sigma_noise=(ours.noise_variance or 1.0) ** 0.5,
    )  # fmt: skip
    noise = ours.noise_variance or 1.0
    h = torch.cat([ours.curvature.tensors[name].flatten() for name, _ in model.named_parameters()])
    np.testing.assert_allclose(1 / (h / noise + ours.prior_precision), la.posterior_variance, rtol=1e-6)
    assert float(la.log_marginal_likelihood()) == pytest.approx(ours.log_marginal_likelihood, rel=1e-8)


def test_the_best_prior_precision_is_the_one_that_its_optimiser_walks_to() -> None:
    model, _, _, data = problem_of()
    ours = Laplace.fit(model, data, bias="separate")
    la = fit_theirs(model, data, "classification", "last_layer", "kron")
    la.optimize_prior_precision(method="marglik", n_steps=400)
    assert float(la.prior_precision) == pytest.approx(ours.prior_precision, rel=1e-3)


FLAVOURS = {
    "full": ("all", "full", {}),
    "kron": ("all", "kron", {}),
    "diag": ("all", "diag", {}),
    "last full": ("last_layer", "full", {}),
    "last kron": ("last_layer", "kron", {}),
    "last diag": ("last_layer", "diag", {}),
    "low rank": ("all", "lowrank", {}),
    "subnetwork full": ("subnetwork", "full", {"subnetwork_indices": torch.arange(9)}),
    "subnetwork diag": ("subnetwork", "diag", {"subnetwork_indices": torch.arange(9)}),
}
FUNCTIONAL = {
    "gp": ("all", "gp", {"n_subset": 30}),
    "last gp": ("last_layer", "gp", {"n_subset": 30}),
    "ELLA": (
        "all", "gp", {"functional_approximation": "nystrom", "subsample_size": 30, "n_eigenvalues": 5},
    ),
}  # fmt: skip


@LIKELIHOODS
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_members_are_the_network_with_the_parameters_that_it_samples(flavour, likelihood) -> None:
    if flavour == "low rank":
        pytest.importorskip("asdfghjkl")  # release 0.1a2; later ones are named asdl
    model, x, _, data = problem_of(likelihood)
    subset, structure, options = FLAVOURS[flavour]
    la = fit_theirs(model, data, likelihood, subset, structure, **options)
    posterior = from_laplace(la, samples=6, seed=4)
    found = list(posterior.predict(x))
    if likelihood == "regression":
        values = torch.cat([torch.as_tensor(each.values) for each in found])
        np.testing.assert_allclose(values[..., 3:], float(la.sigma_noise) ** 2)
        logits = values[..., :3]
    else:
        logits = torch.cat(found)
    for member in range(6):
        source = torch.Generator().manual_seed(derive_seed(4, member))
        other = copy.deepcopy(la.model.model if subset == "last_layer" else la.model)
        own = other[2] if subset == "last_layer" else other
        nn.utils.vector_to_parameters(la.sample(1, generator=source)[0], own.parameters())
        with torch.no_grad():
            np.testing.assert_allclose(logits[member], other(x), rtol=1e-9)
    kind = {"measures": ["pairwise"], "progress": False}
    one, other = (
        demur.score(posterior, [x[:30], x[30:50]], order=order, **kind)["pairwise"].epistemic
        for order in ("batch", "member")
    )
    np.testing.assert_allclose(one, other, rtol=1e-9)
    before = posterior.fingerprint()
    assert from_laplace(la, samples=6, seed=4).fingerprint() == before
    assert from_laplace(la, samples=6, seed=5).fingerprint() != before
    la.prior_precision = 3.0
    assert from_laplace(la, samples=6, seed=4).fingerprint() != before


@LIKELIHOODS
@pytest.mark.parametrize("flavour", FUNCTIONAL)
def test_function_space_members_have_the_moments_of_each_input(flavour, likelihood) -> None:
    """Means and variances within 5 standard errors, for 10 inputs and 3 outputs; and a control."""
    model, x, _, data = problem_of(likelihood)
    subset, structure, options = FUNCTIONAL[flavour]
    la = fit_theirs(model, data, likelihood, subset, structure, **options)
    posterior = from_laplace(la, samples=2000)
    outputs = torch.cat(list(posterior._members.predict(x[:10]))).numpy()
    mean, covariance = (each.detach().numpy() for each in la.predictive_moments(x[:10]))
    variance = np.einsum("ioo->io", covariance)

    def agrees(variance):
        means = np.abs(outputs.mean(0) - mean) < 5 * np.sqrt(variance / 2000)
        spread = np.abs(outputs.var(0) / variance - 1) < 5 * np.sqrt(2 / 2000)
        return bool(means.all() and spread.all())

    assert agrees(variance) and not agrees(1.5 * variance)
    np.testing.assert_allclose(posterior._members.deployed(x[:10]), mean, rtol=1e-6)
    split = [torch.cat(list(posterior._members.predict(x[i : i + 5], position=i))) for i in (0, 5)]
    np.testing.assert_allclose(torch.cat(split, 1), outputs, rtol=1e-6, atol=1e-9)
    found = demur.score(posterior, [x[:10]], measures=["pairwise"], progress=False)
    assert (found["pairwise"].epistemic > 0).all()


def test_the_same_posterior_gives_the_same_scores_up_to_sampling() -> None:
    model, x, y, data = problem_of()
    ours = Laplace.fit(model, data, bias="separate", samples=1000)
    la = fit_theirs(model, data, "classification", "last_layer", "kron", prior_precision=ours.prior_precision)
    one, other = (
        demur.score(each, [(x, y)], stderr=True, progress=False)
        for each in (ours, from_laplace(la, samples=1000))
    )
    a, b = one["pairwise"], other["pairwise"]
    error = np.hypot(a.stderr.epistemic, b.stderr.epistemic)
    assert (np.abs(a.epistemic - b.epistemic) < 5 * error).all()
    np.testing.assert_array_equal(one.deployed, other.deployed)


def test_what_is_refused_is_refused_in_one_line() -> None:
    model, *_ = problem_of()
    with pytest.raises(TypeError, match=r"la must be an object of laplace-torch\. Got Sequential"):
        from_laplace(model)
    la = laplace.Laplace(model, "classification", "all", "diag")
    with pytest.raises(ValueError, match="la must be fitted"):
        from_laplace(la)
    la.likelihood = "reward_modeling"
    with pytest.raises(ValueError, match=r"classification or regression\. Got 'reward_modeling'"):
        from_laplace(la)
