"""Heads and parameters drawn from a Gaussian on demand; each draw belongs to a seed and a member."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from demur.posteriors import networks
from demur.posteriors.curvature.decomposed import Decomposed
from demur.posteriors.curvature.last_layer import stack_parameters
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.parameter_samples import ParameterSamples
from demur.posteriors.posterior import select_members, split_members

_FEWEST_MEMBERS = 8
"""Members per chunk, at least: one member costs the moments as much as two."""

BYTES_HELD = 1 << 29
"""Bytes of drawn heads that are kept, at most: 100 of 1280 features and 1000 classes. Others are redrawn."""


class GaussianHead:
    r"""Draws the distance of a head from the network's own, :math:`Q (\Lambda / \sigma^2 + \delta)^{-1/2} z`.

    With standard normal z, and two matrix products where Q is a Kronecker product.

    Parameters
    ----------
    layer
        The network's last layer.
    curvature
        Decomposed, for noise of variance 1 where there is noise.
    precision, noise
        Of the prior, and the variance of the observations.
    seed
        Of the draws.
    """

    def __init__(self, layer: Any, curvature: Decomposed, precision: float, noise: float, seed: int) -> None:
        weight, self._seed = layer.weight, seed
        kind = networks.widen_half(weight.dtype)
        self._scales = (curvature.values / noise + precision).rsqrt().to(weight.device, kind)
        bases = [None if each is None else each.to(weight.device, kind) for each in curvature[2:]]
        self._curvature = Decomposed(curvature.structure, self._scales, *bases)

    def draw(self, member: int) -> Any:
        """Return the distance of a member's head, (outputs, features), with the bias last."""
        return self._multiply(member, self._curvature)

    def draw_rotated(self, member: int) -> Any:
        """Return the same along the columns of ``basis``, which saves one of two matrix products."""
        return self._multiply(member, self._curvature._replace(right=None))

    @property
    def basis(self) -> Any:
        """The directions of features of ``draw_rotated``, (features, features); None: features themselves."""
        return self._curvature.right

    def _multiply(self, member: int, curvature: Decomposed) -> Any:
        import torch

        with torch.no_grad():
            return curvature.multiply(draw_normal((self._seed, member), self._scales).mul_(self._scales))


class HeadDraws:
    """Last layers for `LastLayer`, drawn when they are asked for; the first ones are kept.

    Parameters
    ----------
    layer
        The network's last layer.
    draw
        A function from a member to the distance of its head from the layer, (outputs, features), where a bias
        is the last feature.
    members
        The number of heads.
    rounded
        Whether distances are rounded to ``bfloat16``.
    """

    def __init__(self, layer: Any, draw: Callable[[int], Any], members: int, rounded: bool = False) -> None:
        self.members, self._draw, self._rounded = members, draw, rounded
        self._layer, self._kept = stack_parameters(layer), {}
        self._has_bias, self._held = layer.bias is not None, 0

    def draw(self, member: int) -> Any:
        """Return a member's head, (outputs, features); if rounded, its distance from the layer."""
        found = self._kept.get(member)
        if found is None:
            found = self._draw(member)
            found = found.bfloat16() if self._rounded else found.add_(self._layer)
            if self._held + found.nbytes <= BYTES_HELD:
                self._kept[member] = found
                self._held += found.nbytes
        return found

    def parameters(self, members: range) -> dict[str, Any]:
        """Return weight (members, outputs, features) and bias (members, outputs) of some heads."""
        import torch

        drawn = [self.draw(k) for k in members]
        heads = drawn[0][None] if len(drawn) == 1 else torch.stack(drawn)  # one is not copied
        features = heads.shape[2] - self._has_bias
        bias = {"bias": heads[:, :, features]} if self._has_bias else {}
        return {"weight": heads[:, :, :features], **bias}


class RoundedHeads(LastLayer):
    """Drawn heads whose distance from the network's last layer is rounded to ``bfloat16``, as are features.

    Logits are the network's own, in full, plus the product of rounded numbers: half the time, where the
    processor has instructions for it. Such products are off by about 0.3 % of a head's distance, each
    independently of the others, which changes K by about a thousandth: far less than its sampling error.

    Parameters
    ----------
    model, options
        As for ``LastLayer``.
    heads
        Rounded ``HeadDraws``.
    basis
        The directions of features along which heads are drawn; None: features themselves.
    """

    def __init__(self, model: Any, heads: HeadDraws, basis: Any, **options: Any) -> None:
        super().__init__(model, heads, **options)
        self._rounded, self._basis = heads, basis

    def _predict_features(self, features: Any, members: range | None, places: np.ndarray) -> Iterator[Any]:
        import torch

        with torch.no_grad():
            own = self.layer(features).float()
            if self.layer.bias is not None:
                features = torch.cat([features, features.new_ones(len(features), 1)], 1)
            if self._basis is not None:
                features = features.to(self._basis) @ self._basis
            rounded, half = features.bfloat16(), own.bfloat16()
            wanted = select_members(members, self.members or 0)
            for run in split_members(wanted, own.numel(), fewest=_FEWEST_MEMBERS):
                found = own.new_empty((len(run), *own.shape))
                for out, member in zip(found, run, strict=True):
                    torch.mm(rounded, self._rounded.draw(member).T, out=half)
                    out.copy_(half).add_(own)
                yield found, None


class ParameterDraws(ParameterSamples):
    """Members of one network, whose parameters are drawn when they are asked for.

    Parameters
    ----------
    model, forward
        The network, and a function of it and its inputs, as for `Laplace`.
    draw
        A function from a member to its parameters, by name.
    members
        The number of members.
    """

    def __init__(
        self, model: Any, forward: networks.Forward | None, draw: Callable[[int], Any], members: int
    ) -> None:
        self._set_up(model, forward, members)
        self._draw, self._forward = draw, forward

    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        return self.parameters()

    def parameters(self, members: range | None = None) -> dict[str, Any]:
        import torch

        drawn = [self._draw(k) for k in select_members(members, self.members or 0)]
        return {name: torch.stack([each[name] for each in drawn]) for name in drawn[0]}

    def deployed(self, batch: Any) -> Any:
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            return networks.call_model(self.model, batch, self._forward)

    @property
    def _predicts_in_chunks(self) -> bool:
        return False  # one set of parameters at a time


def draw_normal(seeds: tuple[int, ...], like: Any) -> Any:
    """Draw standard normal numbers with the shape, dtype and device of a tensor."""
    import torch

    kind = np.float64 if like.dtype == torch.float64 else np.float32
    drawn = np.random.default_rng(seeds).standard_normal(tuple(like.shape), kind)
    return torch.from_numpy(np.asarray(drawn)).to(like)
