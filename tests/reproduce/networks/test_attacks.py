"""Projected gradient descent: within its bounds, and at the worst point where that is known."""

import numpy as np
import pytest

from demur.reproduce.networks.attacks import attack_by_projected_gradient

torch = pytest.importorskip("torch")


def test_a_linear_model_is_attacked_at_the_corner():
    # The loss of a linear model with two classes grows along one direction only: the worst point is a corner.
    model = torch.nn.Linear(6, 2)
    rng = np.random.default_rng(0)
    inputs, labels = rng.uniform(0.3, 0.7, (40, 6)).astype(np.float32), rng.integers(2, size=40)
    found = attack_by_projected_gradient(model, inputs, labels, radius=0.1)
    weight = model.weight.detach().numpy()
    direction = np.sign(weight[1] - weight[0]) * np.where(labels == 0, 1, -1)[:, None]
    np.testing.assert_allclose(found, inputs + 0.1 * direction, atol=1e-6)


def test_it_stays_within_the_radius_and_the_range():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    rng = np.random.default_rng(1)
    inputs, labels = rng.uniform(size=(50, 8)).astype(np.float32), rng.integers(3, size=50)
    found = attack_by_projected_gradient(model, inputs, labels, radius=0.3)
    assert np.abs(found - inputs).max() <= 0.3 + 1e-6
    assert found.min() >= 0 and found.max() <= 1
    with torch.no_grad():
        before, after = (
            float(torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(labels)))
            for x in (inputs, found)
        )
    assert after > before + 0.1
    np.testing.assert_array_equal(found, attack_by_projected_gradient(model, inputs, labels, radius=0.3))
    assert all(parameter.grad is None for parameter in model.parameters())
