"""The network of all methods, the posterior that they share, and training to its maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from demur.reproduce.studies.inference.problems import Problem


@dataclass(frozen=True)
class Design:
    """One hidden layer of tanh units in float64, its prior, and how it is trained.

    Attributes
    ----------
    hidden, prior_scale
        Number of hidden units, and standard deviation of the Gaussian prior of all parameters.
    steps, rate, batch
        Of Adam, whose step size falls to 0 along a cosine; a batch has about so many inputs.
    """

    hidden: int = 16
    prior_scale: float = 0.5
    steps: int = 1000
    rate: float = 0.02
    batch: int = 100


@dataclass(frozen=True)
class Task:
    """What a method is fitted to: a problem, the design of the network, and a seed.

    Attributes
    ----------
    noise
        Standard deviation of the Gaussian likelihood of numbers, known to all methods; None for classes.
    trained
        Parameters of the network at the maximum of the posterior, by name.
    """

    problem: Problem
    design: Design
    seed: int
    noise: float | None = None
    trained: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def data(self) -> tuple[Any, Any]:
        """Training inputs, and classes or numbers (inputs,), as tensors."""
        import torch

        return torch.from_numpy(self.problem.x), torch.from_numpy(self.problem.y)

    @property
    def inputs(self) -> int:
        """The number of training inputs."""
        return len(self.problem.x)

    @property
    def weight_decay(self) -> float:
        """The prior, as a penalty of the average loss."""
        return 1 / (self.design.prior_scale**2 * self.inputs)

    @property
    def log_likelihood(self) -> Callable[[Any, Any], Any] | None:
        """Of outputs and targets; None for classes, where it is every method's default."""
        return None if self.noise is None else GaussianLikelihood(self.noise)

    def make_network(self, seed: int, dropout: float = 0.0, outputs: int | None = None) -> Any:
        """Return an untrained network; with dropout before its last layer if a rate is given."""
        import torch
        from torch import nn

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            first = nn.Linear(self.problem.x.shape[1], self.design.hidden)
            last = nn.Linear(self.design.hidden, outputs or self.problem.classes or 1)
        middle = [nn.Tanh(), nn.Dropout(dropout)] if dropout else [nn.Tanh()]
        return nn.Sequential(first, *middle, last).double()

    def make_trained(self) -> Any:
        """Return the network at the maximum of the posterior, of this seed."""
        network = self.make_network(self.seed)
        network.load_state_dict(self.trained)
        return network.eval()


@dataclass(frozen=True)
class GaussianLikelihood:
    """The log-likelihood of numbers, given means and a noise that is known."""

    noise: float

    def __call__(self, outputs: Any, targets: Any) -> Any:
        away = (targets - outputs[:, 0]) / self.noise
        return -(away**2) / 2 - math.log(self.noise * math.sqrt(2 * math.pi))


def train_network(
    task: Task, network: Any, seed: int, loss: Callable[[Any, Any], Any] | None = None, *, prior: bool = True
) -> float:
    """Train a network in place, in the mode it is in; return the number of passes over the data.

    Parameters
    ----------
    loss
        Average loss of outputs and targets; None: minus the log-likelihood, so that training ends near the
        maximum of the posterior.
    prior
        Whether the prior is part of what is minimised.
    """
    import torch

    (x, y), design = task.data, task.design
    batches, decay = max(1, task.inputs // design.batch), task.weight_decay if prior else 0.0
    loss = loss or _choose_loss(task)
    optimizer = torch.optim.Adam(network.parameters(), lr=design.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, design.steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left: list[Any] = []
        for _ in range(design.steps):
            left = left or [*torch.randperm(task.inputs).tensor_split(batches)]
            rows = left.pop()
            optimizer.zero_grad()
            penalty = sum((part**2).sum() for part in network.parameters()) * decay / 2
            (loss(network(x[rows]), y[rows]) + penalty).backward()
            optimizer.step()
            schedule.step()
    return design.steps / batches


def fit_noise(task: Task) -> float:
    """Return the standard deviation of the noise, trained together with a network by maximum a posteriori."""
    import torch
    from torch import nn

    class WithNoise(nn.Module):
        """The network, and the logarithm of the noise."""

        def __init__(self, network: Any) -> None:
            super().__init__()
            self.network, self.log_noise = network, nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, inputs: Any) -> Any:
            return self.network(inputs)

    model = WithNoise(task.make_network(task.seed))

    def loss(outputs: Any, targets: Any) -> Any:
        away = (targets - outputs[:, 0]) * torch.exp(-model.log_noise)
        return (away**2 / 2).mean() + model.log_noise

    train_network(task, model, task.seed, loss)
    return float(model.log_noise.detach().exp())


def _choose_loss(task: Task) -> Callable[[Any, Any], Any]:
    from torch.nn.functional import cross_entropy

    likelihood = task.log_likelihood
    if likelihood is None:
        return cross_entropy
    return lambda outputs, targets: -likelihood(outputs, targets).mean()
