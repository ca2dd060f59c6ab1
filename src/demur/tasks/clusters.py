"""Inputs that belong together: pixels of one image, visits of one patient, sentences of one document.

Inputs of one cluster are not independent, so whole clusters are what varies from draw to draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.tasks.estimate import Spread, spread_of, student_quantile


@dataclass(frozen=True)
class Clusters:
    """The cluster of each input, as a number from 0, and how many clusters there are."""

    codes: np.ndarray
    number: int

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sums over clusters."""
        return np.bincount(self.codes, values, minlength=self.number)

    def count(self, chosen: np.ndarray) -> int:
        """Return how many clusters have a chosen input."""
        return len(np.unique(self.codes[chosen]))

    def count_equal(self, chosen: np.ndarray) -> float:
        """Return how many equally large clusters would vary as much as those of the chosen inputs do.

        With the share w of each cluster, 1 / sum w^2: their number where they are equally large, else less.
        """
        shares = self.sum(chosen.astype(float)) / np.count_nonzero(chosen)
        return 1 / float(shares @ shares)

    def count_pairs(self, positive: np.ndarray) -> int:
        """Return how many pairs of a positive and a negative there are that share no cluster."""
        return max(1, min(self.count(positive), self.count(~positive), self.number // 2))

    def spread(self, influence: np.ndarray) -> Spread:
        """Return the standard error of a figure from the influence of its inputs, and G - 1 degrees."""
        sums = self.sum(influence - influence.mean())
        return Spread(math.sqrt(self.number / (self.number - 1) * float(sums @ sums)), self.number - 1)

    def enclose_mean(self, values: np.ndarray, confidence: float) -> tuple[float, float]:
        """Return the ends of an interval of the mean over inputs, corrected for the skewness of clusters.

        Hall (1992), "On the removal of skewness by transformation": a cubic function of Student's ratio whose
        distribution has no skewness to first order, inverted. Without skewness it is Student's interval.
        """
        mean, error = float(values.mean()), self.spread(values / len(values)).error
        sums = self.sum(values - mean)
        square = float(np.mean(sums**2))
        skewness = float(np.mean(sums**3)) / square**1.5 / math.sqrt(self.number) if square > 0 else 0.0
        reach = student_quantile(confidence, self.number - 1)

        def untransform(ratio: float) -> float:
            if abs(skewness) < 1e-9:
                return ratio
            return 3 / skewness * (math.cbrt(1 + skewness * (ratio - skewness / 6)) - 1)

        low, high = (mean - error * untransform(end) for end in (reach, -reach))
        return min(low, mean), max(high, mean)

    def spread_of_kinds(self, influence: np.ndarray, positive: np.ndarray) -> Spread:
        """Return the standard error where positives and negatives were drawn apart (Obuchowski, 1997).

        A cluster may have inputs of both kinds; their errors then go together. Degrees of freedom are
        Welch's, of the clusters of each kind, and at most one less than the number of clusters.
        """
        sums, variances, degrees = [], [], []
        for kind in (positive, ~positive):
            own = np.where(kind, influence - influence[kind].mean(), 0.0)
            sums.append(self.sum(own))
            number = self.count(kind)
            # One cluster of a kind tells nothing of others: it has no degree of freedom, and no interval.
            variances.append(float(sums[-1] @ sums[-1]) * (number / (number - 1) if number > 1 else math.inf))
            degrees.append(number - 1)
        common = 2 * self.number / (self.number - 1) * float(sums[0] @ sums[1])
        if min(degrees) == 0:
            return Spread(math.inf, 1.0)
        total = sum(variances)
        free = total**2 / sum(v**2 / d for v, d in zip(variances, degrees, strict=True)) if total else 1.0
        return Spread(math.sqrt(total + common), min(free, self.number - 1.0))

    def draw(self, rng: np.random.Generator, rows: int, positive: np.ndarray | None = None) -> np.ndarray:
        """Return how often resamples of whole clusters take each input, (rows, inputs).

        With `positive`, clusters of the two kinds are drawn apart, unless some cluster has both.
        """
        kinds = [np.arange(self.number)]
        if positive is not None:
            own = [np.unique(self.codes[kind]) for kind in (~positive, positive)]
            kinds = own if not np.isin(own[0], own[1]).any() else kinds
        taken = np.zeros((rows, self.number), np.int64)
        for kind in kinds:
            drawn = kind[rng.integers(0, len(kind), (rows, len(kind)))]
            np.add.at(taken, (np.arange(rows)[:, None], drawn), 1)
        return taken[:, self.codes]


def spread_of_clusters(influence: np.ndarray, clusters: Clusters | None) -> Spread:
    """Return the standard error of a figure from the influence of inputs, or of clusters if there are any."""
    if clusters is not None:
        return clusters.spread(influence)
    return Spread(spread_of([(influence, np.ones(len(influence)))])[0])


def check_clusters(
    clusters: Any, number: int, splits: int | None = None, name: str = "clusters"
) -> Clusters | None:
    """Return the clusters of so many inputs from their labels; None where none are given."""
    if clusters is None:
        return None
    _refuse_splits(splits, name)
    return _encode(_check_labels(name, clusters, number), name)


def check_pair_of_clusters(
    clusters: Any, known: int, unknown: int, splits: int | None = None, name: str = "clusters"
) -> Clusters | None:
    """Return the clusters of in- and out-of-distribution inputs, in this order."""
    if clusters is None:
        return None
    _refuse_splits(splits, name)
    if not isinstance(clusters, (tuple, list)) or len(clusters) != 2:
        raise ValueError(
            f"{name} must be a pair for detection: (id_{name}, ood_{name}), one label per input. "
            f"Got {type(clusters).__name__}."
        )
    parts = [
        _check_labels(f"{name}[{index}]", part, number)
        for index, (part, number) in enumerate(zip(clusters, (known, unknown), strict=True))
    ]
    if parts[0].dtype.kind != parts[1].dtype.kind:
        parts = [part.astype(str) for part in parts]
    return _encode(np.concatenate(parts), name)


def _refuse_splits(splits: int | None, name: str) -> None:
    """Raise a `ValueError` where splits are asked for, too."""
    if splits is not None:
        raise ValueError(
            f"splits and {name} cannot be given together: random splits would tear them apart. "
            f"Give {name} alone, or splits alone."
        )


def _check_labels(name: str, labels: Any, number: int) -> np.ndarray:
    """Return labels of clusters, one per input."""
    values = np.asarray(labels) if _is_text(labels) else to_numpy(as_array(labels))
    if values.shape != (number,):
        raise ValueError(
            f"{name} must have shape ({number},), one label per input, as the image or patient that it is "
            f"of. Got {values.shape}."
        )
    missing = values != values if values.dtype.kind in "fO" else np.zeros(number, bool)
    if values.dtype.kind == "O":
        missing = missing.astype(bool) | np.array([value is None for value in values])
        values = values.astype(str)
    elif values.dtype.kind in "US":
        missing = values == np.array("", values.dtype)  # an empty cell of a table
    if missing.any():
        raise ValueError(
            f"{name} must have a label for every input. Got none for {missing.sum()} of {number} inputs, "
            f"first at input {missing.argmax()}. Give inputs that stand alone a label of their own."
        )
    return values


def _is_text(labels: Any) -> bool:
    """Return whether labels are texts or objects, which arrays of other libraries never are."""
    return np.asarray(labels).dtype.kind in "OUS" if isinstance(labels, (list, tuple, np.ndarray)) else False


def _encode(labels: np.ndarray, name: str) -> Clusters:
    """Return the clusters of labels."""
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"{name} must have at least 2 different labels: from one nothing is known about others. "
            f"Got {names[0]!s} for all {len(labels)} inputs."
        )
    return Clusters(codes.ravel(), len(names))
