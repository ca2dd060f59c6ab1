"""Measures of Gaussian members in which their average takes part: from all members at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from demur.core.gaussian_integral import Integral, divergence_from_average
from demur.core.given import Side
from demur.core.jackknife import Estimates
from demur.core.rules import Array
from demur.core.state import Means, State
from demur.measures import Given, Measure, Parts, evaluate, from_summary, resolve
from demur.predictions import Members


class GaussianEstimates(Estimates):
    """Figures of Gaussian members and their mixture, all of them and without each group in turn."""

    def __init__(self, state: State, members: Members, sides: list[Side]) -> None:
        super().__init__(state)
        self.mean, self.variance = _on_host(members)
        self.weights = _weights_of(members)
        self.sides = sides
        self._information: dict[int | None, np.ndarray] = {}

    def parts(self, measure: Measure, given: Given) -> Parts:
        return self.figures(measure, given, self.whole, None)

    def replicates(self, measure: Measure, given: Given) -> Parts:
        left_out = enumerate(self.state.leaving_one_out())
        found = [self.figures(measure, given, means, group) for group, means in left_out]
        return Parts(*(np.stack(part) for part in zip(*found, strict=True)))

    def figures(self, measure: Measure, given: Given, means: Means, without: int | None) -> Parts:
        """Return the parts of a measure over all members, or over those outside a group."""
        if given.predictor is not None:
            away = divergence_from_average(
                self.mean, self.variance, self._weights_without(without), self.predictor()
            )
            return Parts(given.predictor.entropy, away.value)
        if without not in self._information:
            whole = divergence_from_average(self.mean, self.variance, self._weights_without(without))
            self._information[without] = whole.value
        information = self._information[without]
        if given.truth is not None:
            charged = evaluate(Measure("each", measure.truth), means, given)
            return Parts(means.entropy + information, charged.epistemic - information)
        k = evaluate(resolve("pairwise"), means, given).epistemic
        return from_summary(measure, means.entropy, k, information)

    def _weights_without(self, without: int | None) -> np.ndarray:
        """Return weights, 0 for the members of a group, which are dealt as those of the state."""
        if without is None:
            return self.weights
        group = (np.cumsum(self.weights > 0, axis=0) - 1) % self.state.groups
        return np.where(group == without, 0.0, self.weights)

    def predictor(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the given predictor's members."""
        side = self.sides[0]
        if not isinstance(side, Members):
            raise ValueError(
                "predictor must be Gaussian predictions where truth is 'bma'. Got Moments, which do not keep "
                "their members."
            )
        return _on_host(side)


def _on_host(members: Members) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance, (members, inputs), as NumPy arrays."""
    if members.stays:
        raise ValueError(
            "The average of Gaussians is integrated on the processor, and no gradient passes. Detach the "
            "predictions and move them there, or take measure='pairwise'."
        )
    numbers: Array = members.logits()
    return numbers[..., 0], numbers[..., 1]


def _weights_of(members: Members) -> np.ndarray:
    """Return weights, (members, inputs)."""
    return np.ones((members.count, members.inputs)) if members.weights is None else members.weights


def integrate_information(parts: Iterator[Members]) -> Integral:
    """Return the mutual information of members and outcome, for parts of the inputs one by one."""
    found = [divergence_from_average(*_on_host(part), _weights_of(part)) for part in parts]
    return Integral(*(np.concatenate(values) for values in zip(*found, strict=True)))
