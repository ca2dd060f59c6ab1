"""Trains a member from new weights: a causal model of a given shape, on texts one after the other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.resumable_training import (
    Descent,
    TrainingFile,
    pack_optimizer,
    restore_optimizer,
)
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.studies.language.config import EnsembleSettings
from demur.sequences.model_folders import hide_transformers_bars, load_tokenizer

_SECONDS_BETWEEN_SAVES = 20.0
_WARM_UP, _LAST = 0.05, 0.1
"""The rate rises over this share of the steps, and falls by a cosine to this share of its peak."""
_LARGEST_GRADIENT = 1.0


def cut_contexts(texts: list[str], tokenizer: Any, length: int) -> np.ndarray:
    """Return the tokens of texts, each after the token that begins one, as rows of `length` + 1 tokens.

    Each row begins with the last token of the one before, so that every token is predicted once.
    """
    rows = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    whole = np.concatenate([[tokenizer.bos_token_id, *row] for row in rows])
    number = (len(whole) - 1) // length
    if number < 1:
        raise ValueError(f"context: expected at most {len(whole) - 1} tokens, all there are, got {length}")
    return np.stack([whole[k * length : (k + 1) * length + 1] for k in range(number)])


def train_member(folder: Path, shape: Path, texts: list[str], settings: EnsembleSettings, seed: int) -> None:
    """Train a member, and write model and tokenizer to a folder; an interrupted training resumes there."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = load_tokenizer(shape)
    rows = cut_contexts(texts, tokenizer, settings.context)
    with use_one_thread(), networks.preserve_random_state():
        torch.manual_seed(networks.derive_seed(seed, 0))
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(shape), dtype=torch.float32)
        _descend(model, rows, settings, seed, folder / "training.safetensors")
    with hide_transformers_bars():
        model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "training.safetensors").unlink()


def _descend(model: Any, rows: np.ndarray, settings: EnsembleSettings, seed: int, path: Path) -> None:
    """Minimise the loss of the next token by Adam."""
    import torch

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.rate, betas=(0.9, 0.99))

    def compute_loss(batch: tuple[Any, Any], step: int) -> Any:
        inputs, targets = batch
        logits = model(input_ids=inputs, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def clip_gradient(*_: Any) -> None:  # the norm before, which clipping returns, is for nobody
        torch.nn.utils.clip_grad_norm_(model.parameters(), _LARGEST_GRADIENT)

    optimizer.register_step_pre_hook(clip_gradient)
    descent = Descent(
        optimizer,
        ArrayMinibatches(rows[:, :-1], rows[:, 1:], settings.batch, seed),
        (torch.device("cpu"), None),
        settings.steps,
        compute_loss,
        lambda step: settings.rate * scale_rate(step, settings.steps),
        seed,
    )

    def pack() -> dict[str, Any]:
        state = {f"model {name}": value for name, value in model.state_dict().items()}
        return state | pack_optimizer(optimizer)

    def restore(tensors: dict[str, Any]) -> None:
        own = {n.removeprefix("model "): v for n, v in tensors.items() if n.startswith("model ")}
        model.load_state_dict(own)
        restore_optimizer(optimizer, tensors)

    facts = {"steps": settings.steps, "batch": settings.batch, "rate": settings.rate, "seed": seed}
    file = TrainingFile(path, "language member", facts, _SECONDS_BETWEEN_SAVES)
    file.run(settings.steps, descent.take_step, pack, restore, progress=True)


def scale_rate(step: int, steps: int) -> float:
    """Return the rate of a step as a share of its peak.

    Examples
    --------
    >>> [round(scale_rate(step, 100), 3) for step in (0, 4, 5, 52, 99)]
    [0.2, 1.0, 1.0, 0.557, 0.1]
    """
    rising = max(1, round(_WARM_UP * steps))
    if step < rising:
        return (step + 1) / rising
    passed = (step - rising) / max(1, steps - rising)
    return _LAST + (1 - _LAST) * (1 + math.cos(math.pi * passed)) / 2
