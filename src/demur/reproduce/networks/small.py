"""Small networks that configuration files name: `make = "demur.reproduce.networks.small:lenet"`."""

from __future__ import annotations

from typing import Any


def lenet() -> Any:
    """Return a LeNet for images of 28 by 28 pixels from 0 to 1, whose layers fit published MNIST weights."""
    from torch import nn

    class LeNet(nn.Module):
        """Two convolutions, three linear layers, dropout before the last."""

        def __init__(self) -> None:
            super().__init__()
            self.first_layer = nn.Conv2d(1, 6, 5)
            self.second_layer = nn.Sequential(nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(6, 16, 5))
            self.projection = nn.Sequential(
                nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(),
                nn.Linear(120, 84), nn.ReLU(),
            )  # fmt: skip
            self.dropout = nn.Dropout(0.2)
            self.out = nn.Linear(84, 10)

        def forward(self, images: Any) -> Any:
            """Return logits of images (inputs, 28, 28)."""
            standard = (images[:, None] - 0.1307) / 0.3081
            return self.out(self.dropout(self.projection(self.second_layer(self.first_layer(standard)))))

    return LeNet()


def mlp() -> Any:
    """Return a small network for 128 features and ten classes."""
    from torch import nn

    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
