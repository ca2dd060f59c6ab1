"""How a search for adversarial models moves, and what it finds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.networks import derive_seed
from demur.posteriors.posterior import check_count

_COMPARED = 7
"""Sets the order of the inputs whose losses are compared apart from that of the batches."""


class Found(NamedTuple):
    """The models kept on the way of one input's searches, in the order of targets, then of steps."""

    logits: Any
    """Their logits for the input, (models, classes)."""
    excess: Any
    """By how much their average training loss is above the deployed model's, (models,), in nats."""


class Search(Protocol):
    """Searches models that disagree with the deployed one about an input."""

    classes: int
    """The number of classes that the models predict."""

    def predict(self, row: Any) -> Any:
        """Return the deployed model's logits, (1, classes), for a batch of one input."""
        ...

    def run(self, row: Any, targets: Any) -> Found:
        """Search from the deployed model towards each target class, for a batch of one input."""
        ...

    def describe(self) -> list[Any]:
        """Return what a fingerprint covers: model and training data."""
        ...


@dataclass(frozen=True)
class SearchPlan:
    """Steps of Adam with a penalty that grows as the steps shrink; `QUAM` describes the fields."""

    steps: int
    keep_every: int
    rate: float
    penalty: float
    growth: float
    growth_every: int
    weight_decay: float

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("growth_every", self.growth_every)
        if check_count("keep_every", self.keep_every) > self.steps:
            raise ValueError(f"keep_every must be at most steps, {self.steps}. Got {self.keep_every}.")
        for name in ("rate", "penalty"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite. Got {getattr(self, name)!r}.")
        if not 1 <= self.growth < math.inf:
            raise ValueError(f"growth must be a factor of at least 1. Got {self.growth!r}.")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more. Got {self.weight_decay!r}.")

    @property
    def kept(self) -> int:
        """The number of models that a search keeps."""
        return self.steps // self.keep_every

    def keeps(self, step: int) -> bool:
        """Return whether the model after a step, counted from 0, is kept."""
        return (step + 1) % self.keep_every == 0

    def find_penalty(self, step: int) -> float:
        """Return the weight of the training loss in a step, counted from 0."""
        return self.penalty * self._grow(step)

    def find_rate(self, step: int) -> float:
        """Return the size of a step, which shrinks as the penalty grows."""
        return self.rate / self._grow(step)

    def _grow(self, step: int) -> float:
        return self.growth ** (step // self.growth_every)

    def make_optimizer(self, parameters: list[Any]) -> Any:
        """Return the optimizer of one search."""
        import torch

        return torch.optim.Adam(parameters, lr=self.rate, weight_decay=self.weight_decay, fused=True)

    def advance(self, optimizer: Any, step: int) -> None:
        """Take a step along the gradients that the parameters hold."""
        for group in optimizer.param_groups:
            group["lr"] = self.find_rate(step)
        optimizer.step()


def choose_compared(minibatches: ArrayMinibatches, count: int, seed: int) -> tuple[Any, Any]:
    """Return the training inputs and targets on which the losses of all models are compared."""
    if count >= minibatches.size:
        return minibatches.inputs, minibatches.targets
    return ArrayMinibatches(minibatches.inputs, minibatches.targets, count, derive_seed(seed, _COMPARED)).at(
        0
    )
