"""Detection and selective prediction of scores that were counted in bins: figures with certain limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from demur.tasks.detection import Roc
from demur.tasks.display import Displayed, Rows
from demur.tasks.figure_limits import Limits, place_apart
from demur.tasks.selective import Kept, accuracy_of, coverage_of

_DETECTION, _SELECTIVE = ("auroc", "aupr", "fpr95"), ("auc", "aurc", "excess", "augrc")


def _say_what(figures: Sequence[Limits], clusters: int | None) -> str:
    """Return what the figures are, and what their intervals, if there are any, are over draws of."""
    exact = all(each.lower == each.upper for each in figures)
    over = "" if clusters is None else f"; intervals over draws of {clusters:,} clusters"
    return ("exact" if exact else "certain limits") + over


@dataclass(frozen=True, repr=False)
class LimitedDetection(Displayed):
    """How well a score finds the positives, as ``Detection``; see there for `auroc`, `aupr` and `fpr95`.

    Parameters
    ----------
    auroc, aupr, fpr95 : Limits
        The figures, between certain limits.
    positives, negatives : int
        How many inputs of each kind.
    clusters : int or None
        How many clusters the inputs are of, where clusters are given.
    curve : Roc
        Points of the ROC curve, one at the lower edge of each bin that has scores. They are exact.
    """

    auroc: Limits
    aupr: Limits
    fpr95: Limits
    positives: int
    negatives: int
    clusters: int | None
    curve: Roc = field(repr=False, compare=False)

    def _display(self) -> tuple[str, Rows, list[str]]:
        title = f"Detection: {self.positives:,} positives, {self.negatives:,} negatives"
        rows = [[name, str(getattr(self, name))] for name in _DETECTION]
        return f"{title}; {_say_what([self.auroc, self.aupr, self.fpr95], self.clusters)}", rows, []

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the figures under their names."""
        return {name: getattr(self, name).to_dict() for name in _DETECTION}


@dataclass(frozen=True, repr=False)
class LimitedSelective(Displayed):
    """Accuracy over the fraction kept, as ``Selective``; see there for the areas.

    Parameters
    ----------
    auc, aurc, excess, augrc : Limits
        The areas, between certain limits.
    right, wrong : (bins,) int
        How many inputs each bin has, from the most certain on.
    clusters : int or None
        How many clusters the inputs are of, where clusters are given.
    """

    auc: Limits
    aurc: Limits
    excess: Limits
    augrc: Limits
    right: np.ndarray = field(repr=False, compare=False)
    wrong: np.ndarray = field(repr=False, compare=False)
    clusters: int | None = None

    def _display(self) -> tuple[str, Rows, list[str]]:
        number, right = int(np.sum(self.right + self.wrong)), int(np.sum(self.right))
        figures = [self.auc, self.excess, self.augrc]
        title = f"Selective: {number:,} inputs, {right:,} right; {_say_what(figures, self.clusters)}"
        return title, [[name, str(getattr(self, name))] for name in _SELECTIVE], []

    @property
    def curve(self) -> Kept:
        """Fractions kept and the accuracy of what is kept, at the end of each bin, where they are exact."""
        ends = np.cumsum(self.right + self.wrong)
        return Kept(ends / ends[-1], np.cumsum(self.right) / ends)

    def accuracy_at(self, coverage: float) -> Limits:
        """Return the accuracy of the most certain share of the inputs."""
        if not 0 < coverage <= 1:
            raise ValueError(f"coverage must be above 0 and at most 1. Got {coverage!r}.")
        return self._limit(lambda right, wrong: accuracy_of(right, wrong, coverage))

    def coverage_at(self, accuracy: float) -> Limits:
        """Return the largest share that can be kept with at least this accuracy, of these inputs."""
        if not 0 < accuracy <= 1:
            raise ValueError(f"accuracy must be above 0 and at most 1. Got {accuracy!r}.")
        return self._limit(lambda right, wrong: coverage_of(right, wrong, accuracy))

    def _limit(self, figure: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Limits:
        ends = []
        for best in (False, True):
            right, wrong = place_apart(self.right, self.wrong, best=best)
            used = right + wrong > 0
            ends.append(float(figure(right[used][None], wrong[used][None])[0]))
        return Limits(*ends)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the areas under their names."""
        return {name: getattr(self, name).to_dict() for name in _SELECTIVE}
