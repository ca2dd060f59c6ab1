"""Last layers that agree as closely as wanted: all are moved towards a centre by the same factor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from demur.posteriors import CyclicalSGHMC, HeadTraining, LastLayer
from demur.posteriors.dropout.masks import Masks
from demur.reproduce.studies.precision.feature_file import FeatureData

MEMBERS = 10
DROPOUT_RATE = 0.2
"""The rate that the network was trained with."""

Logits = Callable[[Any, np.ndarray, Any], Any]
"""From features, their positions in the test and a dtype to logits (members, inputs, classes)."""


class _ScaledHeads:
    """Last layers whose distance from a centre can be scaled.

    Parameters
    ----------
    weight, bias
        (members, classes, features) and (members, classes), float32.
    centre
        Weight and bias that they are moved towards.
    """

    def __init__(self, weight: Any, bias: Any, centre: tuple[Any, Any]) -> None:
        self.weight, self.bias, self.centre = weight, bias, centre

    def scale(self, level: float) -> Logits:
        """Return the members at `level` times their distance from the centre."""
        import torch

        weight, bias = (
            torch.lerp(middle.expand_as(all_), all_, level)
            for middle, all_ in zip(self.centre, (self.weight, self.bias), strict=True)
        )

        def logits(features: Any, places: np.ndarray, dtype: Any) -> Any:
            each = features.to(dtype).expand(len(weight), *features.shape)
            return torch.baddbmm(bias.to(dtype)[:, None], each, weight.to(dtype).transpose(1, 2))

        return logits


class ScaledDropout:
    """Dropout of the features; the centre is the last layer without dropout."""

    def __init__(self, data: FeatureData, members: int, seed: int) -> None:
        self.layer, self.members = build_layer(data), members
        self.masks = Masks(DROPOUT_RATE, seed, self.layer.in_features)

    def scale(self, level: float) -> Logits:
        """Return the members with masks at `level` times their distance from keeping everything."""
        import torch

        weight, bias = (part.detach() for part in (self.layer.weight, self.layer.bias))

        def logits(features: Any, places: np.ndarray, dtype: Any) -> Any:
            kept = torch.from_numpy(self.masks.draw_kept(range(self.members), places)).to(torch.float32)
            scale = 1 + level * (kept / (1 - DROPOUT_RATE) - 1)
            return torch.nn.functional.linear((features * scale).to(dtype), weight.to(dtype), bias.to(dtype))

        return logits


def build_layer(data: FeatureData) -> Any:
    """Return the last layer of the network."""
    import torch

    layer = torch.nn.utils.skip_init(torch.nn.Linear, data.weight.shape[1], data.weight.shape[0])
    layer.weight.data = torch.from_numpy(data.weight)
    layer.bias.data = torch.from_numpy(data.bias)
    return layer


def perturb_weights(data: FeatureData, members: int, seed: int) -> _ScaledHeads:
    """Return the last layer plus noise as large as its weights."""
    import torch

    draws = torch.Generator().manual_seed(seed)
    centre = torch.from_numpy(data.weight), torch.from_numpy(data.bias)
    weight, bias = (
        part + part.square().mean().sqrt() * torch.randn((members, *part.shape), generator=draws)
        for part in centre
    )
    return _ScaledHeads(weight, bias, centre)


def fit_heads(data: FeatureData, folder: Path, members: int, seed: int, *, quick: bool) -> None:
    """Train last layers from the network's own, each with different noise and in a different order."""
    import torch

    loader = [(torch.from_numpy(data.fit), torch.from_numpy(data.fit_label))]
    training = HeadTraining(**get_heads_settings(quick, len(data.fit)))
    LastLayer.fit(
        build_layer(data), loader, members, training=training, seed=seed, path=folder / "heads.safetensors"
    )


def fit_chain(data: FeatureData, folder: Path, members: int, seed: int, *, quick: bool) -> None:
    """Draw last layers by cSG-HMC, with a prior centred on the network's own."""
    import shutil

    import torch

    chain = CyclicalSGHMC(
        build_layer(data), (torch.from_numpy(data.fit), torch.from_numpy(data.fit_label)), samples=members,
        prior_mean="model", seed=seed, checkpoint=folder / "chain",
        **get_chain_settings(quick, len(data.fit)),
    )  # fmt: skip
    found = chain.fit().parameters()
    LastLayer(build_layer(data), (found["weight"], found["bias"])).save(folder / "heads.safetensors")
    shutil.rmtree(folder / "chain")


def get_heads_settings(quick: bool, images: int) -> dict[str, Any]:
    """Return the training settings of heads; the loss on held-out images falls for about as many epochs."""
    return {
        "start": "network", "noise": 0.1, "rate": 1e-4, "epochs": 2 if quick else 5, "weight_decay": 0.0,
    }  # fmt: skip


def get_chain_settings(quick: bool, images: int) -> dict[str, Any]:
    """Return the settings of the chain; a prior this narrow keeps the accuracy of the network.

    The fewer the images, the more the prior bends the average loss, and the shorter a step must be.
    """
    prior_scale = 0.02
    return {
        "cycles": 2, "steps": 40 if quick else 400, "friction": 0.1, "exploration": 0.3, "discard": 0.4,
        "step_size": 0.1 * min(1.0, images * prior_scale**2), "batch_size": 256, "prior_scale": prior_scale,
    }  # fmt: skip


def read_heads(data: FeatureData, folder: Path) -> _ScaledHeads:
    """Read fitted heads; their centre is their mean."""
    heads = LastLayer.load(folder / "heads.safetensors", build_layer(data)).heads
    assert isinstance(heads, tuple)
    weight, bias = heads
    return _ScaledHeads(weight, bias, (weight.mean(0), bias.mean(0)))
