"""`Stepper` moves the parameters of a network along a Markov chain, one step after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains.gradients import Likelihood, choose_gradient
from demur.posteriors.chains.minibatches import Minibatches
from demur.posteriors.chains.plain_steps import BLOCK_SIZE
from demur.posteriors.chains.schedule import Schedule
from demur.posteriors.compiled_calls import find_loop, flatten, run_in_threads

Moving = list[tuple[Any, Any, tuple[Any, Any, Any]]]
"""For each parameter, as `flatten` returns them: its value, its momentum (None where the method has none),
and three forces. Their sum, each times its factor, is the gradient of the log posterior."""

Factors = tuple[float, float, float]

_SEEDS_PER_BLOCK = 1024
"""Seeds of steps that are generated at a time."""

_PLAIN_CALL, _PLAIN_NUMBER = 50e-6, 20e-9
"""Seconds that NumPy takes for a step: for calling it, and for each number."""


@dataclass
class ChainState:
    """The parameters and momenta of a chain after some steps; without momenta, that mapping is empty."""

    step: int
    parameters: dict[str, Any]
    momenta: dict[str, Any]

    def copy(self) -> ChainState:
        """Return a copy that shares no memory."""
        import torch

        layout = {"memory_format": torch.contiguous_format}  # as `flatten` needs it
        parts = ({n: v.clone(**layout) for n, v in part.items()} for part in (self.parameters, self.momenta))
        return ChainState(self.step, *parts)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the views, which in a copy would no longer share the parameters' memory."""
        return {name: value for name, value in self.__dict__.items() if name != "flat"}

    @functools.cached_property
    def flat(self) -> dict[str, tuple[Any, Any]]:
        """Each flattened parameter and its momentum, None where the method has none; see `flatten`."""
        return {
            name: (flatten(value), flatten(self.momenta[name]) if self.momenta else None)
            for name, value in self.parameters.items()
        }


class Stepper:
    """Advances a chain from state to state. What a step draws depends only on the seed and the step's number.

    Parameters
    ----------
    model
        The network; the caller puts it in evaluation mode.
    minibatches, schedule
        The batch of each step, and its size and noise.
    move
        Moves all parameters by one step, in place, given what moves, the factors of the forces, the step size
        and the temperature. Log posterior and temperature are divided by the number of inputs.
    log_likelihood
        None: that of class labels, given logits.
    prior_scale, prior_mean
        Standard deviation and mean of the Gaussian prior.
    temperature, seed, forward
        As for the samplers.
    """

    def __init__(
        self,
        model: Any,
        minibatches: Minibatches,
        schedule: Schedule,
        move: Callable[[Moving, Factors, float, float], None],
        *,
        log_likelihood: Likelihood | None,
        prior_scale: float,
        prior_mean: Any,
        temperature: float,
        seed: int,
        forward: networks.Forward | None,
        momenta: bool,
    ) -> None:
        import torch

        if not prior_scale > 0:
            raise ValueError(f"prior_scale must be positive; math.inf is a flat prior. Got {prior_scale!r}.")
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature must be at least 0 and finite. Got {temperature!r}.")
        self.model, self.minibatches, self.schedule, self.move = model, minibatches, schedule, move
        self.temperature, self.seed = float(temperature), seed
        self.place = networks.locate_model(model)
        start = copy_parameters(model)
        self.prior_scale, self.prior_mean = prior_scale, check_prior_mean(prior_mean, start)
        zero = {name: torch.zeros_like(value) for name, value in start.items()} if momenta else {}
        self.start = ChainState(0, start, zero)
        self._centre = (
            None if self.prior_mean is None else {n: flatten(v) for n, v in self.prior_mean.items()}
        )
        self.gradient = choose_gradient(model, start, minibatches, log_likelihood, forward, schedule.steps)
        self._seeds: tuple[int, Any] = (-1, None)

    def advance(self, state: ChainState) -> None:
        """Advance by one step, in place. The caller restores modes and random generators afterwards."""
        step, size = state.step, self.minibatches.size
        networks.seed_device(self.find_seed(step), self.place[0])
        rate = self.schedule.rate(step)
        temperature = self.temperature / size if self.schedule.has_noise(step) else 0.0
        average, gradient = self.gradient(state)
        if not math.isfinite(average):
            self.raise_diverged(f"a finite log-likelihood. Got {average}", step + 1)
        weight = 1 / (self.prior_scale**2 * size)
        factors = (1.0, -weight, 0.0 if self._centre is None else weight)
        centre = self._centre or gradient
        # Forces are not summed first: that would take another pass over them.
        moving = [(v, m, (gradient[name], v, centre[name])) for name, (v, m) in state.flat.items()]
        self.move(moving, factors, rate, temperature)
        state.step += 1

    def find_seed(self, step: int) -> int:
        """Return the seed of a step. Many are generated at a time: one takes as long as a small step."""
        block, place = divmod(step, _SEEDS_PER_BLOCK)
        if self._seeds[0] != block:
            drawn = np.random.SeedSequence([self.seed, 0, block]).generate_state(_SEEDS_PER_BLOCK, np.uint64)
            self._seeds = block, drawn >> np.uint64(1)
        return int(self._seeds[1][place])

    def check(self, state: ChainState) -> None:
        """Raise unless all parameters of a sample are finite."""
        for name, value in state.parameters.items():
            # A finite sum has finite terms, and is quick to check.
            if not math.isfinite(float(value.sum())) and not value.isfinite().all():
                self.raise_diverged(f"finite parameters. Got others in {name!r}", state.step)

    def raise_diverged(self, expected: str, step: int) -> NoReturn:
        """Raise an error that says what to do about it."""
        raise FloatingPointError(
            f"Expected {expected} at step {step} of {self.schedule.steps}. Lower step_size, which is "
            f"{self.schedule.step_size:g}, or check data and model for numbers that are not finite."
        )


def add_forces(values: Any, forces: tuple[Any, ...], factors: Factors, step: float) -> None:
    """Add a step along the forces to values, in place."""
    import torch

    largest = torch.finfo(values.dtype).max
    for force, factor in zip(forces, factors, strict=True):
        if factor == 0:
            continue
        along = step * factor
        # PyTorch refuses numbers beyond the dtype; a chain that diverges is reported by `raise_diverged`.
        values.add_(force, alpha=along if abs(along) <= largest else math.copysign(math.inf, along))


def add_noise(values: Any, deviation: float) -> None:
    """Add Gaussian noise to values, in place; a standard deviation of 0 draws nothing."""
    import torch

    if deviation > 0:
        # Not alpha=, which refuses deviations beyond the range of the type; a later check names the cause.
        values.add_(torch.randn_like(values).mul_(deviation))


def take_step(name: str, plain: Callable[..., None], given: tuple[Any, ...]) -> None:
    """Take a step of a parameter, the first of ``given``: compiled or by NumPy, which give the same bytes."""
    size = given[0].size
    loop = find_loop(name, given[0].dtype, _PLAIN_CALL + size * _PLAIN_NUMBER)
    if loop is None:
        plain(*given, 0, size)
    else:
        run_in_threads(loop, given, size, size, BLOCK_SIZE)


def draw_noise_starts(moving: Moving, deviation: float) -> Any:
    """Draw the start of each parameter's sequence of compiled noise, unless none of them needs it."""
    import torch

    if deviation == 0 or not any(isinstance(value, np.ndarray) for value, _, _ in moving):
        return np.zeros(len(moving), np.uint64)
    return torch.empty(len(moving), dtype=torch.int64, device="cpu").random_().numpy().view(np.uint64)


def copy_parameters(model: Any) -> dict[str, Any]:
    """Return copies of the parameters to sample, those that require gradients."""
    import torch

    found = {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in model.named_parameters()
        if value.requires_grad
    }
    if not found:
        raise ValueError(
            "Expected a model with parameters to sample. Got none that require gradients. "
            "Set requires_grad on the parameters to sample."
        )
    return found


def check_prior_mean(given: Any, start: dict[str, Any]) -> dict[str, Any] | None:
    """Return the prior mean of each parameter after checking it; None: zero."""
    import torch

    if given is None:
        return None
    if isinstance(given, str) and given == "model":
        return start
    if not isinstance(given, Mapping):
        raise TypeError(f"prior_mean must be None, 'model' or a mapping of tensors by name. Got {given!r}.")
    if missing := [name for name in start if name not in given]:
        raise ValueError(f"prior_mean must have each parameter that is sampled. {missing[0]!r} is missing.")
    found = {name: torch.as_tensor(given[name]).detach().to(value) for name, value in start.items()}
    for name, value in start.items():
        if found[name].shape != value.shape:
            raise ValueError(
                f"prior_mean[{name!r}] must have shape {tuple(value.shape)}. Got {tuple(found[name].shape)}."
            )
    return found
