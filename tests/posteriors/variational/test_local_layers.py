"""Layers that draw their outputs have the means and variances of layers that draw their weights."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from demur.posteriors.variational import local_layers
from demur.posteriors.variational.mean_field import MeanField
from demur.posteriors.variational.objective import find_share
from demur.posteriors.variational.priors import GaussianPrior, ScaleMixturePrior, check_mixture

torch = pytest.importorskip("torch")
nn = torch.nn

ERRORS, DRAWS = 4.5, 3000

LAYERS = {
    "linear": (lambda: nn.Linear(5, 3), (2, 5)),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False), (2, 4, 5)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding=1, dilation=2), (2, 2, 7)),
    "conv1d, circular": (lambda: nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular", groups=2), (2, 2, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 2, 5, 5)),
    "conv2d without bias": (lambda: nn.Conv2d(2, 2, (1, 3), bias=False), (1, 2, 3, 5)),
}


def make(name):
    """Return a layer, an input, and means and scales of its parameters."""
    torch.manual_seed(0)
    build, shape = LAYERS[name]
    layer, inputs = build().double(), torch.randn(shape, dtype=torch.float64)
    inputs.view(-1)[::3] = 0  # as after a ReLU
    means = {n: p.detach().clone() for n, p in layer.named_parameters()}
    scales = {n: 0.1 + 0.5 * torch.rand_like(p) for n, p in means.items()}
    return layer, inputs, means, scales


def draw_locally(layer, inputs, means, scales):
    with local_layers.draw_outputs({"": layer}, means, scales):
        return torch.stack([layer(inputs) for _ in range(DRAWS)])


def draw_weights(layer, inputs, means, scales):
    """The slow, obvious way."""
    found = []
    for _ in range(DRAWS):
        own = {name: mean + scales[name] * torch.randn_like(mean) for name, mean in means.items()}
        found.append(torch.func.functional_call(layer, own, (inputs,)))
    return torch.stack(found)


def agree(a, b) -> bool:
    """Whether two samples of Gaussian outputs have the same means and variances."""
    first, second = a.var(0), b.var(0)
    means = (a.mean(0) - b.mean(0)).abs() <= ERRORS * ((first + second) / DRAWS).sqrt()
    variances = (first - second).abs() <= ERRORS * (2 * (first**2 + second**2) / DRAWS).sqrt()
    return bool(means.all() and variances.all())


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each not in ("linear", "conv2d"))) for each in LAYERS],
)
def test_outputs_have_the_moments_of_drawn_weights(name) -> None:
    given = make(name)
    with torch.no_grad():
        assert agree(draw_locally(*given), draw_weights(*given))
    assert "forward" not in vars(given[0])


@pytest.mark.parametrize("name", ["linear", "conv2d"])
def test_control_scales_that_are_not_squared_and_forgotten_biases_are_found(name) -> None:
    layer, inputs, means, scales = make(name)
    with torch.no_grad():
        right = draw_weights(layer, inputs, means, scales)
        assert not agree(draw_locally(layer, inputs, means, {n: s.sqrt() for n, s in scales.items()}), right)
        forgotten = scales | {"bias": scales["bias"] * 0}
        assert not agree(draw_locally(layer, inputs, means, forgotten), right)


def test_gradients_are_finite_where_inputs_are_zero() -> None:
    layer = nn.Linear(3, 2, bias=False)
    means = {"weight": layer.weight}
    rho = torch.zeros(2, 3, requires_grad=True)
    inputs = torch.zeros(4, 3, requires_grad=True)
    with local_layers.draw_outputs({"": layer}, means, {"weight": nn.functional.softplus(rho)}):
        layer(inputs).sum().backward()
    assert rho.grad.equal(torch.zeros(2, 3)) and inputs.grad.isfinite().all()


def test_a_layer_with_a_frozen_part_draws_the_rest() -> None:
    layer = nn.Linear(3, 2)
    scales = {"bias": torch.full((2,), 0.5)}
    with torch.no_grad(), local_layers.draw_outputs({"": layer}, {"bias": layer.bias}, scales):
        found = torch.stack([layer(torch.ones(1, 3)) for _ in range(DRAWS)])
    np.testing.assert_allclose(found.std(0), 0.5, rtol=ERRORS / math.sqrt(2 * DRAWS))


class Everything(nn.Module):
    """Layers that can draw their outputs, and layers that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice, self.never = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.tied.weight
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.conv = nn.Conv1d(1, 1, 3, padding=1)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        x = self.twice(self.twice(self.once(x)))
        x = nn.functional.linear(x, self.never.weight)
        x = self.other(self.tied(self.frozen(x)))
        x = self.attention(x[:, None], x[:, None], x[:, None])[0]
        return self.conv(x)[:, 0]


def test_layers_are_found_that_a_pass_calls_once() -> None:
    model = Everything()
    sampled = {name: each for name, each in model.named_parameters() if each.requires_grad}
    found = local_layers.find_local_layers(model, sampled, lambda: model(torch.ones(2, 4)))
    assert set(found) == {"once", "conv"}
    assert not any(module._forward_hooks for module in model.modules())


# --- mean field and priors -----------------------------------------------------------------------


def gaussian():
    torch.manual_seed(0)
    q = MeanField(torch.randn(5, dtype=torch.float64), 0.3)
    with torch.no_grad():
        q.rho += torch.randn(5)
    return q


def test_entropy_and_cross_entropy_make_the_kl_divergence() -> None:
    q, centre = gaussian(), torch.linspace(-1, 1, 5, dtype=torch.float64)
    cross = GaussianPrior(centre, 0.7).compute_cross_entropy(q.mean, q.scale)
    own = torch.distributions.Normal(q.mean, q.scale)
    expected = torch.distributions.kl_divergence(own, torch.distributions.Normal(centre, 0.7)).sum()
    torch.testing.assert_close(cross - q.compute_entropy(q.scale), expected)
    flat = GaussianPrior(centre, math.inf).compute_cross_entropy(q.mean, q.scale)
    assert flat.item() == 0


def test_the_mixture_has_its_cross_entropy_on_average() -> None:
    q, centre = gaussian(), torch.full((5,), 0.2, dtype=torch.float64)
    prior = ScaleMixturePrior(centre, *check_mixture((0.25, 1.0, math.exp(-2))))
    torch.manual_seed(1)
    with torch.no_grad():
        found = np.array([prior.compute_cross_entropy(q.mean, q.scale).item() for _ in range(DRAWS)])
        mean, scale = q.mean.numpy(), q.scale.numpy()

    def integrand(z, m, s):
        w = m + s * z - 0.2
        density = 0.25 * stats.norm.pdf(w) + 0.75 * stats.norm.pdf(w, 0, math.exp(-2))
        return -math.log(density) * stats.norm.pdf(z)

    expected = sum(integrate.quad(integrand, -9, 9, (m, s))[0] for m, s in zip(mean, scale, strict=True))
    error = found.std() / math.sqrt(DRAWS)
    assert abs(found.mean() - expected) < ERRORS * error
    assert abs(found.mean() - expected - math.log(2)) > ERRORS * error  # it can tell


@pytest.mark.parametrize("wrong", [(0.5, 1.0), (0.0, 1.0, 0.1), (0.5, 0.1, 1.0), (0.5, math.inf, 1.0), 0.5])
def test_what_is_no_mixture(wrong) -> None:
    with pytest.raises(ValueError, match="mixture must"):
        check_mixture(wrong)


@pytest.mark.parametrize("batches", [1, 4, 2000])
def test_shares_of_a_pass_halve_from_batch_to_batch_and_sum_to_all(batches) -> None:
    shares = [find_share("geometric", step, batches) for step in range(batches, 2 * batches)]
    assert sum(shares) == pytest.approx(batches)
    assert all(a == 2 * b for a, b in itertools.pairwise(shares[:5]))
    assert find_share("uniform", 3, batches) == 1.0
