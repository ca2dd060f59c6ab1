"""Batch-norm statistics of a network with given parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from demur.posteriors import networks
from demur.posteriors.chains.gradients import CallWithParameters


def find_batch_norm(model: Any) -> dict[str, Any]:
    """Return the batch-norm layers with running statistics, by name."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


def compute_statistics(
    model: Any, call: CallWithParameters, parameters: dict[str, Any], batches: Iterable[Any]
) -> dict[str, Any]:
    """Return the running means and variances that batches of inputs give, by the names of the buffers.

    Each is the plain average over batches, as in ``torch.optim.swa_utils.update_bn``. Only batch norm is in
    training mode: dropout stays off, as it is in predictions. The model itself is not changed.
    """
    import torch

    layers = find_batch_norm(model)
    found = {}
    for name, layer in layers.items():
        found[f"{name}.running_mean"] = torch.zeros_like(layer.running_mean)
        found[f"{name}.running_var"] = torch.ones_like(layer.running_var)
        found[f"{name}.num_batches_tracked"] = torch.zeros_like(layer.num_batches_tracked)
    found = {name.removeprefix("."): value for name, value in found.items()}
    with networks.suspend_training([model]), networks.preserve_random_state(), _average(layers.values()):
        for inputs in batches:
            call(parameters | found, networks.copy_inputs(networks.move_to_model(inputs, model)))
    return {name: value for name, value in found.items() if not name.endswith("num_batches_tracked")}


@contextlib.contextmanager
def _average(layers: Iterable[Any]) -> Iterator[None]:
    """Let layers average the statistics of all batches; ``suspend_training`` restores their modes."""
    kept = [(layer, layer.momentum) for layer in layers]
    try:
        for layer, _ in kept:
            layer.training, layer.momentum = True, None
        yield
    finally:
        for layer, momentum in kept:
            layer.momentum = momentum
