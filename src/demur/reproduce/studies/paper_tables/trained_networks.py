"""Networks that a study builds and trains, or reads from a file of arrays."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from demur.atomic import open_file, write_text
from demur.reproduce.data.npz import open_npz

_WEIGHTS_FILE = "weights.safetensors"


def build_network(make: str, seed: int, which: int) -> Any:
    """Return the network that a `module:function` returns; its initial weights depend only on the seed."""
    import torch

    from demur.posteriors.networks import preserve_random_state

    module, _, function = make.partition(":")
    with preserve_random_state():
        torch.manual_seed(int(np.random.SeedSequence([seed, which]).generate_state(1)[0]))
        return getattr(importlib.import_module(module), function)()


def count_stored_networks(file: Path) -> int:
    """Return how many networks a file of arrays with axes (ensembles, members, ...) holds."""
    with open_npz(file) as archive:
        first = next(archive[name] for name in archive.files if "." in name)
    return first.shape[0] * first.shape[1]


def extract_weights(file: Path, which: int, folder: Path) -> None:
    """Write the weights of one network in such a file."""
    from safetensors.numpy import save_file

    with open_npz(file) as archive:
        state = {name: archive[name] for name in archive.files if "." in name}
    found = {name: values.reshape(-1, *values.shape[2:])[which].copy() for name, values in state.items()}
    save_file(found, folder / _WEIGHTS_FILE)


def write_weights(model: Any, folder: Path) -> None:
    """Write the weights of a network."""
    from safetensors.torch import save_file

    save_file(model.state_dict(), folder / _WEIGHTS_FILE)


def read_network(make: str, folder: Path) -> Any:
    """Return a network with the weights in a folder, in evaluation mode."""
    from safetensors.torch import load_file

    model = build_network(make, 0, 0)
    model.load_state_dict(load_file(folder / _WEIGHTS_FILE))
    return model.eval()


def train_network(
    model: Any, inputs: np.ndarray, labels: np.ndarray, *, seed: list[int], folder: Path, epochs: int,
    batch: int = 128, rate: float = 1e-3, weight_decay: float = 1e-4,
) -> None:  # fmt: skip
    """Train a network by AdamW with a cosine schedule, resuming after the last finished epoch."""
    import torch

    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=weight_decay)
    steps = epochs * -(-len(x) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    checkpoint = folder / "epoch.pt"
    first = 0
    if checkpoint.exists():
        try:
            state = torch.load(checkpoint, weights_only=True)
            first = int(state["epochs"])
            for each, part in ((model, "model"), (optimizer, "optimizer"), (schedule, "schedule")):
                each.load_state_dict(state[part])
        except Exception as error:  # a damaged file fails in PyTorch in many ways
            raise ValueError(f"{checkpoint}: expected an epoch, got a damaged file: remove it") from error
    model.train()
    for epoch in range(first, epochs):
        number = int(np.random.SeedSequence([*seed, epoch]).generate_state(1)[0])
        order = torch.Generator().manual_seed(number)
        # Dropout draws from the global generator, which is seeded for each epoch too.
        torch.manual_seed(number)
        for rows in torch.randperm(len(x), generator=order).split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"schedule": schedule.state_dict(), "epochs": epoch + 1}
        with open_file(checkpoint) as file:
            torch.save(state, file)
    checkpoint.unlink(missing_ok=True)
    write_text(folder / "training.json", json.dumps({"epochs": epochs, "steps": steps}) + "\n")
