"""Trains last layers on features, several at a time: the heads of DE (LL)."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.fit_files import FitFile
from demur.posteriors.heads.features import Features
from demur.posteriors.networks import derive_seed, widen_half
from demur.posteriors.posterior import check_count
from demur.posteriors.resumable_training import pack_optimizer, restore_optimizer
from demur.progress import progress_bar

WEIGHTS_TOGETHER = 1 << 25
"""Weights of the heads trained at a time, at most: 128 MB, and as much for each moment of the optimizer."""


@dataclass(frozen=True)
class HeadTraining:
    """How ``LastLayer.fit`` trains a last layer.

    Each step minimises the mean cross-entropy of a batch plus ``weight_decay / 2`` times the squared weights
    and biases. The step size falls from ``rate`` to 0 along a cosine.

    Parameters
    ----------
    epochs, batch
        Passes over the data, and inputs per step. Each head sees them in its own order.
    rate
        Step size at the start. Heads that are trained too little still show where they started, and so
        does K: check the loss on held-out inputs first, above all where features are small.
    weight_decay
        The penalty. It leaves the loss a single minimum, so that heads trained for long are alike.
    optimizer
        ``"adam"``, or ``"sgd"`` with ``momentum``.
    start
        ``"fresh"``: heads start like a new ``torch.nn.Linear``. ``"network"``: at the network's last layer.
    noise
        Standard deviation of the noise that ``"network"`` adds, relative to the root mean square of the
        weights, and of the biases.
    """

    epochs: int = 20
    batch: int = 256
    rate: float = 1e-2
    weight_decay: float = 1e-4
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.9
    start: Literal["fresh", "network"] = "fresh"
    noise: float = 0.1

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batch", self.batch)
        for name, allowed in (("optimizer", ("adam", "sgd")), ("start", ("fresh", "network"))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be {' or '.join(map(repr, allowed))}. Got {getattr(self, name)!r}."
                )
        for name, low in (("rate", "above 0"), ("weight_decay", "0 or more"), ("noise", "0 or more")):
            value = getattr(self, name)
            if not (0 < value < math.inf or (value == 0 and low == "0 or more")):
                raise ValueError(f"{name} must be {low}. Got {value!r}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be 0 or more and below 1. Got {self.momentum!r}.")


def fit_heads(
    layer: Any, features: Features, members: int, *, training: HeadTraining, seed: int,
    path: str | os.PathLike[str] | None, every: float, progress: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """Train heads; return weights (members, classes, features) and biases (members, classes)."""
    import torch

    labels = check_labels(features, layer)
    check_count("members", members)
    settings = {
        "members": members, "seed": seed, **dataclasses.asdict(training), "features": features.mark,
        "layer": fingerprint(layer) if training.start == "network" else [*layer.weight.shape],
    }  # fmt: skip
    file = FitFile(path, "LastLayer", settings, every)
    state, _, _ = file.read()
    weight, bias = state.pop("weight", None), state.pop("bias", None)
    done = 0 if weight is None else len(weight)
    if done == members:
        return weight, bias
    tile = max(1, WEIGHTS_TOGETHER // layer.weight.numel())
    total = -(-members // tile) * training.epochs
    with progress_bar(total, "epochs", hidden=not progress) as show:
        while done < members:
            run = range(done, min(members, done + tile))
            heads = HeadGroup(layer, run, training, seed, state)
            state = {}
            for epoch in heads.train(features.values, labels):
                show(run.start // tile * training.epochs + epoch)
                if file.due() and epoch < training.epochs:
                    before = {} if weight is None else {"weight": weight, "bias": bias}
                    file.write({**before, **heads.state()}, finished=False)
            weight, bias = (
                new if old is None else torch.cat([old, new])
                for old, new in zip((weight, bias), heads.read_parameters(), strict=True)
            )
            done = run.stop
            file.write({"weight": weight, "bias": bias}, finished=done == members)
    return weight, bias


class HeadGroup:
    """Some heads, trained at once: one matrix product for all of them, and one optimizer.

    The optimizer minimises the sum of their losses. It updates each number by itself, so that heads do not
    influence each other.
    """

    def __init__(
        self, layer: Any, run: range, training: HeadTraining, seed: int, state: dict[str, Any]
    ) -> None:
        import torch

        self.training, self.run, self.seed = training, run, seed
        kind = widen_half(layer.weight.dtype)
        drawn = [draw_start(layer, training, derive_seed(seed, k)) for k in run]
        self.parameters = [
            torch.stack(parts).to(layer.weight.device, kind).requires_grad_()
            for parts in zip(*drawn, strict=True)
        ]
        if training.optimizer == "adam":
            self.optimizer: Any = torch.optim.Adam(self.parameters, weight_decay=training.weight_decay)
        else:
            self.optimizer = torch.optim.SGD(
                self.parameters, momentum=training.momentum, weight_decay=training.weight_decay
            )
        self.epoch = 0
        if state:
            self.resume(state)

    def train(self, values: np.ndarray, labels: Any) -> Iterator[int]:
        """Run the remaining epochs; yield the number of finished epochs after each."""
        rows = _make_row_reader(values, self.parameters[0])
        steps = -(-len(labels) // self.training.batch)
        while self.epoch < self.training.epochs:
            for step, index in enumerate(self.batches(len(labels))):
                fraction = (self.epoch * steps + step) / (self.training.epochs * steps)
                for group in self.optimizer.param_groups:
                    group["lr"] = self.training.rate * (1 + math.cos(math.pi * fraction)) / 2
                self.step(rows(index), labels[index])
            if not all(bool(each.isfinite().all()) for each in self.parameters):
                raise ValueError(
                    f"Expected training to converge. Got weights that are not finite in epoch {self.epoch}. "
                    f"Choose a rate below {self.training.rate}."
                )
            self.epoch += 1
            yield self.epoch

    def batches(self, inputs: int) -> Iterator[Any]:
        """Yield the inputs that each head sees, (heads, batch), in its own order in each epoch."""
        import torch

        orders = torch.stack(
            [
                torch.randperm(
                    inputs, generator=torch.Generator().manual_seed(derive_seed(self.seed, k, self.epoch))
                )
                for k in self.run
            ]
        )
        yield from orders.split(self.training.batch, dim=1)

    def step(self, x: Any, y: Any) -> None:
        """Take one step; x is (heads, batch, features) and y is (heads, batch)."""
        import torch

        weight, bias = self.parameters
        with torch.enable_grad():
            self.optimizer.zero_grad()
            logits = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), y.to(logits.device).flatten(), reduction="sum"
            )
            (loss / y.shape[1]).backward()
        self.optimizer.step()

    def read_parameters(self) -> list[Any]:
        """Return the current weights and biases."""
        return [each.detach().cpu() for each in self.parameters]

    def state(self) -> dict[str, Any]:
        """Return all that another run needs to resume after this epoch."""
        import torch

        weight, bias = self.read_parameters()
        own = {"now weight": weight, "now bias": bias, "epoch": torch.tensor(self.epoch)}
        return own | pack_optimizer(self.optimizer)

    def resume(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned."""
        import torch

        self.epoch = int(state["epoch"])
        with torch.no_grad():
            for own, name in zip(self.parameters, ("now weight", "now bias"), strict=True):
                own.copy_(state[name])
        restore_optimizer(self.optimizer, state)


def draw_start(layer: Any, training: HeadTraining, seed: int) -> tuple[Any, Any]:
    """Draw the initial weight and bias of a head."""
    import torch

    source = torch.Generator().manual_seed(seed)
    weight = layer.weight.detach().cpu()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().cpu()
    if training.start == "network":
        parts = [weight.double(), bias.double()]
        noise = [torch.randn(each.shape, generator=source, dtype=torch.float64) for each in parts]
        first, second = (
            each + training.noise * each.square().mean().sqrt() * drawn
            for each, drawn in zip(parts, noise, strict=True)
        )
        return first, second
    bound = 1 / math.sqrt(weight.shape[1])
    first, second = (
        (2 * torch.rand(each.shape, generator=source, dtype=torch.float64) - 1) * bound
        for each in (weight, bias)
    )
    return first, second


def _make_row_reader(values: np.ndarray, like: Any) -> Callable[[Any], Any]:
    """Return a function that reads rows by their indices, (heads, batch); a mapped file stays on disk."""
    import torch

    if isinstance(values, np.memmap):
        return lambda index: torch.from_numpy(np.asarray(values[index.numpy()])).to(like)
    whole = torch.tensor(values, dtype=like.dtype, device=like.device)
    return lambda index: whole[index.to(like.device)]


def check_classes(labels: np.ndarray, classes: int) -> None:
    """Raise unless there is one class of the last layer for each input."""
    if labels.ndim != 1:
        raise ValueError(f"labels must be one class for each input. Got shape {labels.shape}.")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"labels must be integers from 0 to {classes - 1}, the classes of the last layer. "
            f"Got {labels.dtype} from {labels.min()} to {labels.max()}."
        )


def check_labels(features: Features, layer: Any) -> Any:
    """Return the labels as a tensor; raise unless each is a class of the last layer."""
    import torch

    classes, labels = layer.out_features, features.labels
    if labels is None:
        raise ValueError("fit takes labels. The loader had none: give batches of (inputs, labels).")
    check_classes(labels, classes)
    if features.values.shape[1] != layer.in_features:
        raise ValueError(
            f"Features must be {layer.in_features}, as the last layer takes. Got {features.values.shape[1]}."
        )
    return torch.from_numpy(labels.astype(np.int64))
