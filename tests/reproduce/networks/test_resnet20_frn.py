"""The ResNet-20 with filter response normalisation, against loops and its count of parameters."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from demur.reproduce.networks.resnet20_frn import resnet20_frn  # noqa: E402


def test_it_has_the_parameters_of_its_layers():
    widths = [(3, 16, 3), *[(16, 16, 3)] * 6, (16, 32, 3), (16, 32, 1), *[(32, 32, 3)] * 5, (32, 64, 3)]
    widths += [(32, 64, 1), *[(64, 64, 3)] * 5]
    # Weights and a bias of each convolution, three numbers per channel for its normalisation; a last layer.
    expected = sum(a * b * k * k + b + 3 * b for a, b, k in widths) + 64 * 10 + 10
    assert sum(p.numel() for p in resnet20_frn().parameters()) == expected


def test_a_layer_is_that_of_loops():
    torch.manual_seed(0)
    network = resnet20_frn().double()
    _, convolution, norm = network[1]
    for part in norm.parameters():
        torch.nn.init.normal_(part)
    images = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    found = network[1](network[0](images)).detach().numpy()
    standard = (images.numpy() - np.array([0.49, 0.48, 0.44])[:, None, None]) / 0.2
    weight, bias = convolution.weight.detach().numpy(), convolution.bias.detach().numpy()
    padded = np.pad(standard, ((0, 0), (0, 0), (1, 1), (1, 1)))
    gamma, beta, tau = (part.detach().numpy().ravel() for part in (norm.gamma, norm.beta, norm.tau))
    for c in range(2):
        maps = np.array(
            [
                [(padded[1, :, i : i + 3, j : j + 3] * weight[c]).sum() + bias[c] for j in range(32)]
                for i in range(32)
            ]
        )
        expected = np.maximum(gamma[c] * maps / np.sqrt((maps**2).mean() + 1e-6) + beta[c], tau[c])
        np.testing.assert_allclose(found[1, c], expected, rtol=1e-9, atol=1e-12)


def test_predictions_do_not_depend_on_the_batch():
    torch.manual_seed(0)
    network, images = resnet20_frn(), torch.rand(4, 3, 32, 32)
    whole = network(images)
    assert whole.shape == (4, 10)
    torch.testing.assert_close(network(images[:1]), whole[:1], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(whole[0], whole[1])
