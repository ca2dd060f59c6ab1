"""Trends: how the scores of the same inputs move as a setting grows, the size of the training set, say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from demur.tasks.clusters import Clusters, check_clusters, spread_of_clusters
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, check_scores, check_share, perfect_bound, share_interval


@dataclass(frozen=True, repr=False)
class Trend(Displayed):
    """How scores of the same inputs move from level to level.

    Attributes
    ----------
    levels
        In increasing order.
    means
        The mean score at each level; infinite where a score is.
    tau : Estimate
        Kendall's tau of level and score, averaged over inputs: 1 if every score rises at every step, -1 if
        every score falls, 0 if as many rise as fall. Ties count as neither.
    ratio : Estimate or None
        The mean score at the last level over that at the first; None where one is 0 or infinite, or where
        scores may be negative, as entropies of predicted numbers are.
    number
        How many inputs.
    """

    levels: tuple[float, ...]
    means: tuple[float, ...]
    tau: Estimate
    ratio: Estimate | None
    number: int

    @property
    def falls(self) -> bool:
        """Whether scores are shown to fall: the interval of ``tau`` is below 0."""
        return self.tau.high < 0

    @property
    def rises(self) -> bool:
        """Whether scores are shown to rise: the interval of ``tau`` is above 0."""
        return self.tau.low > 0

    @property
    def direction(self) -> str:
        """The word for it: falls, rises, or no trend is shown."""
        return "falls" if self.falls else "rises" if self.rises else "no trend is shown"

    def _display(self) -> tuple[str, Rows, Sequence[str]]:
        rows = [
            ["tau", str(self.tau), self.direction],
            ["last / first", "" if self.ratio is None else str(self.ratio), "of the means"],
        ]
        for level, mean in zip(self.levels, self.means, strict=True):
            rows.append([f"at {level:g}", f"{mean:.4g}", "mean"])
        return f"Trend of {self.number:,} inputs over {len(self.levels)} levels", rows, ()


def trend(
    scores: Mapping[float, Any],
    *,
    measure: str = "pairwise",
    part: str = "epistemic",
    confidence: float = 0.95,
    clusters: Any = None,
) -> Trend:
    """Return how the scores of the same inputs move as a setting grows, with intervals.

    Each input is compared with itself, so that the spread between inputs does not blur the trend. Intervals
    are over draws of inputs, for the runs that were made: whether other runs would agree only more runs can
    show. Give several at a level, and compare trends made from different ones.

    Parameters
    ----------
    scores
        By level, a number such as the size of the training set: scores, (inputs,), or `Scores`; or a list of
        them, from several runs. All of the same inputs in the same order.
    measure, part
        What is taken of `Scores`.
    confidence
        Confidence level of the intervals.
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of: intervals are then over draws of clusters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> base = rng.gamma(2.0, size=200)
    >>> runs = {size: base * rng.gamma(5.0, size=200) / size for size in (100, 300, 1000)}
    >>> demur.tasks.trend(runs)
    Trend of 200 inputs over 3 levels
      tau           -0.9500 [-0.9694, -0.9188]  falls
      last / first  0.1091 [0.0978, 0.1218]     of the means
      at 100        0.09556                     mean
      at 300        0.03161                     mean
      at 1000       0.01043                     mean
    """
    check_share("confidence", confidence)
    runs = {level: _list_runs(level, found, measure, part) for level, found in _sort_levels(scores)}
    number = len(next(iter(runs.values()))[0])
    for level, found in runs.items():
        if found.shape[1] != number:
            raise ValueError(
                f"scores must be of the same inputs at every level, {number} of them. "
                f"Got {found.shape[1]} at {level:g}."
            )
    together = check_clusters(clusters, number)
    ordered = list(runs.values())
    first, last = ordered[0].mean(axis=0), ordered[-1].mean(axis=0)
    return Trend(
        tuple(runs),
        tuple(float(each.mean()) for each in ordered),
        _estimate_tau(ordered, together, confidence),
        _estimate_ratio(first, last, together, confidence),
        number,
    )


def pick_part(given: Any, measure: str, part: str, name: str) -> np.ndarray:
    """Return a part of a measure of `Scores`, or an array of scores as it is, checked."""
    columns = getattr(getattr(given, "table", None), "columns", None)
    if columns is None:
        return check_scores(name, given)
    column = f"{measure}_{part}"
    if column not in columns:
        known = ", ".join(each for each in columns if each.endswith(f"_{part}"))
        raise ValueError(f"measure must be one that was scored, as {known}. Got {measure!r}.")
    return check_scores(name, columns[column])


def _sort_levels(scores: Any) -> list[tuple[float, Any]]:
    """Return levels and what they have, in increasing order."""
    if not isinstance(scores, Mapping) or len(scores) < 2:
        came = f"{len(scores)} level" if isinstance(scores, Mapping) else type(scores).__name__
        raise ValueError(
            "scores must be a mapping from at least two levels to scores, such as {1000: a, 5000: b}. "
            f"Got {came}."
        )
    for level in scores:
        if isinstance(level, str) or not math.isfinite(level):
            raise ValueError(f"levels must be numbers, such as sizes of training sets. Got {level!r}.")
    return sorted((float(level), found) for level, found in scores.items())


def _list_runs(level: float, found: Any, measure: str, part: str) -> np.ndarray:
    """Return the scores of all runs of a level, (runs, inputs)."""
    listed = isinstance(found, list | tuple) and len(found) and not np.isscalar(found[0])
    runs = [pick_part(each, measure, part, f"scores[{level:g}]") for each in (found if listed else [found])]
    if len({len(each) for each in runs}) > 1:
        sizes = " and ".join(str(len(each)) for each in runs)
        raise ValueError(f"scores[{level:g}] must have runs of the same inputs. Got {sizes} inputs.")
    return np.stack(runs)


def _estimate_tau(runs: list[np.ndarray], clusters: Clusters | None, confidence: float) -> Estimate:
    """Return Kendall's tau of each input, averaged; its interval is that of a share, (1 + tau) / 2."""
    signs = []
    for low, high in combinations(runs, 2):
        # By comparison: a difference of infinite scores would be no number.
        pairs = [(b > a).astype(float) - (b < a) for a in low for b in high]
        signs.append(np.mean(pairs, axis=0))
    shares = (1 + np.mean(signs, axis=0)) / 2
    value = float(shares.mean())
    spread = spread_of_clusters((shares - value) / len(shares), clusters)
    found = share_interval(value, spread, confidence, "asymptotic")
    # Where all inputs agree there is no spread to go by: then as many draws as there are inputs all agreed.
    bound = perfect_bound(len(shares) if clusters is None else clusters.number, confidence)
    low, high = min(found.low, bound), max(found.high, 1 - bound)
    return Estimate(2 * value - 1, 2 * low - 1, 2 * high - 1, confidence, "asymptotic")


def _estimate_ratio(
    first: np.ndarray, last: np.ndarray, clusters: Clusters | None, confidence: float
) -> Estimate | None:
    """Return the ratio of two means over the same inputs, with an interval on the log scale."""
    a, b = float(first.mean()), float(last.mean())
    if not (0 < a < math.inf and 0 < b < math.inf) or min(first.min(), last.min()) < 0:
        return None
    half = spread_of_clusters((last / b - first / a) / len(first), clusters).half(confidence)
    return Estimate(b / a, b / a * math.exp(-half), b / a * math.exp(half), confidence, "asymptotic")
