"""SGD with a constant learning rate from a trained network, whose iterates are collected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demur.posteriors import networks
from demur.posteriors.chains.gradients import BatchLikelihood
from demur.posteriors.chains.minibatches import Minibatches
from demur.posteriors.posterior import check_count
from demur.posteriors.resumable_training import Descent, TrainingFile, pack_optimizer, restore_optimizer
from demur.posteriors.weight_averaging.moments import IterateMoments


@dataclass(frozen=True)
class DescentPlan:
    """How SGD runs and when its iterates are collected; `SWAG.fit` describes it."""

    epochs: int
    burn_in: int
    rate: float
    start_rate: float | None
    momentum: float
    weight_decay: float
    collections: int

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("collections", self.collections)
        if self.epochs * self.collections < 2:
            raise ValueError(
                "epochs times collections must be at least 2, as iterates have a spread then. "
                f"Got {self.epochs} times {self.collections}."
            )
        if not isinstance(self.burn_in, int) or self.burn_in < 0:
            raise ValueError(f"burn_in must be a number of epochs, 0 or more. Got {self.burn_in!r}.")
        for name, value in (("rate", self.rate), ("start_rate", self.start_rate)):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite. Got {value!r}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be 0 or more and below 1. Got {self.momentum!r}.")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more. Got {self.weight_decay!r}.")

    def find_rate(self, epoch: float) -> float:
        """Return the learning rate: along a cosine from ``start_rate``, as `torch.optim.swa_utils.SWALR`."""
        if self.start_rate is None or epoch >= self.burn_in:
            return self.rate
        part = (1 - math.cos(math.pi * epoch / self.burn_in)) / 2
        return self.start_rate * (1 - part) + self.rate * part

    def collects(self, step: int, batches_per_pass: int) -> bool:
        """Tell whether the iterate after a step, counted from 0, is collected."""
        before, after = (each * self.collections // batches_per_pass for each in (step, step + 1))
        return step >= self.burn_in * batches_per_pass and after > before


def collect_iterates(
    model: Any,
    moments: IterateMoments,
    minibatches: Minibatches,
    likelihood: BatchLikelihood,
    plan: DescentPlan,
    collect: Callable[[], None],
    *,
    seed: int,
    file: TrainingFile,
    progress: bool,
) -> None:
    """Train the network in place, in training mode, and call ``collect`` where an iterate is due."""
    import torch

    sampled = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(sampled, lr=plan.rate, momentum=plan.momentum, weight_decay=plan.weight_decay)
    length = minibatches.batches_per_pass
    steps = (plan.burn_in + plan.epochs) * length
    descent = Descent(
        optimizer, minibatches, networks.locate_model(model), steps,
        lambda batch, step: -likelihood.average({}, batch), lambda step: plan.find_rate(step / length), seed,
    )  # fmt: skip

    def take_step(step: int) -> None:
        descent.take_step(step)
        if plan.collects(step, length):
            collect()

    def pack() -> dict[str, Any]:
        own = {f"model {name}": value for name, value in model.state_dict().items()}
        held = {f"moments {name}": value for name, value in moments.tensors().items()}
        return own | held | {"count": torch.tensor(moments.count)} | pack_optimizer(optimizer)

    def restore(tensors: dict[str, Any]) -> None:
        parts = {kind: _select(tensors, f"{kind} ") for kind in ("model", "moments")}
        model.load_state_dict(parts["model"])
        moments.restore(int(tensors["count"]), parts["moments"])
        restore_optimizer(optimizer, tensors)

    model.train()
    with torch.inference_mode(False), torch.enable_grad(), networks.preserve_random_state():
        file.run(steps, take_step, pack, restore, progress=progress)
    model.zero_grad()


def _select(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the tensors whose names begin so, without that."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
