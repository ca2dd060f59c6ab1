"""Batch-norm statistics of a network with given parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from demur.posteriors import networks
from demur.posteriors.chains.gradients import CallWithParameters
from demur.posteriors.chains.minibatches import Minibatches


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


class MemberStatistics:
    """The batch-norm statistics of members, computed when they are first needed, and kept.

    Parameters
    ----------
    model, call
        The network, and what calls it with other parameters.
    minibatches
        The training data, of which each member gets the same pass; None where there are none.
    """

    def __init__(self, model: Any, call: CallWithParameters, minibatches: Minibatches | None) -> None:
        self._model, self._call, self._minibatches = model, call, minibatches
        self._kept: dict[int, dict[str, Any]] = {}

    def find(self, member: int, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the statistics of a member with these parameters; none for a network without batch norm."""
        if not find_batch_norm(self._model):
            return {}
        if member not in self._kept:
            found = compute_statistics(self._model, self._call, parameters, self._read_inputs())
            self._kept[member] = found
        return self._kept[member]

    def restore(self, member: int, statistics: dict[str, Any]) -> None:
        """Keep statistics that were found before."""
        self._kept[member] = statistics

    def clear(self) -> None:
        """Forget the statistics of all members."""
        self._kept = {}

    def _read_inputs(self) -> Iterator[Any]:
        """Yield the inputs of one pass over the data."""
        if self._minibatches is None:
            raise ValueError(
                "model has batch norm, whose statistics are computed anew for each draw. Give training data: "
                "SWAG(model, data=...), or keep the model's own statistics with refresh=False."
            )
        for step in range(self._minibatches.batches_per_pass):
            yield self._minibatches.at(step)[0]


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
