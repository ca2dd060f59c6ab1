"""The schedule of a Markov chain: step sizes, which steps have noise, and when samples are taken."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The steps of a chain, in identical cycles.

    A cycle begins without noise (exploration), then has noise (sampling); the first steps with noise are
    discarded, and the samples are spread evenly over the rest, the last of them at the cycle's end.

    Parameters
    ----------
    steps, samples
        Numbers of the whole chain.
    step_size
        The size of the first step of a cycle.
    cycles
        The number of cycles; steps and samples must be multiples of it.
    exploration
        The fraction of a cycle without noise, 0 to below 1.
    discard
        The fraction of the steps with noise that precede the first sample, 0 to below 1.
    cosine
        Whether the step size falls to 0 within each cycle; otherwise it is constant.
    """

    steps: int
    samples: int
    step_size: float
    cycles: int = 1
    exploration: float = 0.0
    discard: float = 0.0
    cosine: bool = False

    def __post_init__(self) -> None:
        for name in ("samples", "cycles", "steps"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive integer. Got {value!r}.")
        if not (0 < self.step_size < math.inf):
            raise ValueError(f"step_size must be positive and finite. Got {self.step_size!r}.")
        for name in ("exploration", "discard"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1. Got {getattr(self, name)!r}.")
        for name in ("samples", "steps"):
            if getattr(self, name) % self.cycles:
                raise ValueError(
                    f"{name} must be a multiple of cycles, which are alike. "
                    f"Got {getattr(self, name)} {name} in {self.cycles} cycles."
                )
        if self.length - self.first < self.samples // self.cycles:
            raise ValueError(
                f"Expected a step for each sample. Got {self.samples // self.cycles} samples in "
                f"{self.length - self.first} steps that are left for them in a cycle of {self.length}. "
                "Give more steps or epochs, fewer samples, or smaller parts without."
            )

    @functools.cached_property
    def length(self) -> int:
        """The number of steps in a cycle."""
        return self.steps // self.cycles

    @functools.cached_property
    def explored(self) -> int:
        """The number of steps in a cycle without noise."""
        return round(self.exploration * self.length)

    @functools.cached_property
    def first(self) -> int:
        """The number of steps in a cycle before those that samples are taken from."""
        return self.explored + round(self.discard * (self.length - self.explored))

    def rate(self, step: int) -> float:
        """Return the size of a step, counted from 0; the cosine is Eq. 1 of Zhang et al. (2020)."""
        if not self.cosine:
            return self.step_size
        return self.step_size / 2 * (math.cos(math.pi * (step % self.length) / self.length) + 1)

    def has_noise(self, step: int) -> bool:
        """Return whether a step, counted from 0, has noise."""
        return step % self.length >= self.explored

    def find_step(self, sample: int) -> int:
        """Return after how many steps a sample, counted from 0, is taken."""
        each = self.samples // self.cycles
        cycle, place = divmod(sample, each)
        return cycle * self.length + self.first + (place + 1) * (self.length - self.first) // each
