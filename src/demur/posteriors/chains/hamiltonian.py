"""`HamiltonianChain`: one chain of HMC, from its start to its samples, and its file."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.posteriors.chains.leapfrog import Point, compute_acceptance, take_leapfrog_steps
from demur.posteriors.chains.log_posterior import LogPosterior
from demur.posteriors.chains.step_size_adaptation import StepSize, find_first_step
from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.run_settings import describe_changes

_MOST_LEAPFROG_STEPS = 10_000
_LENGTH_JITTER = 0.5
"""Lengths of trajectories vary by up to this share. With one length, all trajectories along a direction whose
period divides it would end where they began (Neal, 2011, section 3.2)."""
_METHOD = "HMC chain"


@dataclass(frozen=True)
class HamiltonianPlan:
    """What all chains of a run share; `HMC` describes it."""

    samples: int  # of one chain
    burn_in: int
    thin: int
    trajectory: float
    step_size: float | None
    acceptance: float
    start: str
    seed: int

    @property
    def trajectories(self) -> int:
        """The number of trajectories of one chain."""
        return self.burn_in + self.samples * self.thin

    def count_samples(self, done: int) -> int:
        """Return how many samples there are after so many trajectories."""
        return max(0, done - self.burn_in) // self.thin


class HamiltonianChain:
    """One chain. What a trajectory draws depends only on the seed, the chain and the trajectory's number.

    Parameters
    ----------
    density
        The log posterior.
    plan
        The settings.
    number
        Of the chain, counted from 0.
    folder
        Where its file is kept; None: nowhere.

    Attributes
    ----------
    samples
        (samples, parameters), those so far.
    facts
        (samples, 3): acceptance probability, energy and leapfrog steps of each.
    steps
        The adapted step size.
    """

    def __init__(
        self, density: LogPosterior, plan: HamiltonianPlan, number: int, folder: Path | None
    ) -> None:
        import torch

        self.density, self.plan, self.number = density, plan, number
        self.file = None if folder is None else folder / f"chain-{number}.safetensors"
        self.samples = torch.empty((plan.samples, len(density.start)), dtype=density.start.dtype)
        self.facts, self.done = np.zeros((plan.samples, 3)), 0
        if self.file is not None and self.file.exists():
            self._read(self.file)
            return
        source = self._generator()
        drawn = density.draw_prior(source)
        start = drawn if plan.start == "prior" else density.start + 0.1 * (drawn - density.centre)
        self.point = Point(start, *density(start))
        if not math.isfinite(self.point.energy):
            raise FloatingPointError(
                f"Expected a finite log posterior at the start of chain {number}. Got {-self.point.energy}. "
                "Check data and model, or lower prior_scale."
            )
        first = plan.step_size
        if first is None:
            first = find_first_step(density, self.point, density.draw_momentum(source))
        self.steps = StepSize.begin(first, plan.acceptance)

    def run(self, every: float, show: Callable[[int], object]) -> None:
        """Follow the trajectories that are left; write the file every so many seconds, and at the end."""
        last = time.monotonic()
        while self.done < self.plan.trajectories:
            self._advance()
            show(self.done)
            if self.file is not None and (
                time.monotonic() - last >= every or self.done == self.plan.trajectories
            ):
                self._write(self.file)
                last = time.monotonic()

    def _advance(self) -> None:
        """Follow one trajectory, and keep where it leads as a sample where one is due."""
        source, plan = self._generator(), self.plan
        adapts = plan.step_size is None and self.done < plan.burn_in
        step = math.exp(self.steps.log_step if adapts else self.steps.log_average)
        length = plan.trajectory * (1 + _LENGTH_JITTER * (2 * source.random() - 1))
        count = min(max(1, round(length / step)), _MOST_LEAPFROG_STEPS)
        momentum = self.density.draw_momentum(source)
        end, last = take_leapfrog_steps(self.density, self.point, momentum, step, count)
        accepted = compute_acceptance(self.point, momentum, end, last)
        if source.random() < accepted:
            self.point = end
        if adapts:
            self.steps.learn(accepted)
        self.done += 1
        if self.done > plan.burn_in and (self.done - plan.burn_in) % plan.thin == 0:
            place = plan.count_samples(self.done) - 1
            self.samples[place] = self.point.position.cpu()
            self.facts[place] = accepted, self.point.energy, count

    def _generator(self) -> np.random.Generator:
        """Return the random numbers of the next trajectory, or of the start."""
        started = hasattr(self, "point")
        return np.random.default_rng([self.plan.seed, self.number, self.done + 1 if started else 0])

    def _settings(self) -> dict[str, Any]:
        """Return what must be unchanged for a chain to resume."""
        return json.loads(json.dumps(dataclasses.asdict(self.plan) | self.density.describe()))

    def _write(self, file: Path) -> None:
        """Write the chain so far."""
        import torch

        count = self.plan.count_samples(self.done)
        tensors = {
            "samples": self.samples[:count], "facts": torch.from_numpy(self.facts[:count]),
            "position": self.point.position,
        }  # fmt: skip
        facts = {
            "method": _METHOD, "settings": json.dumps(self._settings()), "done": str(self.done),
            "steps": json.dumps(dataclasses.asdict(self.steps)),
        }  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(file, tensors, facts)

    def _read(self, file: Path) -> None:
        """Take up the chain from its file."""
        tensors, facts = read_tensors(file, _METHOD)
        changed = describe_changes(json.loads(facts["settings"]), self._settings())
        if changed:
            raise ValueError(
                f"checkpoint: expected a folder of these chains. Got {str(file.parent)!r}, of others: "
                f"{changed}. Remove it or choose another name."
            )
        self.done, self.steps = int(facts["done"]), StepSize(**json.loads(facts["steps"]))
        count = self.plan.count_samples(self.done)
        self.samples[:count], self.facts[:count] = tensors["samples"], tensors["facts"].numpy()
        position = tensors["position"].to(self.density.start)
        self.point = Point(position, *self.density(position))
