"""Last layers that agree as closely as wanted: each is moved towards a centre by the same factor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demur.posteriors import CyclicalSGHMC, HeadTraining, LastLayer
from demur.posteriors.dropout.masks import Masks
from demur.reproduce.precision.data import Data

MEMBERS = 10
RATE = 0.2
"""The rate of the dropout that the network was trained with."""

Logits = Callable[[Any, np.ndarray, Any], Any]
"""From features, their places in the test and a type to logits (members, inputs, classes)."""


class Heads:
    """Last layers, and the one in their middle.

    Parameters
    ----------
    weight, bias
        (members, classes, features) and (members, classes), float32.
    centre
        Weight and bias to which they are moved.
    """

    def __init__(self, weight: Any, bias: Any, centre: tuple[Any, Any]) -> None:
        self.weight, self.bias, self.centre = weight, bias, centre

    def at(self, level: float) -> Logits:
        """Return the members whose distance from the centre is `level` times what it was."""
        import torch

        weight, bias = (
            torch.lerp(middle.expand_as(all_), all_, level)
            for middle, all_ in zip(self.centre, (self.weight, self.bias), strict=True)
        )

        def logits(features: Any, places: np.ndarray, dtype: Any) -> Any:
            each = features.to(dtype).expand(len(weight), *features.shape)
            return torch.baddbmm(bias.to(dtype)[:, None], each, weight.to(dtype).transpose(1, 2))

        return logits


class Dropout:
    """Dropout of what comes into the last layer; the centre is the layer without dropout."""

    def __init__(self, data: Data, members: int, seed: int) -> None:
        self.layer, self.members = layer_of(data), members
        self.masks = Masks(RATE, seed, self.layer.in_features)

    def at(self, level: float) -> Logits:
        """Return the members with masks that are `level` times as far from keeping everything."""
        import torch

        weight, bias = (part.detach() for part in (self.layer.weight, self.layer.bias))

        def logits(features: Any, places: np.ndarray, dtype: Any) -> Any:
            kept = torch.from_numpy(self.masks.draw_kept(range(self.members), places)).to(torch.float32)
            scale = 1 + level * (kept / (1 - RATE) - 1)
            return torch.nn.functional.linear((features * scale).to(dtype), weight.to(dtype), bias.to(dtype))

        return logits


def layer_of(data: Data) -> Any:
    """Return the last layer of the network."""
    import torch

    layer = torch.nn.utils.skip_init(torch.nn.Linear, data.weight.shape[1], data.weight.shape[0])
    layer.weight.data = torch.from_numpy(data.weight)
    layer.bias.data = torch.from_numpy(data.bias)
    return layer


def perturbed(data: Data, members: int, seed: int) -> Heads:
    """Return the last layer plus noise as large as its weights: level 1e-3 is a thousandth of that."""
    import torch

    draws = torch.Generator().manual_seed(seed)
    centre = torch.from_numpy(data.weight), torch.from_numpy(data.bias)
    weight, bias = (
        part + part.square().mean().sqrt() * torch.randn((members, *part.shape), generator=draws)
        for part in centre
    )
    return Heads(weight, bias, centre)


def fit_heads(data: Data, folder: Path, members: int, seed: int, *, quick: bool) -> None:
    """Train last layers from the network's own, each from other noise and in another order."""
    import torch

    loader = [(torch.from_numpy(data.fit), torch.from_numpy(data.fit_label))]
    training = HeadTraining(**heads_settings(quick, len(data.fit)))
    LastLayer.fit(
        layer_of(data), loader, members, training=training, seed=seed, path=folder / "heads.safetensors"
    )


def fit_chain(data: Data, folder: Path, members: int, seed: int, *, quick: bool) -> None:
    """Draw last layers by cSG-HMC, from a posterior whose prior is centred on the network's own."""
    import shutil

    import torch

    chain = CyclicalSGHMC(
        layer_of(data), (torch.from_numpy(data.fit), torch.from_numpy(data.fit_label)), samples=members,
        prior_mean="model", seed=seed, checkpoint=folder / "chain", **chain_settings(quick, len(data.fit)),
    )  # fmt: skip
    found = chain.fit().parameters()
    LastLayer(layer_of(data), (found["weight"], found["bias"])).save(folder / "heads.safetensors")
    shutil.rmtree(folder / "chain")


def heads_settings(quick: bool, images: int) -> dict[str, Any]:
    """Return how heads are trained: the loss on held-out images falls for about so long."""
    return {
        "start": "network", "noise": 0.1, "rate": 1e-4, "epochs": 2 if quick else 5, "weight_decay": 0.0,
    }  # fmt: skip


def chain_settings(quick: bool, images: int) -> dict[str, Any]:
    """Return how the chain goes; a prior this narrow keeps the accuracy that the network has.

    The fewer the images, the more the prior bends the average loss, and the shorter a step must be.
    """
    prior_scale = 0.02
    return {
        "cycles": 2, "steps": 40 if quick else 400, "friction": 0.1, "exploration": 0.3, "discard": 0.4,
        "step_size": 0.1 * min(1.0, images * prior_scale**2), "batch_size": 256, "prior_scale": prior_scale,
    }  # fmt: skip


def read_heads(data: Data, folder: Path) -> Heads:
    """Read fitted heads; their centre is their mean."""
    heads = LastLayer.load(folder / "heads.safetensors", layer_of(data)).heads
    assert isinstance(heads, tuple)
    weight, bias = heads
    return Heads(weight, bias, (weight.mean(0), bias.mean(0)))
