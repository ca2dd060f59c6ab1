"""Heads and parameters drawn from a Laplace approximation; each belongs to a seed and a member."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.posteriors import networks
from demur.posteriors.curvature.decomposed import Decomposed
from demur.posteriors.parameter_samples import ParameterSamples
from demur.posteriors.posterior import check_count

WEIGHTS_HELD = 1 << 27
"""Weights of drawn heads that are kept, at most: 512 MB in single precision. Other heads are drawn again."""


class HeadDraws:
    r"""Last layers drawn from a Gaussian about the network's own.

    A head is :math:`\theta + Q (\Lambda + \delta)^{-1/2} z`, with standard normal z. With Kronecker factors
    that takes two matrix products.

    Parameters
    ----------
    layer
        The network's last layer.
    curvature
        Decomposed, for noise of variance 1 where there is noise.
    precision, noise
        Of the prior and of observations.
    members, seed
        The number of heads, and the seed of their draws.
    """

    def __init__(
        self, layer: Any, curvature: Decomposed, precision: float, noise: float, members: int, seed: int
    ) -> None:
        import torch

        self.members, self.seed = check_count("samples", members), seed
        weight = layer.weight.detach()
        kind = torch.float64 if weight.dtype == torch.float64 else torch.float32
        self._scales = (curvature.values / noise + precision).rsqrt().to(weight.device, kind)
        bases = [None if each is None else each.to(weight.device, kind) for each in curvature[2:]]
        self._curvature = Decomposed(curvature.structure, self._scales, *bases)
        self._weight, self._bias = weight.to(kind), layer.bias
        self._kept: dict[int, tuple[Any, Any]] = {}

    def parameters(self, members: range) -> dict[str, Any]:
        """Return weight (members, outputs, features) and bias (members, outputs) of some heads."""
        import torch

        drawn = [self._kept.get(k) or self._draw(k) for k in members]
        if len(drawn) == 1:  # no copy
            return {"weight": drawn[0][0][None], "bias": drawn[0][1][None]}
        return {
            name: torch.stack([pair[place] for pair in drawn])
            for place, name in enumerate(("weight", "bias"))
        }

    def _draw(self, member: int) -> tuple[Any, Any]:
        """Draw a head; the first ones are kept."""
        import torch

        with torch.no_grad():
            drawn = draw_normal((self.seed, member), self._scales)
            away = self._curvature.multiply(drawn.mul_(self._scales))
            features = self._weight.shape[1]
            bias = away.new_zeros(len(away))
            if self._bias is not None:
                bias = self._bias.detach().to(away) + away[:, features]
            head = (self._weight + away[:, :features], bias)
        if (len(self._kept) + 1) * self._weight.numel() <= WEIGHTS_HELD:
            self._kept[member] = head
        return head


class ParameterDraws(ParameterSamples):
    """Members of a network whose parameters are drawn independently about its own, on demand.

    Parameters
    ----------
    model, forward
        The network, and a function of it and its inputs, as for `Laplace`.
    scales
        Standard deviations, by the parameters' names.
    members, seed
        The number of members, and the seed of their draws.
    """

    def __init__(
        self, model: Any, forward: networks.Forward | None, scales: dict[str, Any], members: int, seed: int
    ) -> None:
        self._set_up(model, forward, check_count("samples", members))
        self._scales, self._seed = scales, seed

    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        return self.parameters()

    def parameters(self, members: range | None = None) -> dict[str, Any]:
        import torch

        wanted = range(self.members or 0) if members is None else members
        own = dict(self.model.named_parameters())
        found = {}
        for place, (name, scale) in enumerate(self._scales.items()):
            centre = own[name].detach()
            drawn = [centre + draw_normal((self._seed, k, place), centre) * scale.to(centre) for k in wanted]
            found[name] = torch.stack(drawn)
        return found

    @property
    def _predicts_in_chunks(self) -> bool:
        return False  # one set of parameters at a time


def draw_normal(seeds: tuple[int, ...], like: Any) -> Any:
    """Draw standard normal numbers with the shape, dtype and device of a tensor."""
    import torch

    kind = np.float64 if like.dtype == torch.float64 else np.float32
    drawn = np.random.default_rng(seeds).standard_normal(tuple(like.shape), kind)
    return torch.from_numpy(np.asarray(drawn)).to(like)
