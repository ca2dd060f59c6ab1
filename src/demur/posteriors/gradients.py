"""The log-likelihood of a batch and its gradient: of any network, and of a linear layer by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from demur.posteriors import networks

Likelihood = Callable[[Any, Any], Any]
"""From what a model returns for a batch, and the targets, to the log-likelihood of each input."""

Gradient = Callable[[dict[str, Any], tuple[Any, Any]], tuple[Any, dict[str, Any]]]
"""From parameters and a batch to the average log-likelihood of its inputs, and its gradient by name."""


def gradient_of(
    model: Any,
    sampled: Mapping[str, Any],
    likelihood: Likelihood | None,
    forward: networks.Forward | None,
) -> Gradient:
    """Return what computes the gradient with respect to the parameters that are sampled."""
    import torch

    general = OfNetwork(model, likelihood, forward)
    plain = type(model) is torch.nn.Linear and not (model._forward_hooks or model._forward_pre_hooks)
    whole = set(sampled) == {name for name, _ in model.named_parameters()}
    if plain and whole and likelihood is None and forward is None:
        return OfLinear(general)
    return general


class OfNetwork:
    """By automatic differentiation."""

    def __init__(
        self, model: Any, log_likelihood: Likelihood | None, forward: networks.Forward | None
    ) -> None:
        self.log_likelihood = log_likelihood
        # The default likelihood takes logits, which forward finds; another takes what the model returns.
        self.call = Call(model, forward if log_likelihood is None else None)

    def __call__(self, parameters: dict[str, Any], batch: tuple[Any, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            average = self.average(leaves, batch)
            if not average.requires_grad:
                raise ValueError("log_likelihood must depend on the parameters. Got one without gradients.")
            found = torch.autograd.grad(average, list(leaves.values()), materialize_grads=True)
        return average.detach(), dict(zip(leaves, found, strict=True))

    def average(self, parameters: dict[str, Any], batch: tuple[Any, Any]) -> Any:
        """Return the average log-likelihood of the inputs of a batch."""
        import torch

        inputs, targets = batch
        outputs = self.call(parameters, inputs)
        if self.log_likelihood is None:
            logits = networks.predictions_in(outputs)
            targets = targets if targets.is_floating_point() else targets.long()
            with told(targets, logits):
                each = -torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        else:
            each = self.log_likelihood(outputs, targets)
            if not isinstance(each, torch.Tensor) or each.shape != (len(targets),):
                raise ValueError(
                    f"log_likelihood must return one number for each input, shape ({len(targets)},). "
                    f"Got {tuple(getattr(each, 'shape', ())) or type(each).__name__}."
                )
        return each.mean()


class OfLinear:
    """Of class labels given a linear layer alone: two products, where automatic differentiation takes longer.

    Batches of another kind, as probabilities of classes, are left to automatic differentiation.
    """

    def __init__(self, general: OfNetwork) -> None:
        self.general = general

    def __call__(self, parameters: dict[str, Any], batch: tuple[Any, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        inputs, labels = batch
        if not labelled(inputs, labels):
            return self.general(parameters, batch)
        with torch.no_grad():
            weight, bias = parameters["weight"], parameters.get("bias")
            logits = torch.nn.functional.linear(inputs, weight, bias)
            logs = torch.log_softmax(logits, -1)
            labels = labels.long()[:, None]
            with told(labels, logits):
                average = logs.gather(1, labels).mean()
            # One for the label's class, less the probabilities.
            missing = logs.exp_().neg_().scatter_add_(1, labels, torch.ones_like(logs[:, :1]))
            missing /= len(inputs)
            found = {"weight": missing.T @ inputs}
            if bias is not None:
                found["bias"] = missing.sum(0)
        return average, found


@contextlib.contextmanager
def told(labels: Any, logits: Any) -> Iterator[None]:
    """Say what is wrong where PyTorch finds a label that is no class."""
    try:
        yield
    except (IndexError, RuntimeError):
        low, high, classes = int(labels.min()), int(labels.max()), logits.shape[-1]
        if labels.is_floating_point() or (low >= 0 and high < classes):
            raise
        raise ValueError(
            f"targets must be classes from 0 to {classes - 1}, as the model has. Got {low} to {high}."
        ) from None


def labelled(inputs: Any, labels: Any) -> bool:
    """Tell whether these are rows of features with a class each."""
    import torch

    if not isinstance(inputs, torch.Tensor) or inputs.ndim != 2 or labels.is_floating_point():
        return False
    return labels.shape == inputs.shape[:1]


def raw(model: Any, inputs: Any) -> Any:
    """Return what a model returns, whatever it is."""
    return networks.with_names(model, inputs) if isinstance(inputs, Mapping) else model(inputs)


class Call:
    """A model, called with parameters that are not its own."""

    def __init__(self, model: Any, forward: networks.Forward | None) -> None:
        import torch

        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, inputs: Any) -> Any:
                return raw(self.model, inputs) if forward is None else forward(self.model, inputs)

        self.module = Module()

    def __call__(self, parameters: dict[str, Any], inputs: Any) -> Any:
        from torch.func import functional_call

        named = {f"model.{name}": value for name, value in parameters.items()}
        return functional_call(self.module, named, (inputs,))
