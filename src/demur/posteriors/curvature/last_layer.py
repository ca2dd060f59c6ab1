r"""Sums over the data of the generalised Gauss-Newton matrix of a linear last layer.

For an input with features :math:`\phi` it is :math:`\Lambda \otimes \phi \phi^T`. Here :math:`\Lambda` is the
curvature of the loss in the outputs: :math:`\mathrm{diag}(p) - p p^T` for softmax probabilities :math:`p`, a
sum over all classes and not over sampled labels; the identity for squared errors. Since the layer is linear,
the matrix is also the exact Hessian.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from demur.posteriors import networks
from demur.posteriors.curvature.decomposed import (
    Decomposed,
    Structure,
    decompose_full,
    decompose_kronecker,
)
from demur.posteriors.curvature.fitted import Curvature
from demur.posteriors.curvature.likelihoods import Likelihood, measure_fit

Bias = Literal["joint", "separate"]
_KEPT = ("values", "left", "right")

FULL_BYTES = 1 << 30
"""Bytes of a full matrix, at most. Its decomposition takes about three times as much memory."""


def check_full(parameters: int) -> None:
    """Raise where a full matrix over so many parameters is too large."""
    if 8 * parameters**2 > FULL_BYTES:
        raise ValueError(
            f"structure='full' takes a matrix of at most {FULL_BYTES / 1e9:.2g} GB. Got {parameters} "
            f"parameters in the last layer, {8 * parameters**2 / 1e9:.3g} GB. Use structure='kronecker'."
        )


class LastLayerSums:
    """Sums over inputs, in float64, of what the structure needs.

    Parameters
    ----------
    layer
        The last layer, a ``torch.nn.Linear``.
    structure, likelihood
        As for `Laplace`.
    bias
        With Kronecker factors: ``"joint"``, the bias is the weight of one more feature, which is always 1;
        ``"separate"``, it is independent of the weights, as in laplace-torch.
    """

    def __init__(self, layer: Any, structure: Structure, likelihood: Likelihood, bias: Bias) -> None:
        import torch

        self.structure: Structure = structure
        self.likelihood: Likelihood = likelihood
        self.bias = bias
        self.parameters = stack_parameters(layer).double()
        outputs, inputs = self.parameters.shape
        self.has_bias = layer.bias is not None
        if structure == "full":
            check_full(outputs * inputs)
        shapes = {
            "kronecker": {"outer": (outputs, outputs), "inner": (inputs, inputs)},
            "full": {"matrix": (outputs * inputs, outputs * inputs)},
            "diagonal": {"diagonal": (outputs, inputs)},
        }[structure]
        zero = self.parameters.new_zeros
        self.state: dict[str, Any] = {name: zero(shape) for name, shape in shapes.items()}
        self.state |= {"fit": zero(()), "inputs": torch.zeros((), dtype=torch.int64)}

    def add(self, features: Any, targets: np.ndarray | None) -> None:
        """Add the features (inputs, features) and targets of a batch."""
        import torch

        with torch.no_grad():
            features = networks.move_inputs(features, self.parameters.device, torch.float64).double()
            expected = self.parameters.shape[1] - self.has_bias
            if features.shape[1] != expected:
                raise ValueError(
                    f"Features must be {expected}, as the last layer takes. Got {features.shape[1]}."
                )
            if self.has_bias:
                features = torch.cat([features, features.new_ones(len(features), 1)], 1)
            outputs = features @ self.parameters.T
            self.state["inputs"] += len(features)
            self.state["fit"] += measure_fit(outputs, targets, self.likelihood)
            p = None if self.likelihood == "regression" else outputs.softmax(1)
            getattr(self, f"_add_{self.structure}")(features, p)

    def _add_kronecker(self, features: Any, p: Any) -> None:
        self.state["inner"] += features.T @ features
        if p is None:
            self.state["outer"].diagonal().add_(len(features))
        else:
            self.state["outer"].diagonal().add_(p.sum(0))
            self.state["outer"].addmm_(p.T, p, alpha=-1)

    def _add_full(self, features: Any, p: Any) -> None:
        outputs, inputs = self.parameters.shape
        blocks = self.state["matrix"].view(outputs, inputs, outputs, inputs)
        for k in range(outputs):
            weighted = features if p is None else features * p[:, k, None]
            blocks[k, :, k] += weighted.T @ features
        if p is not None:
            whole = (p[:, :, None] * features[:, None, :]).flatten(1)
            self.state["matrix"].addmm_(whole.T, whole, alpha=-1)

    def _add_diagonal(self, features: Any, p: Any) -> None:
        import torch

        weights = (
            torch.ones_like(features[:, :1]).expand(-1, len(self.parameters)) if p is None else p * (1 - p)
        )
        self.state["diagonal"].addmm_(weights.T, features.square())

    def finish(self) -> Curvature:
        """Return the curvature summed over all inputs."""
        found = self._decompose()
        tensors = {name: each for name, each in found._asdict().items() if name in _KEPT and each is not None}
        return Curvature(
            self.structure, "last", self.likelihood, tensors, self.state["fit"].item(),
            int(self.state["inputs"]), len(self.parameters), float(self.parameters.square().sum()),
        )  # fmt: skip

    def _decompose(self) -> Decomposed:
        """Return the summed matrix by eigenvalues."""
        if self.structure == "diagonal":
            return Decomposed("diagonal", self.state["diagonal"])
        if self.structure == "full":
            return decompose_full(self.state["matrix"], len(self.parameters))
        # Martens and Grosse (2015): the mean of the products is the product of the means.
        inner = self.state["inner"] / self.state["inputs"]
        if self.has_bias and self.bias == "separate":
            inner[-1, :-1] = inner[:-1, -1] = 0
        return decompose_kronecker(self.state["outer"], inner)


def stack_parameters(layer: Any) -> Any:
    """Return weight and bias of a linear layer as one matrix, (outputs, inputs) with the bias last."""
    import torch

    weight = layer.weight.detach()
    return weight if layer.bias is None else torch.cat([weight, layer.bias.detach()[:, None]], 1)
