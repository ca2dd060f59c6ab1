"""Networks that a study makes, trains, or takes from a file of arrays."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

_WEIGHTS = "weights.safetensors"


def build(make: str, seed: int, which: int) -> Any:
    """Return what a `module:function` returns, with weights that depend on the seed alone."""
    import torch

    from demur.posteriors.networks import preserve_random_state

    module, _, function = make.partition(":")
    with preserve_random_state():
        torch.manual_seed(int(np.random.SeedSequence([seed, which]).generate_state(1)[0]))
        return getattr(importlib.import_module(module), function)()


def stored_number(file: Path) -> int:
    """Return how many networks a file of arrays with axes (ensembles, members, ...) holds."""
    with np.load(file, allow_pickle=False) as archive:
        first = next(archive[name] for name in archive.files if "." in name)
    return first.shape[0] * first.shape[1]


def unpack(file: Path, which: int, folder: Path) -> None:
    """Write the weights of one network of such a file."""
    from safetensors.numpy import save_file

    with np.load(file, allow_pickle=False) as archive:
        state = {name: archive[name] for name in archive.files if "." in name}
    found = {name: values.reshape(-1, *values.shape[2:])[which].copy() for name, values in state.items()}
    save_file(found, folder / _WEIGHTS)


def write(model: Any, folder: Path) -> None:
    """Write the weights of a network."""
    from safetensors.torch import save_file

    save_file(model.state_dict(), folder / _WEIGHTS)


def read(make: str, folder: Path) -> Any:
    """Return a network with the weights of a folder, ready to predict."""
    from safetensors.torch import load_file

    model = build(make, 0, 0)
    model.load_state_dict(load_file(folder / _WEIGHTS))
    return model.eval()


def train(
    model: Any, inputs: np.ndarray, labels: np.ndarray, *, seed: list[int], folder: Path, epochs: int,
    batch: int = 128, rate: float = 1e-3, weight_decay: float = 1e-4,
) -> None:  # fmt: skip
    """Train a network by AdamW with a cosine schedule; what an epoch left is found again after a kill."""
    import torch

    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=weight_decay)
    steps = epochs * -(-len(x) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    kept = folder / "epoch.pt"
    first = 0
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        first = state["epochs"]
        for each, part in ((model, "model"), (optimizer, "optimizer"), (schedule, "schedule")):
            each.load_state_dict(state[part])
    model.train()
    for epoch in range(first, epochs):
        number = int(np.random.SeedSequence([*seed, epoch]).generate_state(1)[0])
        order = torch.Generator().manual_seed(number)
        # Dropout draws from the global generator: its state belongs to the epoch, too.
        torch.manual_seed(number)
        for rows in torch.randperm(len(x), generator=order).split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"schedule": schedule.state_dict(), "epochs": epoch + 1}
        torch.save(state, folder / "epoch.tmp")
        os.replace(folder / "epoch.tmp", kept)
    kept.unlink(missing_ok=True)
    (folder / "training.json").write_text(json.dumps({"epochs": epochs, "steps": steps}) + "\n", "utf-8")


def lenet() -> Any:
    """Return the LeNet of the networks that other people trained on MNIST; takes images from 0 to 1."""
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
    """Return a small network on 128 features of an image, ten classes."""
    from torch import nn

    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
