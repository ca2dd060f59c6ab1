"""`Curvature`: all that `Laplace` keeps of the training data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from demur.posteriors.curvature.decomposed import Decomposed, Structure
from demur.posteriors.curvature.evidence import Evidence
from demur.posteriors.curvature.likelihoods import Likelihood
from demur.posteriors.fingerprint import fingerprint

Layers = Literal["last", "all"]


@dataclass(frozen=True)
class Curvature:
    """The curvature of a network's loss, summed over the training data, and how well the network fits them.

    Attributes
    ----------
    structure, layers, likelihood
        As for `Laplace.fit`.
    tensors
        Of a last layer: its eigenvalues ``values``, and eigenvectors ``left`` and ``right`` where the
        structure has them. Of a whole network: the diagonal, by the parameters' names.
    fit
        The log-likelihood of the labels; in regression, the sum of squared residuals.
    inputs, outputs
        How many there were.
    square_norm
        The sum of the squared parameters.
    """

    structure: Structure
    layers: Layers
    likelihood: Likelihood
    tensors: dict[str, Any]
    fit: float
    inputs: int
    outputs: int
    square_norm: float

    @property
    def evidence(self) -> Evidence:
        """What the marginal likelihood depends on."""
        parts = [self.tensors["values"]] if self.layers == "last" else list(self.tensors.values())
        values = np.concatenate([each.cpu().numpy().ravel() for each in parts])
        numbers = self.inputs * self.outputs if self.likelihood == "regression" else 0
        return Evidence(values, self.square_norm, self.fit, numbers)

    @property
    def decomposed(self) -> Decomposed:
        """The matrix of a last layer, by eigenvalues."""
        return Decomposed(self.structure, *(self.tensors.get(name) for name in ("values", "left", "right")))

    def scale(self, inputs: int | None) -> Curvature:
        """Return the curvature of so many inputs, of which these are a sample; None: unchanged."""
        if inputs is None:
            return self
        factor = inputs / self.inputs
        tensors = {
            name: value if self.layers == "last" and name != "values" else value * factor
            for name, value in self.tensors.items()
        }
        return dataclasses.replace(self, tensors=tensors, fit=self.fit * factor, inputs=inputs)

    def fingerprint(self) -> str:
        """Return what a checkpoint recognises the curvature by."""
        return fingerprint(self.describe(), self.tensors)

    def describe(self) -> str:
        """Return all but the tensors as a text, for a file."""
        facts = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "tensors"
        }
        return json.dumps(facts)

    @classmethod
    def read(cls, tensors: dict[str, Any], description: str) -> Curvature:
        """Return what a file holds."""
        return cls(tensors=tensors, **json.loads(description))
