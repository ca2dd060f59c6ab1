"""Gradients by hand against automatic differentiation."""

import numpy as np
import pytest

from demur import kernels
from demur.kernels import compiling
from demur.posteriors import SGLD, CyclicalSGHMC
from demur.posteriors.chains.gradients import (
    CompiledLinearGradient,
    LinearGradient,
    NetworkGradient,
    choose_gradient,
)
from demur.posteriors.chains.minibatches import make_minibatches
from demur.posteriors.chains.stepper import ChainState

torch = pytest.importorskip("torch")
nn = torch.nn


def sampled(model):
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def found(model, data, size=100, step=0, kind=choose_gradient):
    batches, own = make_minibatches(data, size, 0), sampled(model)
    given = (own, batches, None, None, 1) if kind is choose_gradient else (batches, None, None)
    gradient = kind(model, *given)
    average, parts = gradient(ChainState(step, own, {}))
    return gradient, average, {name: np.ravel(part) for name, part in parts.items()}


def assert_that_of_autograd(model, data, size=100, step=0, rtol=1e-12):
    gradient, average, parts = found(model, data, size, step)
    _, expected, expected_parts = found(model, data, size, step, NetworkGradient)
    assert average == pytest.approx(expected, rel=rtol, abs=0)
    assert parts.keys() == expected_parts.keys()
    for name, part in expected_parts.items():
        np.testing.assert_allclose(parts[name], part, rtol=rtol, atol=rtol / 1000)
    return gradient


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("labels", [torch.int64, torch.uint8])
@pytest.mark.parametrize("classes", [1, 2, 5, 32, 33])
def test_a_linear_layers_gradient_by_hand_is_that_of_autograd(bias, labels, classes):
    torch.manual_seed(0)
    model = nn.Linear(7, classes, bias=bias).double()
    data = torch.randn(40, 7).double(), torch.randint(classes, (40,)).to(labels)
    gradient = assert_that_of_autograd(model, data)
    compiled = classes <= 32 and kernels.has_numba()
    assert isinstance(gradient, CompiledLinearGradient if compiled else LinearGradient)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 39])
@pytest.mark.parametrize("features", [1, 8, 13, 64])
def test_gradients_of_batches_of_any_size(size, features):
    torch.manual_seed(1)
    model = nn.Linear(features, 6).double()
    data = torch.randn(40, features).double(), torch.randint(6, (40,))
    for step in (0, 1, 7):
        assert_that_of_autograd(model, data, size, step)


def test_gradients_in_single_precision_and_of_large_logits():
    torch.manual_seed(2)
    model = nn.Linear(20, 10)
    with torch.no_grad():
        model.weight *= 100
    data = torch.randn(60, 20), torch.randint(10, (60,))
    assert isinstance(
        assert_that_of_autograd(model, data, rtol=1e-4), CompiledLinearGradient | LinearGradient
    )


def test_without_numba_gradients_by_hand_are_those_of_autograd(monkeypatch):
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    model = nn.Linear(7, 5).double()
    gradient = assert_that_of_autograd(model, (torch.randn(40, 7).double(), torch.randint(5, (40,))), 16, 2)
    assert isinstance(gradient, LinearGradient)


@pytest.mark.parametrize("kind", [torch.uint8, torch.uint16, torch.int32])
def test_labels_of_short_chains_may_be_integers_of_any_type(monkeypatch, kind):
    monkeypatch.setenv("DEMUR_COMPILE", "never")
    labels = torch.randint(5, (40,))
    model, x = nn.Linear(7, 5), torch.randn(40, 7)
    expected = found(model, (x, labels), 16)[2]
    for name, part in found(model, (x, labels.to(kind)), 16)[2].items():
        np.testing.assert_array_equal(part, expected[name])


@pytest.mark.parametrize("on_disk", [True, False])
def test_long_chains_take_the_compiled_gradient_whatever_lies_on_disk(monkeypatch, on_disk):
    monkeypatch.delenv("DEMUR_COMPILE")
    monkeypatch.setattr(compiling, "is_on_disk", lambda name: on_disk)
    model = nn.Linear(7, 5)
    data = make_minibatches((torch.randn(40, 7), torch.randint(5, (40,))), 16, 0)
    kinds = [type(choose_gradient(model, sampled(model), data, None, None, n)) for n in (100, 100_000)]
    assert kinds == [LinearGradient, CompiledLinearGradient]


def test_a_batch_of_many_inputs_in_single_precision():
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([3.0, 0.0, 0.0]))
    data = torch.randn(300_000, 4), torch.zeros(300_000, dtype=int)
    gradient = found(model, data, len(data[0]))[2]["bias"]
    exact = -torch.softmax(model.bias.detach().double(), 0) + torch.tensor([1.0, 0.0, 0.0])
    np.testing.assert_allclose(gradient, exact.numpy(), rtol=1e-6)


def test_what_the_compiled_gradient_takes_and_what_it_leaves_to_others():
    model, x, y = nn.Linear(7, 3), torch.randn(40, 7), torch.randint(3, (40,))
    compiled = CompiledLinearGradient if kernels.has_numba() else LinearGradient
    for data in ((x.clone().requires_grad_(), y), (x.T.contiguous().T, y), (x, y.to(torch.uint16))):
        assert isinstance(found(model, data)[0], compiled)
    assert isinstance(found(model, (x.relu().to_sparse(), y))[0], LinearGradient)
    for data in ((x[:, :5], y), (x.double(), y)):
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            found(model, data)


def test_labels_are_those_that_were_checked():
    model, x, y = nn.Linear(7, 3), torch.randn(40, 7), torch.randint(3, (40,))
    batches, own = make_minibatches((x, y), 16, 0), sampled(model)
    gradient = choose_gradient(model, own, batches, None, None, 1)
    expected = gradient(ChainState(0, own, {}))[0]
    if isinstance(gradient, CompiledLinearGradient):
        y.fill_(5_000_000)
        assert gradient(ChainState(0, own, {}))[0] == expected


def test_sparse_gradients_are_made_dense():
    model = nn.Sequential(nn.Embedding(20, 3, sparse=True))
    chain = SGLD(
        model, (torch.randint(20, (40,)), torch.randint(3, (40,))), samples=2, steps=6, batch_size=16
    )
    assert torch.isfinite(chain.parameters()["0.weight"]).all()


def test_numbers_that_are_not_finite_come_through():
    model = nn.Linear(3, 4)
    inputs = torch.randn(6, 3)
    inputs[4, 1] = torch.nan
    assert np.isnan(found(model, (inputs, torch.zeros(6, dtype=int)))[1])


def test_probabilities_of_classes_go_by_autograd():
    model = nn.Linear(3, 4)
    data = torch.randn(6, 3), torch.softmax(torch.randn(6, 4), -1)
    assert isinstance(assert_that_of_autograd(model, data), LinearGradient)


def test_what_is_not_a_linear_layer_alone_goes_by_autograd():
    data = make_minibatches((torch.randn(6, 3), torch.zeros(6, dtype=int)), 100, 0)
    layer, frozen, heard = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(3, 4)
    frozen.bias.requires_grad_(False)
    heard.register_forward_hook(lambda module, given, out: 2 * out)
    for model in (nn.Sequential(layer), frozen, heard):
        assert isinstance(choose_gradient(model, sampled(model), data, None, None, 1), NetworkGradient)
    likelihood = lambda outputs, targets: -((outputs[:, 0] - targets) ** 2)  # noqa: E731
    assert isinstance(choose_gradient(layer, sampled(layer), data, likelihood, None, 1), NetworkGradient)
    forward = lambda model, inputs: model(inputs) / 2  # noqa: E731
    assert isinstance(choose_gradient(layer, sampled(layer), data, None, forward, 1), NetworkGradient)


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
        found(model, (torch.randn(3, 4), labels))
