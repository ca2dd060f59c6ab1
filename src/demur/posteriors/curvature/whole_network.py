r"""Sums over the data of the diagonal of the generalised Gauss-Newton matrix, over a network's parameters.

For an input with Jacobian J of the outputs f, the diagonal of :math:`J^T \Lambda J` is the sum over rows
:math:`r_j` (see `likelihoods.compute_roots`) of the squared gradients of :math:`r_j \cdot f`. That is exact,
and takes one backward pass per output and input, many of them at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains.gradients import CallWithParameters
from demur.posteriors.chains.stepper import copy_parameters
from demur.posteriors.curvature.fitted import Curvature
from demur.posteriors.curvature.likelihoods import Likelihood, compute_roots, measure_fit

NUMBERS_AT_ONCE = 1 << 25
"""Derivatives held at a time, at most: inputs times outputs times parameters."""


class NetworkSums:
    """Sums over inputs, in float64, for each parameter that requires gradients.

    Parameters
    ----------
    model, forward
        The network, and a function of it and its inputs that returns outputs, where ``model(inputs)`` does
        not. The caller puts it in evaluation mode.
    likelihood
        As for `Laplace`.
    """

    def __init__(self, model: Any, forward: networks.Forward | None, likelihood: Likelihood) -> None:
        import torch

        self.model = model
        self.likelihood: Likelihood = likelihood
        self.parameters = copy_parameters(model)
        self.call, self.outputs = CallWithParameters(model, forward), 0
        self.state: dict[str, Any] = {
            f"diagonal.{name}": torch.zeros_like(value, dtype=torch.float64)
            for name, value in self.parameters.items()
        }
        self.state |= {
            "fit": torch.zeros((), dtype=torch.float64),
            "inputs": torch.zeros((), dtype=torch.int64),
        }

    def add(self, inputs: Any, targets: np.ndarray | None) -> None:
        """Add the inputs and targets of a batch."""
        import torch

        inputs = networks.move_to_model(inputs, self.model)
        with torch.no_grad():
            outputs = networks.extract_predictions(self.call(self.parameters, networks.copy_inputs(inputs)))
        self.outputs = outputs.shape[1]
        self.state["inputs"] += len(outputs)
        self.state["fit"] += measure_fit(outputs.double(), targets, self.likelihood).cpu()
        size = sum(value.numel() for value in self.parameters.values())
        together = min(outputs.shape[1], max(1, NUMBERS_AT_ONCE // size))
        rows = max(1, NUMBERS_AT_ONCE // (size * together))
        roots = compute_roots(outputs.double(), self.likelihood).to(outputs)
        for start in range(0, len(outputs), rows):
            some = slice(start, start + rows)
            part = _map(inputs, lambda each, some=some: each[some])
            for first in range(0, outputs.shape[1], together):
                self._add_squares(part, roots[some, first : first + together])

    def _add_squares(self, inputs: Any, roots: Any) -> None:
        """Add the squared gradients of some inputs along some rows, (inputs, rows, outputs)."""
        import torch

        def square_gradients(one: Any, own: Any) -> dict[str, Any]:
            alone = _map(one, lambda each: each[None])
            pull = torch.func.vjp(lambda given: self._predict_one(given, alone), self.parameters)[1]
            (found,) = torch.func.vmap(pull)(own)
            return {name: value.square().sum(0) for name, value in found.items()}

        try:
            found = torch.func.vmap(square_gradients)(inputs, roots)
        except RuntimeError as error:
            raise ValueError(
                "layers='all' takes a network that torch.func can differentiate input by input. Got one that "
                f"it cannot: {str(error).splitlines()[0]} Use layers='last'."
            ) from error
        for name, value in found.items():
            self.state[f"diagonal.{name}"] += value.sum(0, dtype=torch.float64)

    def _predict_one(self, parameters: dict[str, Any], alone: Any) -> Any:
        return networks.extract_predictions(self.call(parameters, alone))[0]

    def finish(self) -> Curvature:
        """Return the curvature summed over all inputs."""
        tensors = {name: self.state[f"diagonal.{name}"] for name in self.parameters}
        square = sum(float(value.double().square().sum()) for value in self.parameters.values())
        return Curvature(
            "diagonal", "all", self.likelihood, tensors, self.state["fit"].item(),
            int(self.state["inputs"]), self.outputs, square,
        )  # fmt: skip


def _map(inputs: Any, change: Any) -> Any:
    """Change each tensor of a batch of inputs."""
    if isinstance(inputs, Mapping):
        return {name: change(value) for name, value in inputs.items()}
    return change(inputs)
