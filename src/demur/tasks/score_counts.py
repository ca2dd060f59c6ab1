"""Any number of scores evaluated in fixed memory: counts that merge, and figures between certain limits."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from demur import atomic
from demur.core.arrays import as_array, to_numpy
from demur.reading import open_saved
from demur.tasks.cluster_counts import ClusterCounts, ClusterTable
from demur.tasks.detection import Roc
from demur.tasks.estimate import Estimate, IntervalOptions, perfect_bound
from demur.tasks.figure_limits import FIGURES, Counts, Limits, limit_figure
from demur.tasks.limited_results import LimitedDetection, LimitedSelective
from demur.tasks.score_bins import BINS, add_to_bins, find_used, lowest_scores
from demur.tasks.second_pass import Chunks, find_corrections
from demur.tasks.selective import estimate_areas_of_one_kind, widen_areas

FORMAT = "demur score counts 1"
_MEMORY = 1 << 30


class ScoreCounts:
    """Scores of two kinds of inputs, counted in bins: pixels, tokens, or more inputs than fit into memory.

    A bin is about a two-thousandth of its scores wide. The counts take 16 MB whatever comes, they merge, and
    every figure of ``detection``, ``misclassification`` and ``selective`` follows from them between limits
    that are certain, because within a bin the order can be no better than all positives above all negatives,
    and no worse than the reverse. ``refine`` reads the scores again and makes the figures exact.

    Intervals need `clusters`, as the image that pixels are of: then they are over draws of whole clusters.
    Pixels are not independent, and are never resampled.

    Examples
    --------
    >>> counts = demur.tasks.ScoreCounts()
    >>> rng = np.random.default_rng(0)
    >>> for image in range(30):
    ...     wrong = rng.uniform(size=(64, 64)) < 0.1
    ...     scores = rng.gamma(1 + wrong, size=(64, 64)).astype(np.float32)
    ...     _ = counts.update(scores, wrong, clusters=image)
    >>> counts.misclassification()
    Detection: 12,214 positives, 110,666 negatives; certain limits; intervals over draws of 30 clusters
      auroc  0.7474 to 0.7475 [0.7420, 0.7526]
      aupr   0.2369 to 0.2370 [0.2293, 0.2449]
      fpr95  0.7021 to 0.7022 [0.6984, 0.7256]
    """

    def __init__(self) -> None:
        self.table = np.zeros((BINS, 2), np.int64)  # negatives and positives per bin, from the lowest on
        self.by_cluster = ClusterCounts()
        self._corrections: dict[str, float] | None = None

    def __repr__(self) -> str:
        clusters = f", {self.clusters:,} clusters" if self.clusters else ""
        return f"ScoreCounts({self.positives:,} positives, {self.negatives:,} negatives{clusters})"

    @property
    def positives(self) -> int:
        """How many positives were counted."""
        return int(self.table[:, 1].sum())

    @property
    def negatives(self) -> int:
        """How many negatives were counted."""
        return int(self.table[:, 0].sum())

    @property
    def clusters(self) -> int:
        """How many clusters there are; 0 where none were given."""
        return len(self.by_cluster.found)

    def update(self, scores: Any, positive: Any, *, clusters: Any = None) -> ScoreCounts:
        """Count scores.

        Parameters
        ----------
        scores
            An array of any shape, of NumPy, PyTorch or JAX, higher = less certain. Infinity is fine.
        positive
            Which of them should be found, in the same shape, or one bool for all: out-of-distribution inputs
            (True for one set, False for the other), or wrong predictions.
        clusters
            A label for all of them, or one for each: a text or an integer, as the number of an image. For all
            updates or for none.
        """
        values = _check_values(scores)
        marked = _check_positive(positive, np.shape(scores))
        if (clusters is None) == bool(self.clusters) and self.positives + self.negatives:
            raise ValueError("clusters must be given for every update or for none. Got both.")
        if clusters is not None:
            self.by_cluster.add(_check_labels(clusters, np.shape(scores)), values, marked)
        add_to_bins(self.table, values, marked)
        self._corrections = None
        return self

    def merge(self, other: ScoreCounts) -> ScoreCounts:
        """Add another's counts, in place."""
        if not isinstance(other, ScoreCounts):
            raise TypeError(f"Expected ScoreCounts. Got {type(other).__name__}.")
        if bool(self.clusters) != bool(other.clusters) and self.table.any() and other.table.any():
            raise ValueError(f"Expected ScoreCounts with clusters, or without. Got {self} and {other}.")
        self.table += other.table
        self.by_cluster.merge(other.by_cluster)
        self._corrections = None
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to an ``.npz`` file, completely or not at all."""
        bins = find_used(self.table)
        content: dict[str, np.ndarray] = {
            "format": np.array(FORMAT), "bins": bins.astype(np.int32), "counts": self.table[bins],
        }  # fmt: skip
        if self._corrections is not None:
            content["corrections"] = np.array([self._corrections[name] for name in FIGURES])
        with atomic.open_file(path) as file:
            np.savez_compressed(file, **content, **self.by_cluster.to_arrays())  # pyright: ignore[reportArgumentType]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ScoreCounts:
        """Read what ``save`` wrote; any other file is a ValueError."""
        with open_saved(path, "ScoreCounts.save", FORMAT) as content:
            found, bins, counts = cls(), content["bins"], content["counts"]
            if len(bins) and not (bins.min() >= 0 and bins.max() < BINS and counts.min() >= 0):
                raise ValueError("bins or counts that are none")
            found.table[bins] = counts
            found.by_cluster = ClusterCounts.from_arrays(content)
            if found.clusters and found.by_cluster.sum() != found.table.sum():
                raise ValueError("clusters of other inputs")
            if "corrections" in content:
                found._corrections = dict(zip(FIGURES, content["corrections"].tolist(), strict=True))
        return found

    def refine(self, read: Chunks, *, memory: int = _MEMORY) -> ScoreCounts:
        """Make the figures exact by further passes over the same scores; returns self.

        Only scores of bins that have both kinds are looked at. Each pass holds as many of these as `memory`
        allows, so that there are more passes the more there are: one for every 10 million per GiB.

        Parameters
        ----------
        read
            A function of no arguments that returns an iterator over all scores that were counted: pairs of
            scores and what is positive, as for ``update``.
        memory
            Bytes to use, besides what `read` itself holds: a part of the scores at a time, as a rule. No less
            than 64 MiB are used.
        """

        def check() -> Any:
            for scores, positive in read():
                yield _check_values(scores), _check_positive(positive, np.shape(scores))

        self._corrections = find_corrections(self.table, check, memory)
        return self

    def detection(
        self, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
    ) -> LimitedDetection:
        """Return how well scores find out-of-distribution inputs, as ``demur.tasks.detection``.

        Where clusters were given, intervals are of `resamples` draws of whole clusters, those of either kind
        by themselves unless one has both.
        """
        return self._detect(IntervalOptions(confidence, "bootstrap", resamples, None, seed), stratified=True)

    def misclassification(
        self, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
    ) -> LimitedDetection:
        """Return how well scores find wrong predictions, as ``demur.tasks.misclassification``."""
        return self._detect(IntervalOptions(confidence, "bootstrap", resamples, None, seed), stratified=False)

    def _detect(self, options: IntervalOptions, *, stratified: bool) -> LimitedDetection:
        positive, negative, lowest = self._count_levels()
        if not positive.any() or not negative.any():
            raise ValueError(
                f"Expected inputs of both kinds to tell apart. Got {self}. Update with the other."
            )
        draws = self._tabulate()
        limits = {}
        for name in ("auroc", "aupr", "fpr95"):
            ends = self._limit(name, positive, negative)
            if draws is None:
                limits[name] = Limits(*ends, confidence=options.confidence)
                continue
            found = draws.enclose(FIGURES[name], ends, options, stratified=stratified, both=True)
            limits[name] = _join(ends, found, *_find_reach(name, draws, (positive, negative), options))
        fpr, tpr = (np.append(0, np.cumsum(each)) / each.sum() for each in (negative, positive))
        curve = Roc(fpr, tpr, np.append(np.nan, lowest))
        clusters = self.clusters or None
        return LimitedDetection(
            **limits, positives=self.positives, negatives=self.negatives, clusters=clusters, curve=curve
        )

    def selective(
        self, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
    ) -> LimitedSelective:
        """Return how accurate predictions are when the most certain are kept, as ``demur.tasks.selective``.

        Positives are wrong predictions.
        """
        options = IntervalOptions(confidence, "bootstrap", resamples, None, seed)
        positive, negative, _ = self._count_levels()
        if not len(positive):
            raise ValueError("Expected counts of scores. Got none. Call update first.")
        right, wrong = negative[::-1], positive[::-1]
        names = ("auc", "excess", "augrc")
        ends = {name: self._limit(name, positive, negative) for name in names}
        draws = self._tabulate()
        limits = {name: Limits(*ends[name], confidence=confidence) for name in names}
        if draws is not None:
            given = {"options": options, "stratified": False, "both": False}
            if right.any() and wrong.any():
                pairs = [draws.enclose(FIGURES[name], ends[name], **given) for name in names]
                number = draws.clusters.count_pairs(draws.positive)
                found = [widen_areas(each, right, wrong, number) for each in zip(*pairs, strict=True)]
            else:
                found = [estimate_areas_of_one_kind(right, self.clusters, confidence)] * 2
            for name, low, high in zip(names, *found, strict=True):
                limits[name] = _join(ends[name], (low, high))
        auc = limits["auc"]
        turned = [None if each is None else 1 - each for each in (auc.high, auc.low)]
        aurc = Limits(1 - auc.upper, 1 - auc.lower, *turned, confidence=confidence)
        return LimitedSelective(
            auc, aurc, limits["excess"], limits["augrc"], right, wrong, self.clusters or None
        )

    def _count_levels(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return positives, negatives and the lowest score of each bin that has any, the highest first."""
        bins = find_used(self.table)[::-1]
        return self.table[bins, 1], self.table[bins, 0], lowest_scores(bins).astype(float)

    def _limit(self, name: str, positive: np.ndarray, negative: np.ndarray) -> tuple[float, float]:
        lower, upper = limit_figure(name, positive, negative)
        if self._corrections is None:
            return lower, upper
        exact = FIGURES[name](positive, negative) + self._corrections[name]
        exact = min(max(exact, lower), upper)  # sums of differences may be off by the last digit
        return exact, exact

    def _tabulate(self) -> ClusterTable | None:
        if not self.clusters:
            return None
        if self.clusters == 1:
            raise ValueError(
                "clusters must have at least 2 different labels: from one nothing is known about others. "
                f"Got {next(iter(self.by_cluster.found))!r} for all inputs."
            )
        return self.by_cluster.tabulate()


def _join(
    ends: tuple[float, float], found: tuple[Estimate, Estimate], low: float = np.inf, high: float = -np.inf
) -> Limits:
    """Return limits with an interval that reaches down to `low` and up to `high` at least."""
    least, most = min(found[0].low, low, ends[0]), max(found[1].high, high, ends[1])
    return Limits(*ends, max(least, 0.0), min(most, 1.0), found[0].confidence)


def _find_reach(
    name: str, draws: ClusterTable, counts: Counts, options: IntervalOptions
) -> tuple[float, float]:
    """Return how far an interval reaches down and up at least, as those of ``detection`` do.

    None is closer to a perfect ranking than pairs of a positive and a negative that share no cluster allow.
    """
    best = perfect_bound(draws.clusters.count_pairs(draws.positive), options.confidence)
    if name == "auroc":
        return best, 1 - best
    if name == "fpr95":
        alarms = perfect_bound(draws.clusters.count(~draws.positive), options.confidence)
        return alarms, 1 - alarms
    positives, negatives = (int(each.sum()) for each in counts)
    return positives / (positives + negatives * (1 - best)), 0.0


def _check_values(scores: Any) -> np.ndarray:
    """Return scores in one row, of their own floating type."""
    values = to_numpy(as_array(scores)).reshape(-1)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"scores must be numbers. Got {values.dtype}.")
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    if len(values) and np.isnan(values.max()):
        missing = np.isnan(values)
        raise ValueError(
            f"scores must be numbers or infinity. Got NaN for {missing.sum()} of {len(values)} inputs, "
            f"first at input {missing.argmax()}. Leave these inputs out or see why they have no score."
        )
    return values


def _check_positive(positive: Any, shape: tuple[int, ...]) -> np.ndarray | bool:
    """Return which inputs are positives, in one row, or one bool for all."""
    if isinstance(positive, bool | np.bool_):
        return bool(positive)
    values = to_numpy(as_array(positive))
    if values.shape != shape:
        raise ValueError(
            f"positive must be one bool, or have the shape of the scores, {tuple(shape)}. Got {values.shape}."
        )
    if values.dtype != bool and (values.dtype.kind not in "fiu" or ((values != 0) & (values != 1)).any()):
        raise ValueError(
            f"positive must be True (or 1) for what should be found, else False (or 0). Got {values.dtype} "
            "with other values. For wrong predictions compare them with labels: predicted != labels."
        )
    return values.reshape(-1).astype(bool, copy=False)


def _check_labels(clusters: Any, shape: tuple[int, ...]) -> Any:
    """Return one label, or labels in one row."""
    if np.ndim(clusters) == 0:
        if not isinstance(clusters, str | int | np.integer | np.str_) or clusters == "":
            raise ValueError(f"clusters must be texts or integers. Got {clusters!r}.")
        return clusters
    labels = np.asarray(clusters) if isinstance(clusters, list | tuple) else to_numpy(as_array(clusters))
    if labels.shape != shape:
        raise ValueError(f"clusters must have the shape of the scores, {tuple(shape)}. Got {labels.shape}.")
    if labels.dtype.kind not in "iuU":
        raise ValueError(f"clusters must be texts or integers. Got {labels.dtype}.")
    return labels.reshape(-1)
