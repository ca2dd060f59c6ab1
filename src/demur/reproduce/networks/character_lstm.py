"""Character-level language models with published weights: two LSTM layers, and attention over a window.

The network of textgenrnn (Woolf, 2017). Parameters have PyTorch's layout and order of gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

WINDOW = 40
"""Characters that a prediction is made from; shorter beginnings are padded on the left, with 0."""
_LAYERS = (0, 1)
PARTS = (
    "embedding", *(f"{name}_l{k}" for k in _LAYERS for name in ("weight_ih", "weight_hh", "bias_ih")),
    "attention", "out_weight", "out_bias",
)  # fmt: skip
"""The names of the parameters. The layers have one bias, of the input."""


def build_character_lstm(parameters: Mapping[str, np.ndarray]) -> Any:
    """Return the network that parameters belong to, in evaluation mode.

    It takes windows of characters (inputs, 40), and returns logits of the next one, (inputs, characters).
    Each character of a window is described by its embedding and by the states of both layers after it. The
    prediction is linear in the mean of the descriptions, weighted by the softmax of their products with
    ``attention``.

    Parameters
    ----------
    parameters
        `PARTS` by name, of any floating type.
    """
    import torch

    missing = [name for name in PARTS if name not in parameters]
    if missing:
        raise ValueError(
            f"parameters must be those of a character LSTM, {', '.join(PARTS)}. Got none called {missing[0]}."
        )
    tensors = {name: torch.from_numpy(np.asarray(parameters[name], np.float32)) for name in PARTS}
    characters, embedded = tensors["embedding"].shape
    network = _make_network(characters, embedded, tensors["weight_hh_l0"].shape[1])
    own = {
        "embedding.weight": tensors["embedding"], "attention": tensors["attention"].reshape(-1),
        "out.weight": tensors["out_weight"], "out.bias": tensors["out_bias"],
    }  # fmt: skip
    for k in _LAYERS:
        for name in ("weight_ih", "weight_hh", "bias_ih"):
            own[f"layers.{k}.{name}_l0"] = tensors[f"{name}_l{k}"]
        own[f"layers.{k}.bias_hh_l0"] = torch.zeros_like(tensors[f"bias_ih_l{k}"])
    network.load_state_dict(own)
    return network.eval()


def _make_network(characters: int, embedded: int, width: int) -> Any:
    """Return the untrained network."""
    import torch
    from torch import nn

    class CharacterLSTM(nn.Module):
        """An embedding, two LSTM layers, attention over all three, and a linear layer."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(characters, embedded)
            sizes = (embedded, width)
            self.layers = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in sizes)
            self.attention = nn.Parameter(torch.zeros(embedded + 2 * width))
            self.out = nn.Linear(embedded + 2 * width, characters)

        def forward(self, windows: Any) -> Any:
            parts = [self.embedding(windows)]
            for layer in self.layers:
                parts.append(layer(parts[-1])[0])
            described = torch.cat(parts, dim=-1)
            shares = torch.softmax(described @ self.attention, dim=1)
            return self.out((shares[:, None] @ described)[:, 0])

    return CharacterLSTM()
