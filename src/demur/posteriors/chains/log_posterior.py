"""The log posterior of a network's parameters given all data, with its exact gradient, on one long vector."""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains.gradients import BatchLikelihood, Likelihood
from demur.posteriors.chains.minibatches import read_whole
from demur.posteriors.chains.stepper import check_prior_mean, copy_parameters
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.parameter_vectors import join_parameters, split_vector


class DensityOptions(TypedDict, total=False):
    """The arguments of a log posterior; `MarkovChain` describes them."""

    log_likelihood: Likelihood | None
    prior_scale: float
    prior_mean: Any
    temperature: float
    seed: int
    forward: networks.Forward | None


def check_prior_scale(prior_scale: float, temperature: float) -> tuple[float, float]:
    """Return both as floats; raise unless they make a distribution."""
    if not prior_scale > 0:
        raise ValueError(f"prior_scale must be positive; math.inf is a flat prior. Got {prior_scale!r}.")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite. Got {temperature!r}.")
    return float(prior_scale), float(temperature)


class LogPosterior:
    """Minus the log posterior, over its temperature, as a function of all parameters in one vector.

    Parameters
    ----------
    model
        The network; the caller puts it in evaluation mode.
    data
        The training data; read once and kept in memory.
    batch_size
        Inputs per pass through the network.
    log_likelihood, prior_scale, prior_mean, temperature, forward
        As for `MarkovChain`.
    seed
        Of a loader that shuffles.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        batch_size: int,
        *,
        log_likelihood: Likelihood | None = None,
        prior_scale: float = 0.2,
        prior_mean: Any = None,
        temperature: float = 1.0,
        seed: int = 0,
        forward: networks.Forward | None = None,
    ) -> None:
        import torch

        self.prior_scale, self.temperature = check_prior_scale(prior_scale, temperature)
        parameters = copy_parameters(model)
        self.shapes = {name: value.shape for name, value in parameters.items()}
        means = check_prior_mean(prior_mean, parameters)
        self.start = join_parameters(parameters)
        self.centre = torch.zeros_like(self.start)
        if means is not None:
            self.centre = join_parameters({name: means[name] for name in parameters})
        place = networks.locate_model(model)
        self.batches = [
            (networks.move_inputs(inputs, *place), networks.move_inputs(targets, *place))
            for inputs, targets in read_whole(data, batch_size, seed)
        ]
        self._likelihood = BatchLikelihood(model, log_likelihood, forward)

    def __call__(self, position: Any) -> tuple[float, Any]:
        """Return the energy, minus the log posterior up to a constant, and its gradient."""
        import torch

        away = (position - self.centre) / self.prior_scale**2
        energy = float((away.double() @ (position - self.centre).double()) / 2)
        gradient = away
        with torch.enable_grad():
            for batch in self.batches:
                leaf = position.detach().requires_grad_()
                average = self._likelihood.average(self.split(leaf), batch)
                found = torch.autograd.grad(average, leaf)[0]
                energy -= len(batch[1]) * average.item()
                gradient = gradient - len(batch[1]) * found
        return energy / self.temperature, gradient / self.temperature

    def split(self, positions: Any) -> dict[str, Any]:
        """Return the parameters by name of a vector, or of several along a first axis."""
        return split_vector(positions, self.shapes)

    def draw_momentum(self, source: np.random.Generator) -> Any:
        """Draw a standard normal vector."""
        import torch

        drawn = torch.from_numpy(source.standard_normal(len(self.start)))
        return drawn.to(self.start)

    def draw_prior(self, source: np.random.Generator) -> Any:
        """Draw parameters from the prior; from one of standard deviation 1 where the prior is flat."""
        scale = 1.0 if math.isinf(self.prior_scale) else self.prior_scale
        return self.centre + scale * self.draw_momentum(source)

    def describe(self) -> dict[str, Any]:
        """Return what a checkpoint recognises the density by."""
        return {
            "prior_scale": self.prior_scale, "temperature": self.temperature,
            "parameters": fingerprint(self.start), "prior_mean": fingerprint(self.centre),
            "data": fingerprint(self.batches),
        }  # fmt: skip
