"""The ResNet-20 of Izmailov et al. (2021), whose predictions by full-batch HMC are published for CIFAR-10."""

from __future__ import annotations

from typing import Any

_WIDTHS = (16, 32, 64)
_BLOCKS = 3
"""Residual blocks of each width."""
_NORM_FLOOR = 1e-6
"""Part of filter response normalisation: Singh and Krishnan (2020), Eq. 1."""
_MEANS, _SCALE = (0.49, 0.48, 0.44), 0.2
"""Of the pixels from 0 to 1, by channel."""
PRIOR_SCALE = 0.2**0.5
"""Standard deviation of their Gaussian prior of all parameters, at a temperature of 1."""


def resnet20_frn(classes: int = 10) -> Any:
    """Return the untrained network, for images (inputs, 3, 32, 32) from 0 to 1.

    "What are Bayesian neural network posteriors really like?", section 3: widths 16, 32 and 64, convolutions
    with biases, filter response normalisation in place of batch norm, so that nothing depends on the batch,
    and swish activations. Normalisation follows every convolution, also that of a shortcut that changes the
    width. Strided convolutions pad below and to the right only, as theirs do.
    """
    import torch
    from torch import nn

    class FilterResponseNorm(nn.Module):
        """Divide each channel by its root mean square over the image, then scale, shift and cut off."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            shape = (1, channels, 1, 1)
            self.gamma, self.beta = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
            self.tau = nn.Parameter(torch.zeros(shape))

        def forward(self, maps: Any) -> Any:
            # Each line passes over the maps once: three fifths of the time of the formula as it is printed.
            norm = torch.linalg.vector_norm(maps, dim=(2, 3), keepdim=True)
            scale = self.gamma * torch.rsqrt(norm**2 / maps[0, 0].numel() + _NORM_FLOOR)
            return torch.relu(torch.addcmul(self.beta - self.tau, maps, scale)) + self.tau

    def make_layer(before: int, after: int, size: int, stride: int) -> Any:
        """Return a convolution that keeps the size of a map, up to its stride, and its normalisation."""
        missing = max(size - stride, 0)
        low, high = missing // 2, missing - missing // 2
        return nn.Sequential(
            nn.ZeroPad2d((low, high, low, high)),
            nn.Conv2d(before, after, size, stride),
            FilterResponseNorm(after),
        )

    class Block(nn.Module):
        """Two layers and a shortcut."""

        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            first = make_layer(before, after, 3, stride)
            self.own = nn.Sequential(first, nn.SiLU(), make_layer(after, after, 3, 1))
            self.shortcut = make_layer(before, after, 1, stride) if before != after else nn.Identity()

        def forward(self, maps: Any) -> Any:
            return nn.functional.silu(self.shortcut(maps) + self.own(maps))

    class Standardise(nn.Module):
        """Centre and scale the pixels, and lay them out with channels last, which convolutions prefer."""

        def forward(self, images: Any) -> Any:
            centred = (images - images.new_tensor(_MEANS)[:, None, None]) / _SCALE
            return centred.contiguous(memory_format=torch.channels_last)

    layers: list[Any] = [Standardise(), make_layer(3, _WIDTHS[0], 3, 1), nn.SiLU()]
    before = _WIDTHS[0]
    for width in _WIDTHS:
        for _ in range(_BLOCKS):
            layers.append(Block(before, width, 1 if before == width else 2))
            before = width
    return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(before, classes))
