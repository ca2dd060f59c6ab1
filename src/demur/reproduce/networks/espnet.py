"""ESPNet and ESPNet-C, segmentation networks whose trained weights are published.

Mehta et al. (2018), "ESPNet: efficient spatial pyramid of dilated convolutions for semantic segmentation".
The names of the parts are those of the published parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_RATES = (1, 2, 4, 8, 16)
"""Dilation rates of the branches of a pyramid."""
_EPSILON = 1e-3
"""Of batch normalisation."""


def build_espnet(parameters: Mapping[str, np.ndarray]) -> Any:
    """Return the network that published parameters belong to, in evaluation mode.

    It takes images (inputs, 3, height, width), normalised and in the order blue, green, red, with sides that
    are multiples of 8. It returns logits (inputs, classes, height, width), of ESPNet-C at an eighth of each
    side.

    Parameters
    ----------
    parameters
        By the names of the published state dicts; matrices may be of any floating type.
    """
    import torch

    decodes = "encoder.classifier.conv.weight" in parameters
    before = "encoder." if decodes else ""
    classes = len(parameters[f"{before}classifier.conv.weight"])
    depths = [_count_blocks(parameters, f"{before}level{level}.") for level in (2, 3)]
    network = _make_encoder(classes, *depths)
    if decodes:
        joined = parameters["conv.conv.weight"].shape[1] - classes
        network = _make_decoder(network, classes, joined)
    tensors = {name: torch.from_numpy(np.asarray(each, np.float32)) for name, each in parameters.items()}
    missing, unknown = network.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unknown:
        raise ValueError(
            f"parameters must be those of an ESPNet. Got {unknown} beside them, and lack {missing}."
        )
    return network.eval()


def _count_blocks(parameters: Mapping[str, Any], prefix: str) -> int:
    return len({name[len(prefix) :].partition(".")[0] for name in parameters if name.startswith(prefix)})


def _convolve(before: int, after: int, size: int, *, stride: int = 1, rate: int = 1) -> Any:
    """Return a convolution without bias, called `conv`, that keeps the size of a map, up to its stride."""
    from torch import nn

    padding = (size - 1) // 2 * rate
    return _named(conv=nn.Conv2d(before, after, size, stride, padding, dilation=rate, bias=False))


def _named(**layers: Any) -> Any:
    """Return layers that follow each other, under these names."""
    from collections import OrderedDict

    from torch import nn

    return nn.Sequential(OrderedDict(layers))


def _normalise(channels: int) -> Any:
    """Return batch normalisation and its activation."""
    from torch import nn

    return _named(bn=nn.BatchNorm2d(channels, eps=_EPSILON), act=nn.PReLU(channels))


def _make_pyramid(before: int, after: int, *, halves: bool = False, adds: bool = True) -> Any:
    """Return an ESP block: few channels, which branches of growing dilation look at, joined again.

    Parameters
    ----------
    before, after
        Channels.
    halves
        Whether each side of the map becomes half of what it was.
    adds
        Whether what comes in is added to what goes out.
    """
    import torch
    from torch import nn

    width = after // len(_RATES)

    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1 = _convolve(before, width, 3 if halves else 1, stride=2 if halves else 1)
            for rate in _RATES:
                own = after - (len(_RATES) - 1) * width if rate == 1 else width
                self.add_module(f"d{rate}", _convolve(width, own, 3, rate=rate))
            if halves:
                self.bn, self.act = nn.BatchNorm2d(after, eps=_EPSILON), nn.PReLU(after)
            else:
                self.bn = _normalise(after)

        def forward(self, maps: Any) -> Any:
            narrow = self.c1(maps)
            first, *others = (self.get_submodule(f"d{rate}")(narrow) for rate in _RATES)
            sums = [others[0]]
            for each in others[1:]:  # sums of neighbours take away the grid that dilation leaves
                sums.append(sums[-1] + each)
            joined = torch.cat([first, *sums], 1)
            if halves:
                return self.act(self.bn(joined))
            return self.bn(maps + joined if adds else joined)

    return Pyramid()


def _make_encoder(classes: int, depth2: int, depth3: int) -> Any:
    """Return ESPNet-C."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
            self.level1 = _named(conv=first, bn=nn.BatchNorm2d(16, eps=_EPSILON), act=nn.PReLU(16))
            self.b1 = _normalise(19)
            self.level2_0 = _make_pyramid(19, 64, halves=True)
            self.level2 = nn.ModuleList(_make_pyramid(64, 64) for _ in range(depth2))
            self.b2 = _normalise(131)
            self.level3_0 = _make_pyramid(131, 128, halves=True)
            self.level3 = nn.ModuleList(_make_pyramid(128, 128) for _ in range(depth3))
            self.b3 = _normalise(256)
            self.classifier = _convolve(256, classes, 1)
            self.halve = nn.AvgPool2d(3, 2, 1)

        def encode(self, images: Any) -> tuple[Any, Any, Any, Any]:
            """Return maps at a half, at a half with the image, at a quarter and at an eighth of each side."""
            half = self.halve(images)
            first = self.level1(images)
            joined1 = self.b1(torch.cat([first, half], 1))
            begin2 = self.level2_0(joined1)
            maps = begin2
            for block in self.level2:
                maps = block(maps)
            joined2 = self.b2(torch.cat([maps, begin2, self.halve(half)], 1))
            begin3 = self.level3_0(joined2)
            maps = begin3
            for block in self.level3:
                maps = block(maps)
            return first, joined1, joined2, self.b3(torch.cat([begin3, maps], 1))

        def forward(self, images: Any) -> Any:
            return self.classifier(self.encode(images)[3])

    return Encoder()


def _make_decoder(encoder: Any, classes: int, joined: int) -> Any:
    """Return ESPNet, whose last step joins so many channels of its first level."""
    import torch
    from torch import nn

    def double() -> Any:
        return nn.ConvTranspose2d(classes, classes, 2, 2, bias=False)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder
            self.level3_C = _convolve(131, classes, 1)
            self.br = nn.BatchNorm2d(classes, eps=_EPSILON)
            self.conv = _named(
                conv=nn.Conv2d(classes + joined, classes, 3, padding=1, bias=False),
                bn=nn.BatchNorm2d(classes, eps=_EPSILON),
                act=nn.PReLU(classes),
            )
            self.up_l3 = nn.Sequential(double())
            self.combine_l2_l3 = nn.Sequential(
                _normalise(2 * classes), _make_pyramid(2 * classes, classes, adds=False)
            )
            self.up_l2 = nn.Sequential(double(), _normalise(classes))
            self.classifier = double()

        def forward(self, images: Any) -> Any:
            first, joined1, joined2, joined3 = self.encoder.encode(images)
            eighth = self.up_l3(self.br(self.encoder.classifier(joined3)))
            quarter = self.combine_l2_l3(torch.cat([self.level3_C(joined2), eighth], 1))
            half = torch.cat([self.up_l2(quarter), first if joined == 16 else joined1], 1)
            return self.classifier(self.conv(half))

    return Decoder()
