"""Hamiltonian dynamics by the leapfrog method, and how likely its end is accepted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Energy = Callable[[Any], tuple[float, Any]]
"""A function of the position, a vector: minus the log density, up to a constant, and its gradient."""


class Point(NamedTuple):
    """A position of a chain, with its energy and gradient."""

    position: Any
    energy: float
    gradient: Any


def take_leapfrog_steps(
    energy: Energy, start: Point, momentum: Any, step: float, count: int
) -> tuple[Point, Any]:
    """Follow Hamiltonian dynamics with unit masses; return the last point and its momentum.

    Neal (2011), "MCMC using Hamiltonian dynamics", Eq. 2.28 to 2.30. It stops early where the energy is no
    longer finite: such a point is never accepted.
    """
    point = start
    for _ in range(count):
        momentum = momentum - step / 2 * point.gradient
        position = point.position + step * momentum
        point = Point(position, *energy(position))
        if not math.isfinite(point.energy):
            break
        momentum = momentum - step / 2 * point.gradient
    return point, momentum


def compute_acceptance(start: Point, momentum: Any, end: Point, last: Any) -> float:
    """Return the probability of accepting the end of a trajectory."""
    if not math.isfinite(end.energy):
        return 0.0
    lost = start.energy - end.energy + (float(momentum @ momentum) - float(last @ last)) / 2
    return math.exp(min(0.0, lost)) if not math.isnan(lost) else 0.0
