"""The log-likelihood of a batch and its gradient: for any network, and faster for a linear layer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains.minibatches import ArrayMinibatches, Minibatches
from demur.posteriors.compiled_calls import (
    COMPUTE_GRADIENT,
    FEW_CLASSES,
    find_loop_by_work,
    flatten,
    takes_arrays,
)

if TYPE_CHECKING:
    from demur.posteriors.chains.stepper import ChainState

Likelihood = Callable[[Any, Any], Any]
"""A function of the model's output for a batch and of the targets: the log-likelihood of each input."""

_PLAIN_CALL, _PLAIN_PRODUCT = 150e-6, 0.1e-9
"""Seconds that PyTorch takes for the gradient of a linear layer: for calling it, and for each input, feature
and class."""


class Gradient(Protocol):
    """Computes the average log-likelihood of a batch, and its gradient by name, flattened by `flatten`."""

    def __call__(self, state: ChainState) -> tuple[float, dict[str, Any]]:
        """Return both for the batch of a chain's next step."""
        ...


def choose_gradient(
    model: Any,
    sampled: Mapping[str, Any],
    minibatches: Minibatches,
    likelihood: Likelihood | None,
    forward: networks.Forward | None,
    steps: int,
) -> Gradient:
    """Return the fastest way to the gradient with respect to the sampled parameters, for so many steps."""
    import torch

    general = NetworkGradient(model, minibatches, likelihood, forward)
    plain = type(model) is torch.nn.Linear and not (model._forward_hooks or model._forward_pre_hooks)
    whole = set(sampled) == {name for name, _ in model.named_parameters()}
    if not (plain and whole and likelihood is None and forward is None):
        return general
    if isinstance(minibatches, ArrayMinibatches) and CompiledLinearGradient.accepts(minibatches, sampled):
        weight = sampled["weight"]
        seconds = steps * (_PLAIN_CALL + minibatches.batch_size * weight.numel() * _PLAIN_PRODUCT)
        kind = str(weight.dtype).removeprefix("torch.")
        # Roundings differ: what lies on disk must not decide which samples a seed gives.
        if find_loop_by_work(COMPUTE_GRADIENT, kind, seconds) is not None:
            return CompiledLinearGradient(minibatches, sampled)
    return LinearGradient(general)


class BatchLikelihood:
    """The average log-likelihood of a batch, for any network."""

    def __init__(
        self, model: Any, log_likelihood: Likelihood | None, forward: networks.Forward | None
    ) -> None:
        self.log_likelihood = log_likelihood
        # The default likelihood takes logits, which forward returns; others take the model's own output.
        self.call = CallWithParameters(model, forward if log_likelihood is None else None)

    def average(self, parameters: dict[str, Any], batch: tuple[Any, Any]) -> Any:
        """Return the average log-likelihood of the inputs of a batch."""
        import torch

        inputs, targets = batch
        outputs = self.call(parameters, inputs)
        if self.log_likelihood is None:
            logits = networks.extract_predictions(outputs)
            targets = targets if targets.is_floating_point() else targets.long()
            with _explain_labels(targets, logits):
                each = -torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        else:
            each = self.log_likelihood(outputs, targets)
            if not isinstance(each, torch.Tensor) or each.shape != (len(targets),):
                raise ValueError(
                    f"log_likelihood must return one number for each input, shape ({len(targets)},). "
                    f"Got {tuple(getattr(each, 'shape', ())) or type(each).__name__}."
                )
        return each.mean()


class NetworkGradient:
    """The gradient of any network, by automatic differentiation."""

    def __init__(
        self,
        model: Any,
        minibatches: Minibatches,
        log_likelihood: Likelihood | None,
        forward: networks.Forward | None,
    ) -> None:
        self.minibatches, self.likelihood = minibatches, BatchLikelihood(model, log_likelihood, forward)
        self.place = networks.locate_model(model)

    def batch(self, step: int) -> tuple[Any, Any]:
        """Return the inputs and targets of a step, on the model's device."""
        inputs, targets = self.minibatches.at(step)
        return networks.move_inputs(inputs, *self.place), networks.move_inputs(targets, *self.place)

    def __call__(self, state: ChainState) -> tuple[float, dict[str, Any]]:
        return self.compute(state.parameters, self.batch(state.step))

    def compute(self, parameters: dict[str, Any], batch: tuple[Any, Any]) -> tuple[float, dict[str, Any]]:
        """Return the average log-likelihood and its gradient for a batch."""
        import torch

        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            average = self.likelihood.average(leaves, batch)
            if not average.requires_grad:
                raise ValueError("log_likelihood must depend on the parameters. Got one without gradients.")
            found = torch.autograd.grad(average, list(leaves.values()), materialize_grads=True)
        dense = [value.to_dense() if value.is_sparse else value for value in found]
        return average.item(), {name: flatten(value) for name, value in zip(leaves, dense, strict=True)}


class LinearGradient:
    """The gradient for class labels and a single linear layer: two products, faster than differentiation.

    Batches of another kind, such as probabilities of classes, are left to automatic differentiation.
    """

    def __init__(self, general: NetworkGradient) -> None:
        self.general = general

    def __call__(self, state: ChainState) -> tuple[float, dict[str, Any]]:
        import torch

        inputs, labels = self.general.batch(state.step)
        if not _is_labelled(inputs, labels):
            return self.general.compute(state.parameters, (inputs, labels))
        with torch.no_grad():
            weight, bias = state.parameters["weight"], state.parameters.get("bias")
            logits = torch.nn.functional.linear(inputs, weight, bias)
            logs = torch.log_softmax(logits, -1)
            labels = labels.long()[:, None]
            with _explain_labels(labels, logits):
                average = logs.gather(1, labels).mean()
            # One for the label's class, less the probabilities.
            missing = logs.exp_().neg_().scatter_add_(1, labels, torch.ones_like(logs[:, :1]))
            missing /= len(inputs)
            found = {"weight": missing.T @ inputs}
            if bias is not None:
                found["bias"] = missing.sum(0)
        return average.item(), {name: flatten(value) for name, value in found.items()}


class CompiledLinearGradient:
    """The gradient for class labels and a single linear layer of few classes, in a compiled loop.

    It reads the rows of arrays in memory without copying them, and writes the gradients of all steps to the
    same memory.
    """

    @staticmethod
    def accepts(minibatches: ArrayMinibatches, sampled: Mapping[str, Any]) -> bool:
        """Return whether it can be used; the other ways handle, or refuse, everything else."""
        import torch

        inputs, weight = minibatches.inputs, sampled["weight"]
        if (
            len(weight) > FEW_CLASSES
            or not takes_arrays(weight)
            or not _is_labelled(inputs, minibatches.targets)
        ):
            return False
        plain = inputs.layout is torch.strided and inputs.device.type == "cpu"
        alike = all(each.dtype == inputs.dtype for each in sampled.values())
        return plain and alike and inputs.shape[1] == weight.shape[1]

    def __init__(self, minibatches: ArrayMinibatches, sampled: Mapping[str, Any]) -> None:
        weight = sampled["weight"]
        self.minibatches = minibatches
        self.inputs = minibatches.inputs.detach().contiguous().numpy()
        # A copy: compiled loops do not check labels again.
        labels = minibatches.targets.detach().long().cpu().clone()
        _check_labels(labels, len(weight))
        self.labels = labels.numpy()
        self.found = {name: np.empty(value.numel(), self.inputs.dtype) for name, value in sampled.items()}
        self.nothing = np.zeros(len(weight), self.inputs.dtype), np.empty(len(weight), self.inputs.dtype)

    def __call__(self, state: ChainState) -> tuple[float, dict[str, Any]]:
        from demur.posteriors.heads import compiled_products

        own, found, (zero, unused) = state.flat, self.found, self.nothing
        bias = own["bias"][0] if "bias" in own else zero
        average = compiled_products.compute_gradient(
            self.inputs, self.labels, self.minibatches.find_rows(state.step), own["weight"][0], bias,
            found["weight"], found.get("bias", unused),
        )  # fmt: skip
        return average, found


@contextlib.contextmanager
def _explain_labels(labels: Any, logits: Any) -> Iterator[None]:
    """Replace PyTorch's error for a label that is not a class by one that names it."""
    try:
        yield
    except (IndexError, RuntimeError):
        if not labels.is_floating_point():
            _check_labels(labels, logits.shape[-1])
        elif labels.shape != logits.shape:
            raise ValueError(
                f"targets must be classes as integers, or their probabilities, {tuple(logits.shape)}. Got "
                f"{labels.dtype} of shape {tuple(labels.shape)}. For predicted numbers, give log_likelihood."
            ) from None
        raise


def _check_labels(labels: Any, classes: int) -> None:
    """Raise unless all labels are classes of the model."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"targets must be classes from 0 to {classes - 1}, as the model has. Got {low} to {high}."
        ) from None


def _is_labelled(inputs: Any, labels: Any) -> bool:
    """Return whether these are rows of features with one class label each."""
    import torch

    if not isinstance(inputs, torch.Tensor) or inputs.ndim != 2 or labels.is_floating_point():
        return False
    return labels.shape == inputs.shape[:1]


def _call_raw(model: Any, inputs: Any) -> Any:
    """Call a model and return its output as it is."""
    return networks.call_with_names(model, inputs) if isinstance(inputs, Mapping) else model(inputs)


class CallWithParameters:
    """Calls a model with other parameters than its own."""

    def __init__(self, model: Any, forward: networks.Forward | None) -> None:
        import torch

        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, inputs: Any) -> Any:
                return _call_raw(self.model, inputs) if forward is None else forward(self.model, inputs)

        self.module = Module()

    def __call__(self, parameters: dict[str, Any], inputs: Any) -> Any:
        from torch.func import functional_call

        named = {f"model.{name}": value for name, value in parameters.items()}
        return functional_call(self.module, named, (inputs,))
