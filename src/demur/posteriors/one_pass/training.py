"""Trains a feature extractor together with a head; after an interruption it resumes to the same bytes."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains.minibatches import (
    ArrayMinibatches,
    Minibatches,
    describe_data,
    make_minibatches,
)
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.heads.features import Features
from demur.posteriors.one_pass.spectral_norm import spectral_normalise
from demur.posteriors.posterior import check_count, check_seed
from demur.posteriors.resumable_training import TrainingFile, pack_optimizer, restore_optimizer
from demur.posteriors.tensor_files import load_state

_ROWS_FOR_SCALE = 1000
"""Inputs from which length scales and centres are set, at most."""


@dataclass(frozen=True)
class NetworkTraining:
    """How ``SNGP.fit``, ``DUQ.fit`` and ``DUE.fit`` train a network with its head.

    The defaults are those of van Amersfoort et al. (2020) for images. The step size falls from ``rate`` to 0
    along a cosine, where they divide it by 5 at three epochs.

    Parameters
    ----------
    epochs, batch
        Passes over the data, and inputs per step; a ``DataLoader`` brings its own batches.
    rate
        Step size at the start.
    momentum
        Of ``"sgd"``.
    weight_decay
        A penalty of half of it times the squared parameters of the feature extractor. Heads have none; DUQ's
        code decays its head as well.
    optimizer
        ``"sgd"`` with momentum, or ``"adam"``.
    """

    epochs: int = 75
    batch: int = 128
    rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    optimizer: Literal["sgd", "adam"] = "sgd"

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batch", self.batch)
        if self.optimizer not in ("sgd", "adam"):
            raise ValueError(f"optimizer must be 'sgd' or 'adam'. Got {self.optimizer!r}.")
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be above 0. Got {self.rate!r}.")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more. Got {self.weight_decay!r}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be 0 or more and below 1. Got {self.momentum!r}.")


class FitOptions(TypedDict, total=False):
    """The arguments that all fits of a network with its head share; `SNGP.fit` describes them."""

    training: NetworkTraining | None
    seed: int
    forward: networks.Forward | None
    checkpoint: str | os.PathLike[str] | None
    every: float
    progress: bool


class Head(Protocol):
    """What is trained on top of a feature extractor."""

    parameters: dict[str, Any]
    """Tensors with gradients."""
    buffers: dict[str, Any]
    """Tensors that are no parameters, but part of the state."""


class Trainer:
    """A copy of a feature extractor and the data that it is trained on.

    Parameters
    ----------
    model
        A network that maps inputs to features, (inputs, features). It is copied, and left as it is.
    data
        A pair (inputs, labels) of arrays, a ``Dataset``, a ``DataLoader``, or ``Features``.
    classes
        How many classes there are.
    bound
        The bound of spectral normalisation; None: without it.
    training, seed, forward, checkpoint, every, progress
        See `FitOptions`.
    """

    def __init__(
        self, model: Any, data: Any, classes: int, *, bound: float | None,
        training: NetworkTraining | None = None, seed: int = 0, forward: networks.Forward | None = None,
        checkpoint: str | os.PathLike[str] | None = None, every: float = 30.0, progress: bool = True,
    ) -> None:  # fmt: skip
        networks.check_network("model", model)
        if training is not None and not isinstance(training, NetworkTraining):
            raise TypeError(f"training must be a NetworkTraining. Got {type(training).__name__}.")
        self.training, self.seed, self.forward = training or NetworkTraining(), check_seed(seed), forward
        self.checkpoint, self.every, self.progress = checkpoint, every, progress
        if isinstance(data, Features):
            if data.labels is None:
                raise ValueError("fit takes labels. The features have none: give Features(values, labels).")
            data = (np.array(data.values), data.labels)  # a copy, since a mapped file cannot be written to
        self.given = fingerprint(model)
        self.model = prepare_extractor(model, bound)
        self.device = networks.locate_model(self.model)[0]
        self.data: Minibatches = make_minibatches(data, self.training.batch, seed)
        self.classes = check_count("classes", classes)
        if classes < 2:
            raise ValueError(f"classes must be at least 2. Got {classes}.")
        self.first = self.data.at(0)
        self._check_labels(self.first[1])

    def _check_labels(self, labels: Any) -> None:
        """Raise unless labels are classes from 0 on."""
        kind = str(labels.dtype)
        if labels.ndim != 1 or "int" not in kind or labels.min() < 0 or labels.max() >= self.classes:
            raise ValueError(
                f"labels must be integers from 0 to {self.classes - 1}, one for each input. Got {kind} of "
                f"shape {tuple(labels.shape)} from {labels.min()} to {labels.max()}."
            )

    def encode(self, inputs: Any) -> Any:
        """Return the features (inputs, features) of inputs that are on the network's device already."""
        import torch

        found = self.model(inputs) if self.forward is None else self.forward(self.model, inputs)
        if not isinstance(found, torch.Tensor) or found.ndim != 2:
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise ValueError(
                f"model must return features of shape (inputs, features). Got {shape}. End it with "
                "torch.nn.Flatten(), or give forward=lambda model, inputs: ... that returns them."
            )
        return found

    def encode_some(self) -> Any:
        """Return features of up to 1000 inputs before training, in float64."""
        import torch

        parts, step = [], 0
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            while sum(map(len, parts)) < _ROWS_FOR_SCALE and step < self.data.batches_per_pass:
                parts.append(self.encode(self._move(self.data.at(step)[0])).double())
                step += 1
        return torch.cat(parts)[:_ROWS_FOR_SCALE]

    def run(
        self,
        head: Head,
        compute_loss: Callable[[Any, Any, Any], Any],
        *,
        method: str,
        settings: dict[str, Any],
        after: Callable[[Any, Any], None] | None = None,
    ) -> None:
        """Train the network and its head.

        Parameters
        ----------
        head
            The parameters on top of the network, which have no weight decay.
        compute_loss
            From inputs, labels and a random generator of the step, the loss of a batch.
        method, settings
            What identifies the run, beside the data and the training.
        after
            Called with inputs and labels after each step, in evaluation mode.
        """
        import torch

        own = [each for each in self.model.parameters() if each.requires_grad]
        groups = [{"params": own, "weight_decay": self.training.weight_decay}] if own else []
        groups.append({"params": list(head.parameters.values()), "weight_decay": 0.0})
        optimizer = self._make_optimizer(groups)
        steps = self.training.epochs * self.data.batches_per_pass

        def take_step(step: int) -> None:
            inputs, labels = self._read(step)
            for group in optimizer.param_groups:
                group["lr"] = self.training.rate * (1 + math.cos(math.pi * step / steps)) / 2
            with networks.preserve_random_state(), torch.inference_mode(False), torch.enable_grad():
                seed = networks.derive_seed(self.seed, 3, step)
                networks.seed_device(seed, self.device)
                optimizer.zero_grad()
                loss = compute_loss(inputs, labels, torch.Generator().manual_seed(seed))
                loss.backward()
                optimizer.step()
            if not all(bool(each.isfinite().all()) for each in (loss, *head.parameters.values())):
                raise ValueError(
                    "Expected training to converge. Got numbers that are not finite in step "
                    f"{step}, at a loss of {loss.item():.3g}. Choose a rate below {self.training.rate}."
                )
            if after is not None:
                with networks.suspend_training([self.model]), networks.preserve_random_state():
                    after(inputs, labels)

        def pack() -> dict[str, Any]:
            return pack_state(self.model, head) | pack_optimizer(optimizer)

        def restore(tensors: dict[str, Any]) -> None:
            restore_state(self.model, head, tensors)
            restore_optimizer(optimizer, tensors)

        described = {
            "model": self.given, "seed": self.seed, "classes": self.classes, "inputs": self.data.size,
            "data": describe_data(self.data), **dataclasses.asdict(self.training), **settings,
        }  # fmt: skip
        file = TrainingFile(self.checkpoint, method, described, self.every)
        self.model.train()
        file.run(steps, take_step, pack, restore, progress=self.progress)
        self.model.eval()

    def _make_optimizer(self, groups: list[dict[str, Any]]) -> Any:
        import torch

        if self.training.optimizer == "adam":
            return torch.optim.Adam(groups, lr=self.training.rate)
        return torch.optim.SGD(groups, lr=self.training.rate, momentum=self.training.momentum)

    def _read(self, step: int) -> tuple[Any, Any]:
        """Return inputs and labels of a step, checked, on the network's device."""
        inputs, labels = self.data.at(step)
        self._check_labels(labels)
        return self._move(inputs), labels.to(self.device).long()

    def _move(self, inputs: Any) -> Any:
        """Return inputs on the network's device, and floating ones in its dtype."""
        if isinstance(inputs, Mapping):
            return {name: self._move(value) for name, value in inputs.items()}
        if not hasattr(inputs, "is_floating_point"):
            return networks.move_to_model(inputs, self.model)
        kind = networks.locate_model(self.model)[1]
        return inputs.to(self.device, kind if inputs.is_floating_point() else None)

    def iterate_features(self) -> Iterator[tuple[Any, Any]]:
        """Yield features and labels of all inputs once, after training, in evaluation mode."""
        if isinstance(self.data, ArrayMinibatches):
            batches: Iterable[Any] = self.data.split_in_order()
        else:
            first = self.training.epochs * self.data.batches_per_pass
            batches = (self.data.at(first + k) for k in range(self.data.batches_per_pass))
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            for inputs, labels in batches:
                yield self.encode(self._move(inputs)), labels.to(self.device).long()


def prepare_extractor(model: Any, bound: float | None) -> Any:
    """Return a copy of a network, with spectral normalisation unless the bound is None."""
    networks.check_network("model", model)
    copied = copy.deepcopy(model)
    return copied if bound is None else spectral_normalise(copied, bound=bound)


def choose_length_scale(given: float | None, features: Any) -> float:
    """Return a given length scale; of None, the mean distance between features of different inputs."""
    import torch

    if given is not None:
        if not 0 < given < math.inf:
            raise ValueError(f"length_scale must be positive and finite. Got {given!r}.")
        return given
    found = torch.pdist(features).mean().item() if len(features) > 1 else 0.0
    if not 0 < found < math.inf:
        raise ValueError(f"Features must differ between inputs. Got a mean distance of {found}.")
    return found


def pack_state(model: Any, head: Head) -> dict[str, Any]:
    """Return the state of a network and its head as tensors by name."""
    parts = {"model": model.state_dict(), "head": head.parameters, "buffer": head.buffers}
    return {f"{part}.{name}": each for part, own in parts.items() for name, each in own.items()}


def restore_state(model: Any, head: Head, tensors: dict[str, Any]) -> None:
    """Restore what ``pack_state`` returned, from among other tensors."""
    import torch

    state = {n.removeprefix("model."): each for n, each in tensors.items() if n.startswith("model.")}
    load_state("model", model, state)
    with torch.no_grad():
        for part, own in (("head", head.parameters), ("buffer", head.buffers)):
            for name, each in own.items():
                each.copy_(tensors[f"{part}.{name}"])
