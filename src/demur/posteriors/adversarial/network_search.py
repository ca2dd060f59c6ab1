"""Searches networks that disagree with the deployed one, through all of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from demur.posteriors import networks
from demur.posteriors.adversarial.plan import Found, SearchPlan, choose_compared
from demur.posteriors.chains.gradients import BatchLikelihood
from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.chains.stepper import copy_parameters

_INPUTS_TOGETHER = 256
"""Training inputs per pass through a network, when losses are compared: few enough to stay in the cache."""


class NetworkSearch:
    """Searches all parameters that require gradients, or those of some layers.

    The network is in evaluation mode: no dropout, and batch statistics as they are. Every input is searched
    alone, in passes of the same shapes, so that nothing else in its batch can change a bit of the result.

    Parameters
    ----------
    model, forward
        The network, and how to call it.
    batches
        Inputs and targets of the training data.
    layers
        Names of the modules whose parameters move; None: all.
    together
        How many target classes are searched at once, by ``torch.func.vmap``.
    plan, batch_size, loss_inputs, seed
        As for `QUAM`.
    """

    def __init__(
        self, model: Any, forward: networks.Forward | None, batches: list[tuple[Any, Any]],
        layers: Sequence[str] | None, together: int, plan: SearchPlan, batch_size: int, loss_inputs: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.model, self.plan, self._together = model, plan, together
        self.minibatches = ArrayMinibatches(
            _join([inputs for inputs, _ in batches]),
            _join([targets for _, targets in batches]),
            batch_size,
            seed,
        )
        self.start = _select_layers(copy_parameters(model), layers)
        self._likelihood = BatchLikelihood(model, None, forward)
        self._place = networks.locate_model(model)
        inputs, targets = choose_compared(self.minibatches, loss_inputs, seed)
        parts = ArrayMinibatches(inputs, targets, _INPUTS_TOGETHER, seed).split_in_order()
        self._compared = [self._move(part) for part in parts]
        with networks.suspend_training([model]), networks.preserve_random_state():
            self._reference = self._compare(self._repeat(1))
            self.classes: int = self._call(self.start, self._compared[0][0]).shape[-1]

    def _repeat(self, count: int) -> dict[str, Any]:
        """Return copies of the deployed parameters, as the first axis of each."""
        return {name: value.repeat(count, *(1 for _ in value.shape)) for name, value in self.start.items()}

    def _move(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        """Move inputs and targets to the model's device."""
        return networks.move_inputs(batch[0], *self._place), networks.move_inputs(batch[1], *self._place)

    def _compare(self, models: dict[str, Any]) -> Any:
        """Return each model's average loss on the training inputs that all are compared on, in float64."""
        total: Any = 0.0
        for part in self._compared:
            averages = _map_models(lambda own, part=part: self._likelihood.average(own, part), models)
            total = total - averages.double() * len(part[1])
        return total / sum(len(targets) for _, targets in self._compared)

    def _call(self, parameters: dict[str, Any], inputs: Any) -> Any:
        return networks.extract_predictions(self._likelihood.call(parameters, inputs))

    def predict(self, row: Any) -> Any:
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            return self._call(self.start, networks.move_inputs(row, *self._place))

    def run(self, row: Any, targets: Any) -> Found:
        import torch

        row, targets = networks.move_inputs(row, *self._place), targets.to(self._place[0])
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            parts = [self._search(row, some) for some in targets.split(self._together)]
        return Found(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _search(self, row: Any, targets: Any) -> tuple[Any, Any]:
        """Search some target classes; return logits (models, classes) and excess losses (models,)."""
        import torch

        plan, models = self.plan, self._repeat(len(targets))
        optimizer = plan.make_optimizer(list(models.values()))
        found, excess = [], []
        for step in range(plan.steps):
            batch, penalty = self._move(self.minibatches.at(step)), plan.find_penalty(step)

            def objective(own: dict[str, Any], target: Any, batch: Any = batch, c: float = penalty) -> Any:
                disagreement = torch.nn.functional.cross_entropy(self._call(own, row), target[None])
                return disagreement - c * self._likelihood.average(own, batch)

            gradients = _map_models(torch.func.grad(objective), models, targets)
            for name, value in models.items():
                value.grad = gradients[name]
            plan.advance(optimizer, step)
            if plan.keeps(step):
                found.append(_map_models(lambda own: self._call(own, row)[0], models))
                excess.append(self._compare(models) - self._reference)
        return torch.stack(found, 1).flatten(0, 1), torch.stack(excess, 1).flatten()

    def describe(self) -> list[Any]:
        return [self.model, list(self.start), self.minibatches.inputs, self.minibatches.targets]


def _map_models(function: Callable[..., Any], models: dict[str, Any], *more: Any) -> Any:
    """Return a function's results for several models, whose parameters have them as the first axis.

    A single model is not mapped: that would make each convolution a grouped one, which is slower.
    """
    import torch

    if len(next(iter(models.values()))) > 1:
        return torch.func.vmap(function)(models, *more)
    found = function({name: value[0] for name, value in models.items()}, *(each[0] for each in more))
    if isinstance(found, dict):
        return {name: value[None] for name, value in found.items()}
    return found[None]


def _select_layers(parameters: dict[str, Any], layers: Sequence[str] | None) -> dict[str, Any]:
    """Return the parameters of some modules, or all; raise unless each name has some."""
    if layers is None:
        return parameters
    of_layer = {each: [n for n in parameters if n.startswith(f"{each}.")] for each in layers}
    for layer, names in of_layer.items():
        if not names:
            known = dict.fromkeys(name.rpartition(".")[0] for name in parameters)
            raise ValueError(
                "layers must be 'last', 'all' or names of layers with parameters that require gradients: "
                f"{', '.join(known)}. Got {layer!r}."
            )
    wanted = {name for names in of_layer.values() for name in names}
    return {name: value for name, value in parameters.items() if name in wanted}


def _join(parts: list[Any]) -> Any:
    """Join the batches of a data set."""
    import torch

    if isinstance(parts[0], Mapping):
        return {name: _join([part[name] for part in parts]) for name in parts[0]}
    return torch.cat([torch.as_tensor(part) for part in parts])
