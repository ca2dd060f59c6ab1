"""spectral_normalise: the bound holds, small weights stay, and training goes on."""

import copy

import pytest

from demur.posteriors.one_pass import spectral_normalise

torch = pytest.importorskip("torch")
nn = torch.nn


def largest(weight) -> float:
    return torch.linalg.matrix_norm(weight.detach().flatten(1), 2).item()


def test_large_weights_are_bounded_and_small_ones_left() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4), nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).double()
    with torch.no_grad():
        for layer, scale in zip(model[:3], (50.0, 0.01, 20.0), strict=True):
            layer.weight.mul_(scale)
    small = model[1].weight.detach().clone()
    assert spectral_normalise(model, bound=0.9) is model
    for _ in range(30):  # one step of the power iteration in each pass
        _ = model[0].weight, model[2].weight
    assert largest(model[0].weight) == pytest.approx(0.9, rel=1e-6)
    assert largest(model[2].weight) == pytest.approx(0.9, rel=1e-6)
    torch.testing.assert_close(model[1].weight, small, rtol=0, atol=0)


def test_the_bound_follows_training() -> None:
    torch.manual_seed(0)
    model = spectral_normalise(nn.Linear(8, 8), bound=0.5, iterations=10)
    free = nn.Linear(8, 8)
    x, y = torch.randn(64, 8), 8 * torch.randn(64, 8)
    for each in (model, free):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.02)
        for _ in range(100):
            optimizer.zero_grad()
            nn.functional.mse_loss(each(x), y).backward()
            optimizer.step()
    assert largest(model.weight) == pytest.approx(0.5, rel=1e-2)
    assert largest(free.weight) > 2  # a control: without the bound, this training goes beyond it


def test_the_gradient_is_that_of_the_bounded_weight() -> None:
    layer = spectral_normalise(nn.Linear(3, 3).double(), bound=0.1, iterations=50).eval()
    own = layer.parametrizations.weight
    assert torch.autograd.gradcheck(own[0], (own.original.detach().clone().requires_grad_(),))


def test_evaluation_leaves_the_estimate_and_copies_agree() -> None:
    model = spectral_normalise(nn.Linear(4, 4), bound=0.1)
    model.eval()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(2, 4)
    first = model(x)
    torch.testing.assert_close(copy.deepcopy(model)(x), first, rtol=0, atol=0)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    spectral_normalise(model)  # a second call changes nothing
    torch.testing.assert_close(model(x), first, rtol=0, atol=0)


def test_zero_weights_stay_zero() -> None:
    layer = nn.Linear(3, 2)
    nn.init.zeros_(layer.weight)
    assert spectral_normalise(layer).weight.abs().max() == 0


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="bound must be positive"):
        spectral_normalise(nn.Linear(2, 2), bound=0)
    with pytest.raises(TypeError, match="model must be"):
        spectral_normalise(3)
