"""DUQ: distances, losses and moving averages against loops; the penalty against finite differences."""

import numpy as np
import pytest

from demur.posteriors.one_pass import DUQ, NetworkTraining
from demur.posteriors.one_pass.duq import CentroidHead, compute_cross_entropy, compute_gradient_penalty

from .made import check_direction, digits

torch = pytest.importorskip("torch")
nn = torch.nn


def test_distances_are_those_of_the_formula() -> None:
    head = CentroidHead(4, 3, size=5, length_scale=0.3, seed=0)
    x = torch.randn(6, 4, dtype=torch.float64)
    weight = head.parameters["weight"].detach().numpy()
    sums, counts = head.buffers["sums"].numpy(), head.buffers["counts"].numpy()
    for i, row in enumerate(x.numpy()):
        for c in range(3):
            away = weight[c] @ row - sums[c] / counts[c]
            expected = (away**2).sum() / (2 * 5 * 0.3**2)
            assert head.distances(x)[i, c].item() == pytest.approx(expected, rel=1e-12)


def test_centroids_are_moving_averages() -> None:
    head = CentroidHead(4, 3, size=5, length_scale=0.3, seed=0)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 0, 2, 2, 2, 0])
    sums, counts = head.buffers["sums"].clone(), head.buffers["counts"].clone()
    with torch.no_grad():
        head.update(x, y, momentum=0.9)
    for c in range(3):
        own = x[y == c] @ head.parameters["weight"][c].detach().T
        torch.testing.assert_close(head.buffers["sums"][c], 0.9 * sums[c] + 0.1 * own.sum(0))
        torch.testing.assert_close(head.buffers["counts"][c], 0.9 * counts[c] + 0.1 * (y == c).sum())


def test_the_loss_is_the_binary_cross_entropy_without_its_zeros() -> None:
    distances = torch.rand(5, 3, dtype=torch.float64) * 3
    labels = torch.tensor([0, 1, 2, 1, 0])
    shares = torch.exp(-distances)
    expected = nn.functional.binary_cross_entropy(shares, nn.functional.one_hot(labels, 3).double())
    torch.testing.assert_close(compute_cross_entropy(distances, labels), expected)
    far = torch.tensor([[1000.0, 0.0]], dtype=torch.float64, requires_grad=True)
    found = compute_cross_entropy(far, torch.tensor([0]))  # exp(-1000) is 0, and its log is not taken
    assert torch.isinf(found)  # K of the other class is exactly 1, which a label of 0 rules out
    far = torch.tensor([[1000.0, 5.0]], dtype=torch.float64, requires_grad=True)
    compute_cross_entropy(far, torch.tensor([0])).backward()
    assert far.grad[0, 0] == 0.5


def test_the_penalty_is_that_of_finite_differences() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh()).double()
    head = CentroidHead(6, 3, size=5, length_scale=0.8, seed=0)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)

    def total(values) -> float:
        return torch.exp(-head.distances(model(values))).sum().item()

    step, gradient = 1e-5, np.zeros((5, 4))
    for i in range(5):
        for j in range(4):
            moved = torch.zeros(5, 4, dtype=torch.float64)
            moved[i, j] = step
            gradient[i, j] = (total(x.detach() + moved) - total(x.detach() - moved)) / (2 * step)
    norms = np.sqrt((gradient**2).sum(1))
    penalty = compute_gradient_penalty(x, head.distances(model(x)))
    assert penalty.item() == pytest.approx(((norms - 1) ** 2).mean(), rel=1e-7)
    assert penalty.item() != pytest.approx(
        ((norms**2 - 1) ** 2).mean(), rel=1e-2
    )  # a control: the other form
    own = model[0].weight
    (found,) = torch.autograd.grad(penalty, own)  # through the gradient itself
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            own[0, 0] += sign * step
            with torch.enable_grad():
                values.append(compute_gradient_penalty(x, head.distances(model(x))).item())
            own[0, 0] -= sign * step
    assert found[0, 0].item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


@pytest.mark.slow
def test_it_classifies_digits_and_notices_noise(tmp_path) -> None:
    x, y, noise = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
    training = NetworkTraining(epochs=15, batch=64, rate=0.01, optimizer="adam")
    options = {"classes": 5, "size": 16, "length_scale": 0.3, "momentum": 0.95, "penalty": 0.05}
    found = DUQ.fit(model, (x[:600], y[:600]), **options, training=training, progress=False)
    assert np.mean(found.classify(x[600:]) == y[600:]) > 0.9
    known = found.score([x[600:]])
    check_direction(known, found.score([noise]), 0.9)
    found.save(tmp_path / "duq.safetensors")
    again = DUQ.load(tmp_path / "duq.safetensors", model)
    assert (again.fingerprint(), repr(again)) == (found.fingerprint(), repr(found))
    np.testing.assert_array_equal(again.score([noise]), found.score([noise]))


def test_bad_arguments() -> None:
    x, y = torch.randn(10, 3), torch.arange(10) % 2
    with pytest.raises(ValueError, match="length_scale must be positive"):
        DUQ.fit(nn.Identity(), (x, y), classes=2, length_scale=0)
    with pytest.raises(ValueError, match="momentum must be"):
        DUQ.fit(nn.Identity(), (x, y), classes=2, momentum=1.0)
    with pytest.raises(ValueError, match="inputs of floating numbers"):
        DUQ.fit(nn.Identity(), (torch.arange(10)[:, None], y), classes=2)
    with pytest.raises(ValueError, match="labels must be integers from 0 to 1"):
        DUQ.fit(nn.Identity(), (x, y + 1), classes=2)
