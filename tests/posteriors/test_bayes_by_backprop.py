"""BayesByBackprop finds the mean-field Gaussian closest to the posterior, for any network, and resumes."""

import copy
import math

import numpy as np
import pytest

import demur
from demur.posteriors import BayesByBackprop
from demur.posteriors.variational.mean_field import MeanField
from demur.posteriors.variational.objective import VariationalObjective

torch = pytest.importorskip("torch")
nn = torch.nn

NOISE, SCALE, ERRORS = 0.5, 2.0, 4.5
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(60, 4)).astype(np.float32))
Y = torch.from_numpy(rng.integers(0, 3, 60))


class Regression:
    """y = x w + noise: the posterior is Gaussian, with correlated parameters.

    The closest mean-field Gaussian has its mean, and the diagonal of its precision; its variances are smaller
    than those of the posterior.
    """

    def __init__(self, temperature: float = 1.0, centre: float = 0.0) -> None:
        source = np.random.default_rng(0)
        x = source.normal(size=(60, 4)) @ (np.eye(4) + 0.5 * source.normal(size=(4, 4)))
        y = x @ source.normal(size=4) + NOISE * source.normal(size=60)
        precision = x.T @ x / NOISE**2 + np.eye(4) / SCALE**2
        self.mean = np.linalg.solve(precision, x.T @ y / NOISE**2 + centre / SCALE**2)
        self.scale = np.sqrt(temperature / np.diag(precision))
        self.exact = np.sqrt(temperature * np.diag(np.linalg.inv(precision)))
        self.data = torch.from_numpy(x), torch.from_numpy(y)
        self.model = nn.Linear(4, 1, bias=False).double()
        nn.init.zeros_(self.model.weight)

    def posterior(self, **options):
        def log_likelihood(out, target):
            return -((out[:, 0] - target) ** 2) / (2 * NOISE**2)

        settings = {"steps": 600, "rate": 0.04, "draws": 4, "batch_size": 60, "samples": 5}
        return BayesByBackprop(
            self.model, self.data, log_likelihood=log_likelihood, prior_scale=SCALE, **settings | options
        )

    def agrees(self, posterior) -> bool:
        """Whether means are within 0.15 of a deviation, and deviations within 8 percent.

        Adam at a step size that falls to 0 leaves errors of up to 0.09 and 5 percent here, over seeds.
        """
        mean, scale = posterior.mean["weight"][0].numpy(), posterior.scale["weight"][0].numpy()
        near = (np.abs(mean - self.mean) < 0.15 * self.scale).all()
        return bool(near and (np.abs(scale / self.scale - 1) < 0.08).all())


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"batch_size": 20, "weighting": "geometric"}, marks=pytest.mark.slow),
        {"temperature": 0.25, "prior_mean": {"weight": np.full((1, 4), 5.0)}},
        pytest.param({"local": False, "draws": 16}, marks=pytest.mark.slow),
    ],
)
def test_linear_regression_has_its_exact_mean_field_solution(options) -> None:
    problem = Regression(options.get("temperature", 1.0), 5.0 if "prior_mean" in options else 0.0)
    posterior = problem.posterior(**options).fit(progress=False)
    assert problem.agrees(posterior)
    # The posterior itself is wider: the check can tell.
    assert (problem.exact / problem.scale > 1.1).any()


@pytest.mark.parametrize("kl_weight", [60.0, 0.25])
def test_control_a_kl_divergence_of_another_scale_is_found(kl_weight) -> None:
    """Not divided by N, or divided twice."""
    problem = Regression()
    assert not problem.agrees(problem.posterior(kl_weight=kl_weight, steps=300).fit(progress=False))


def mean_gradient(posterior, problem, draws, share=1.0):
    """The average gradient at the exact solution with respect to mean and rho, in standard errors."""
    q = MeanField.restore(torch.from_numpy(problem.mean), torch.from_numpy(np.log(np.expm1(problem.scale))))
    torch.manual_seed(0)
    found = []
    for _ in range(draws):
        loss = posterior.objective.compute(q, problem.data, share)
        found.append(torch.cat(torch.autograd.grad(loss, [q.mean, q.rho])).numpy())
    found = np.array(found)
    return found.mean(0) / (found.std(0) / math.sqrt(draws))


@pytest.mark.parametrize("options", [{}, {"local": False}, {"temperature": 0.25}])
def test_the_loss_is_stationary_at_the_exact_solution(options) -> None:
    problem = Regression(options.get("temperature", 1.0))
    posterior = problem.posterior(draws=1, **options)
    assert (np.abs(mean_gradient(posterior, problem, 800)) < ERRORS).all()
    assert (np.abs(mean_gradient(posterior, problem, 800, share=0.5)) > ERRORS).any()


def test_drawn_outputs_give_gradients_of_less_variance() -> None:
    def spread(local):
        problem = Regression()
        posterior = problem.posterior(draws=1, local=local)
        q = MeanField.restore(torch.from_numpy(problem.mean), torch.full((4,), -2.0, dtype=torch.float64))
        torch.manual_seed(0)
        found = [
            torch.autograd.grad(posterior.objective.compute(q, problem.data), q.mean)[0] for _ in range(300)
        ]
        return torch.stack(found).var(0)

    assert (spread(True) < spread(False) / 4).all()


def test_members_are_draws_from_the_gaussian() -> None:
    posterior = Regression().posterior(samples=3000, steps=50)
    drawn = posterior.parameters()["weight"][:, 0].numpy()
    mean, scale = posterior.mean["weight"][0].numpy(), posterior.scale["weight"][0].numpy()
    assert (np.abs(drawn.mean(0) - mean) < ERRORS * scale / math.sqrt(3000)).all()
    assert (np.abs(drawn.std(0) / scale - 1) < ERRORS / math.sqrt(6000)).all()
    correlation = np.corrcoef(drawn.T)[~np.eye(4, dtype=bool)]
    assert (np.abs(correlation) < ERRORS / math.sqrt(3000)).all()


def test_a_narrow_part_of_the_mixture_prunes_what_the_data_do_not_need() -> None:
    """A fifth input that is always 0 leaves the prior: its mixture's narrow part pulls the mean to 0."""
    problem = Regression()
    x, y = problem.data
    model = nn.Linear(5, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    posterior = BayesByBackprop(
        model, (torch.cat([x, 0 * x[:, :1]], 1), y), steps=600, rate=0.03, batch_size=60, samples=2,
        mixture=(0.25, SCALE, 0.05), log_likelihood=lambda o, t: -((o[:, 0] - t) ** 2) / (2 * NOISE**2),
    )  # fmt: skip
    mean, scale = posterior.mean["weight"][0].numpy(), posterior.scale["weight"][0].numpy()
    assert abs(mean[4]) < 0.05 and 0.02 < scale[4] < 0.1
    large = np.abs(problem.mean) > 0.5
    assert (np.abs(mean[:4] - problem.mean)[large] < 0.2).all()


# --- any network ---------------------------------------------------------------------------------


class Images(nn.Module):
    """Convolutions, batch norm, dropout, an embedding, a layer norm, a bare parameter, a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.embed, self.layer_norm = nn.Embedding(2, 3), nn.LayerNorm(3)
        self.shift = nn.Parameter(torch.zeros(()))
        self.frozen, self.out = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)
        self.dropout = nn.Dropout()

    def forward(self, x):
        maps = torch.relu(self.norm(self.conv(x.reshape(-1, 1, 2, 2))))
        side = self.embed((x[:, 0] > 0).long())
        return self.out(self.dropout(self.layer_norm(self.frozen(maps.mean((2, 3)) + side)))) + self.shift


SMALL = {"samples": 6, "epochs": 4, "batch_size": 16, "rate": 0.02}


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_any_network_is_trained_and_left_as_it_was() -> None:
    model = Images()
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    posterior = BayesByBackprop(model, (X, Y), **SMALL).fit(progress=False)
    scores = demur.score(posterior, [X], progress=False)
    assert scores.members == 6 and (scores["pairwise"].epistemic > 0).all()
    assert equal(dict(model.state_dict()), dict(before))
    assert [m.training for m in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    drawn = posterior.parameters()
    assert "frozen.weight" not in drawn and {"norm.weight", "shift", "embed.weight"} <= drawn.keys()
    assert set(posterior.objective._layers) == {"conv", "out"}
    moved = {name: (value - before[name]).abs().max() for name, value in posterior.mean.items()}
    assert all(each > 0 for each in moved.values())


def test_members_depend_on_seed_and_number_alone() -> None:
    first = BayesByBackprop(Images(), (X, Y), **SMALL)
    whole = first.parameters()
    torch.manual_seed(5)
    assert equal(whole, BayesByBackprop(Images(), (X.numpy(), Y.numpy()), **SMALL).parameters())
    assert not equal(whole, BayesByBackprop(Images(), (X, Y), seed=1, **SMALL).parameters())
    more = BayesByBackprop(Images(), (X, Y), **SMALL | {"samples": 9}).parameters(range(6))
    assert equal(more, whole)
    by_batch = demur.score(first, [X[:25], X[25:]], progress=False)
    by_member = demur.score(first, [X[:25], X[25:]], order="member", progress=False)
    np.testing.assert_allclose(by_member["pairwise"].epistemic, by_batch["pairwise"].epistemic, rtol=1e-9)


def test_a_loader_brings_its_own_batches() -> None:
    data = torch.utils.data.TensorDataset(X, Y)
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    first, second = (BayesByBackprop(Images(), loader, **SMALL) for _ in range(2))
    assert equal(first.parameters(), second.parameters()) and first.steps == 4 * 4


def test_networks_that_predict_gaussians_are_scored() -> None:
    def forward(model, x):
        mean, log_variance = model(x).unbind(-1)
        return demur.Gaussian(mean, log_variance.exp())

    def log_likelihood(out, target):
        return -out[:, 1] / 2 - (target - out[:, 0]) ** 2 / (2 * out[:, 1].exp())

    posterior = BayesByBackprop(
        nn.Linear(4, 2), (X, X[:, 0]), log_likelihood=log_likelihood, forward=forward, **SMALL
    )
    scores = demur.score(posterior, [X], measures=["pairwise"], progress=False)
    assert (scores["pairwise"].epistemic > 0).all()


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, monkeypatch) -> None:
    file = tmp_path / "run" / "bbb.safetensors"

    def posterior(**options):
        return BayesByBackprop(Images(), (X, Y), **SMALL | options)

    posterior().save(tmp_path / "whole")
    before, calls = VariationalObjective.compute, []

    def stop_at_the_eighth(self, *given):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return before(self, *given)

    monkeypatch.setattr(VariationalObjective, "compute", stop_at_the_eighth)
    with pytest.raises(KeyboardInterrupt):
        posterior(checkpoint=file, every=0.0).fit(progress=False)
    resumed = posterior(checkpoint=file, every=0.0)
    resumed.save(tmp_path / "resumed")
    assert len(calls) == 12 + 1
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()
    assert equal(posterior(checkpoint=file).parameters(), resumed.parameters()) and len(calls) == 13
    with pytest.raises(ValueError, match=r"of another: .*kl_weight was 1.0 and is 2.0"):
        posterior(checkpoint=file, kl_weight=2.0).fit(progress=False)


def test_saved_gaussians_have_the_same_members(tmp_path) -> None:
    posterior = BayesByBackprop(Images(), (X, Y), **SMALL)
    posterior.save(tmp_path / "bbb")
    loaded = BayesByBackprop.load(tmp_path / "bbb", Images())
    assert equal(loaded.parameters(), posterior.parameters())
    assert equal(loaded.scale, posterior.scale) and equal(loaded.mean, posterior.mean)
    assert torch.equal(next(loaded.predict(X)), next(posterior.predict(X)))
    assert loaded.fingerprint() == BayesByBackprop.load(tmp_path / "bbb", Images()).fingerprint()
    with pytest.raises(ValueError, match="parameters that were sampled"):
        BayesByBackprop.load(tmp_path / "bbb", nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be a positive integer"),
        ({"draws": 0}, "draws must be a positive integer"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"start_scale": math.inf}, "start_scale must be positive"),
        ({"kl_weight": -1.0}, "kl_weight must be 0 or more"),
        ({"weighting": "even"}, "'uniform' or 'geometric'"),
        ({"epochs": 0}, "epochs must be positive"),
        ({"prior_scale": 0.0}, "prior_scale must be positive"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"prior_scale": 1.0, "mixture": (0.5, 1.0, 0.1)}, "in place of prior_scale|place of prior_scale"),
    ],
)
def test_what_it_refuses(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        BayesByBackprop(nn.Linear(4, 3), (X, Y), **options)


def test_a_loss_that_is_not_finite_is_told() -> None:
    with pytest.raises(FloatingPointError, match="finite loss at step 1 of"):
        BayesByBackprop(nn.Linear(4, 3), (X * math.nan, Y), **SMALL).fit(progress=False)
