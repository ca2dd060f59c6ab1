"""Searches networks that disagree with the deployed one, through all of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from demur.posteriors import networks
from demur.posteriors.adversarial.plan import Found, SearchPlan, choose_compared
from demur.posteriors.chains.gradients import BatchLikelihood
from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.chains.stepper import copy_parameters

_INPUTS_TOGETHER = 1024
"""Training inputs per pass through a network, when losses are compared."""


class NetworkSearch:
    """Searches all parameters that require gradients, one target class at a time.

    The network is in evaluation mode: no dropout, and batch statistics as they are.

    Parameters
    ----------
    model, forward
        The network, and how to call it.
    batches
        Inputs and targets of the training data.
    plan, batch_size, loss_inputs, seed
        As for `QUAM`.
    """

    def __init__(
        self, model: Any, forward: networks.Forward | None, batches: list[tuple[Any, Any]], plan: SearchPlan,
        batch_size: int, loss_inputs: int, seed: int,
    ) -> None:  # fmt: skip
        self.model, self.plan = model, plan
        self.minibatches = ArrayMinibatches(
            _join([inputs for inputs, _ in batches]),
            _join([targets for _, targets in batches]),
            batch_size,
            seed,
        )
        self.start = copy_parameters(model)
        self._likelihood = BatchLikelihood(model, None, forward)
        self._place = networks.locate_model(model)
        inputs, targets = choose_compared(self.minibatches, loss_inputs, seed)
        parts = ArrayMinibatches(inputs, targets, _INPUTS_TOGETHER, seed).split_in_order()
        self._compared = [self._move(part) for part in parts]
        with networks.suspend_training([model]), networks.preserve_random_state():
            self._reference = self._compare(self.start)
            self.classes: int = self._call(self.start, self._compared[0][0]).shape[-1]

    def _move(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        """Move inputs and targets to the model's device."""
        return networks.move_inputs(batch[0], *self._place), networks.move_inputs(batch[1], *self._place)

    def _compare(self, parameters: dict[str, Any]) -> float:
        """Return the average loss on the training inputs that all models are compared on."""
        import torch

        with torch.no_grad():
            sums = [
                self._likelihood.average(parameters, part).item() * len(part[1]) for part in self._compared
            ]
        return -sum(sums) / sum(len(targets) for _, targets in self._compared)

    def _call(self, parameters: dict[str, Any], inputs: Any) -> Any:
        moved = networks.move_inputs(inputs, *self._place)
        return networks.extract_predictions(self._likelihood.call(parameters, moved))

    def predict(self, row: Any) -> Any:
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            return self._call(self.start, row)

    def run(self, row: Any, targets: Any) -> Found:
        import torch

        with networks.suspend_training([self.model]), networks.preserve_random_state():
            parts = [self._search(row, target) for target in targets.split(1)]
        return Found(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _search(self, row: Any, target: Any) -> tuple[Any, Any]:
        """Search one target class; return logits (models, classes) and excess losses (models,)."""
        import torch

        plan = self.plan
        moving = {name: value.clone().requires_grad_() for name, value in self.start.items()}
        optimizer = plan.make_optimizer(list(moving.values()))
        found, excess = [], []
        for step in range(plan.steps):
            with torch.enable_grad():
                loss = -self._likelihood.average(moving, self._move(self.minibatches.at(step)))
                logits = self._call(moving, row)
                disagreement = torch.nn.functional.cross_entropy(logits, target.to(logits.device))
                objective = disagreement + plan.find_penalty(step) * loss
                gradients = torch.autograd.grad(objective, list(moving.values()), materialize_grads=True)
            for value, gradient in zip(moving.values(), gradients, strict=True):
                value.grad = gradient
            plan.advance(optimizer, step)
            if plan.keeps(step):
                found.append(self._call(moving, row)[0].detach())
                excess.append(self._compare(moving) - self._reference)
        return torch.stack(found), torch.tensor(excess, dtype=torch.float64)

    def describe(self) -> list[Any]:
        return [self.model, self.minibatches.inputs, self.minibatches.targets]


def _join(parts: list[Any]) -> Any:
    """Join the batches of a data set."""
    import torch

    if isinstance(parts[0], Mapping):
        return {name: _join([part[name] for part in parts]) for name in parts[0]}
    return torch.cat([torch.as_tensor(part) for part in parts])
