"""Gradients by hand against automatic differentiation."""

import pytest

from demur.posteriors import CyclicalSGHMC
from demur.posteriors.gradients import OfLinear, OfNetwork, gradient_of

torch = pytest.importorskip("torch")
nn = torch.nn


def sampled(model):
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("labels", [torch.int64, torch.uint8])
def test_a_linear_layers_gradient_by_hand_is_that_of_autograd(bias, labels):
    torch.manual_seed(0)
    model = nn.Linear(7, 5, bias=bias).double()
    batch = torch.randn(40, 7).double(), torch.randint(5, (40,)).to(labels)
    found = gradient_of(model, sampled(model), None, None)
    assert isinstance(found, OfLinear)
    average, gradient = found(sampled(model), batch)
    expected, expected_gradient = OfNetwork(model, None, None)(sampled(model), batch)
    torch.testing.assert_close(average, expected, rtol=1e-12, atol=0)
    assert gradient.keys() == expected_gradient.keys()
    for name, value in expected_gradient.items():
        torch.testing.assert_close(gradient[name], value, rtol=1e-12, atol=1e-15)


def test_probabilities_of_classes_go_by_autograd():
    model = nn.Linear(3, 4)
    batch = torch.randn(6, 3), torch.softmax(torch.randn(6, 4), -1)
    average, gradient = gradient_of(model, sampled(model), None, None)(sampled(model), batch)
    expected, expected_gradient = OfNetwork(model, None, None)(sampled(model), batch)
    assert average == expected and gradient.keys() == expected_gradient.keys()


def test_what_is_not_a_linear_layer_alone_goes_by_autograd():
    layer, frozen, heard = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(3, 4)
    frozen.bias.requires_grad_(False)
    heard.register_forward_hook(lambda module, given, out: 2 * out)
    for model in (nn.Sequential(layer), frozen, heard):
        assert isinstance(gradient_of(model, sampled(model), None, None), OfNetwork)
    likelihood = lambda outputs, targets: -((outputs[:, 0] - targets) ** 2)  # noqa: E731
    assert isinstance(gradient_of(layer, sampled(layer), likelihood, None), OfNetwork)
    forward = lambda model, inputs: model(inputs) / 2  # noqa: E731
    assert isinstance(gradient_of(layer, sampled(layer), None, forward), OfNetwork)


def test_a_chain_over_a_linear_layer_is_that_of_the_same_layer_in_a_network():
    torch.manual_seed(1)
    layer = nn.Linear(4, 3)
    data = torch.randn(50, 4), torch.randint(3, (50,))
    settings = {"samples": 4, "cycles": 2, "steps": 80, "batch_size": 16, "step_size": 0.1}
    alone = CyclicalSGHMC(layer, data, **settings).parameters()
    within = CyclicalSGHMC(nn.Sequential(layer), data, **settings).parameters()
    for name, value in alone.items():
        torch.testing.assert_close(value, within[f"0.{name}"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("label", [3, -1])
@pytest.mark.parametrize("model", [nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3))])
def test_a_label_that_is_no_class_is_told(model, label):
    labels = torch.tensor([0, 1, label])
    with pytest.raises(ValueError, match=rf"classes from 0 to 2, as the model has. Got {min(0, label)} to"):
        gradient_of(model, sampled(model), None, None)(sampled(model), (torch.randn(3, 4), labels))
