"""A step size of leapfrog that adapts to its acceptance rate: dual averaging."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from demur.posteriors.chains.leapfrog import Energy, Point, compute_acceptance, take_leapfrog_steps


@dataclass
class StepSize:
    """A step size that is adapted until trajectories are accepted as often as wanted.

    Hoffman and Gelman (2014), "The No-U-Turn sampler", section 3.2: dual averaging, with their constants.

    Attributes
    ----------
    wanted
        The acceptance rate.
    centre
        What the logarithm of the step size is pulled towards: ten times the first step size.
    count
        How many trajectories there were.
    gap
        The weighted mean of wanted minus found acceptance.
    log_step, log_average
        The step size to try next, and the one to keep once the adaptation ends.
    """

    wanted: float
    centre: float
    count: int = 0
    gap: float = 0.0
    log_step: float = 0.0
    log_average: float = 0.0

    @classmethod
    def begin(cls, first: float, wanted: float) -> StepSize:
        """Return an adaptation that begins with a step size."""
        return cls(wanted, math.log(10 * first), log_step=math.log(first), log_average=math.log(first))

    def learn(self, acceptance: float) -> None:
        """Learn from the acceptance probability of one trajectory."""
        self.count += 1
        weight = 1 / (self.count + 10)
        self.gap += weight * (self.wanted - acceptance - self.gap)
        self.log_step = self.centre - math.sqrt(self.count) / 0.05 * self.gap
        fresh = self.count**-0.75
        self.log_average += fresh * (self.log_step - self.log_average)


def find_first_step(energy: Energy, start: Point, momentum: Any) -> float:
    """Return a step size of about the right order, by doubling or halving (their algorithm 4)."""
    step = 1.0

    def accepts() -> bool:
        return (
            compute_acceptance(start, momentum, *take_leapfrog_steps(energy, start, momentum, step, 1)) > 0.5
        )

    grows = accepts()
    for _ in range(100):
        step *= 2.0 if grows else 0.5
        if accepts() != grows:
            return step if not grows else step / 2
    raise FloatingPointError(
        "Expected a density that changes with the parameters. Got one for which no step size is the first to "
        "fail. Check data, model and log_likelihood."
    )
