"""`VariationalObjective`: the loss of a batch, whose average is the negative evidence lower bound."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal

from demur.posteriors import networks
from demur.posteriors.chains.gradients import BatchLikelihood
from demur.posteriors.parameter_vectors import split_vector
from demur.posteriors.variational.local_layers import draw_outputs, find_local_layers, join_names
from demur.posteriors.variational.mean_field import MeanField
from demur.posteriors.variational.priors import GaussianPrior, ScaleMixturePrior

Weighting = Literal["uniform", "geometric"]


class VariationalObjective:
    r"""The loss of a batch, per input:

    .. math:: -\tfrac1B \sum_{n=1}^B \log p(y_n \mid x_n, w)
              + \tfrac{\lambda \pi}{N} \bigl(-\mathrm E_q \log p(w) - T\, \mathrm H(q)\bigr), \quad w \sim q.

    At :math:`\lambda = \pi = 1` its minimum over q is the closest to the posterior at temperature T, in
    KL(q, posterior).

    Parameters
    ----------
    model, likelihood
        The network, and the log-likelihood of a batch.
    shapes
        Of the parameters that are sampled, by name.
    prior
        With a method ``compute_cross_entropy``.
    size
        N, the number of inputs in the data.
    temperature, kl_weight
        T and :math:`\lambda`.
    draws
        How many w a loss is averaged over.
    local
        Whether layers draw their outputs where they can.
    """  # noqa: D400

    def __init__(
        self,
        model: Any,
        likelihood: BatchLikelihood,
        shapes: Mapping[str, Any],
        prior: GaussianPrior | ScaleMixturePrior,
        *,
        size: int,
        temperature: float,
        kl_weight: float,
        draws: int,
        local: bool,
    ) -> None:
        self.model, self.likelihood, self.shapes, self.prior = model, likelihood, shapes, prior
        self.size, self.temperature, self.kl_weight = size, temperature, kl_weight
        self.draws, self.local = draws, local
        self._layers: dict[str, Any] | None = None

    def compute(self, q: MeanField, batch: tuple[Any, Any], share: float = 1.0) -> Any:
        """Return the loss of a batch; ``share`` is the factor of its penalty."""
        layers = self.find_layers(q, batch)
        scale = q.scale
        means, scales = split_vector(q.mean, self.shapes), split_vector(scale, self.shapes)
        fit: Any = 0.0
        for _ in range(self.draws):
            fit = fit + self._draw_fit(layers, means, scales, batch) / self.draws
        cross = self.prior.compute_cross_entropy(q.mean, scale)
        penalty = cross - self.temperature * q.compute_entropy(scale)
        return -fit + share * self.kl_weight / self.size * penalty

    def find_layers(self, q: MeanField, batch: tuple[Any, Any]) -> dict[str, Any]:
        """Return the layers that draw their outputs, as the first batch showed them."""
        if self._layers is None:
            run = functools.partial(self.likelihood.average, split_vector(q.mean, self.shapes), batch)
            with networks.preserve_random_state():
                self._layers = find_local_layers(self.model, self.shapes, run) if self.local else {}
        return self._layers

    def _draw_fit(
        self,
        layers: dict[str, Any],
        means: dict[str, Any],
        scales: dict[str, Any],
        batch: tuple[Any, Any],
    ) -> Any:
        """Return the average log-likelihood of a batch, for one draw."""
        import torch

        own = {join_names(n, p) for n, m in layers.items() for p, _ in m.named_parameters()}
        perturbed = {
            name: mean + scales[name] * torch.randn_like(mean)
            for name, mean in means.items()
            if name not in own
        }
        with draw_outputs(layers, means, scales):
            return self.likelihood.average(perturbed, batch)


def find_share(weighting: Weighting, step: int, batches: int) -> float:
    """Return the factor of a batch's penalty: 1, or by Eq. 9 of Blundell et al. (2015).

    There, batch i of M has the share 2^(M - i) / (2^M - 1) of the whole penalty, so that the first batches of
    a pass are dominated by the prior and the last by the data.
    """
    if weighting == "uniform":
        return 1.0
    return batches * 2.0 ** -(step % batches + 1) / (1 - 2.0**-batches)
