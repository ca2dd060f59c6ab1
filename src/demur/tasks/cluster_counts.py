"""Counts of each cluster in wide bins: what intervals over draws of whole clusters are found from.

An eighth of an octave is fine enough for how a figure varies; how large it is comes from narrower bins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from demur.tasks.clusters import Clusters
from demur.tasks.estimate import Estimate, IntervalOptions, generator, percentile, resampling_progress
from demur.tasks.score_bins import BINS, find_bins

_WIDTH = 8  # bits by which these bins are wider: an eighth of an octave of float32
_WIDE = BINS >> _WIDTH
_FEW_RUNS = 64  # inputs of one cluster in a row, on average, from which runs are counted one by one

Sparse = tuple[np.ndarray, np.ndarray]
"""Wide bins with inputs, in order, and their negatives and positives (bins, 2)."""


class ClusterCounts:
    """Counts by cluster, as sparse as the clusters' scores are few."""

    def __init__(self) -> None:
        self.found: dict[Hashable, Sparse] = {}

    def add(self, labels: Any, scores: np.ndarray, positive: np.ndarray | bool) -> None:
        """Count scores of a cluster, or of the clusters that labels name, one per score."""
        wide = find_bins(scores) >> _WIDTH
        kinds = wide * 2 + positive
        if np.ndim(labels) == 0:
            self._add_one(_as_key(labels), kinds)
            return
        labels = np.asarray(labels)
        starts = np.append(0, np.flatnonzero(labels[1:] != labels[:-1]) + 1)
        if len(starts) * _FEW_RUNS > len(labels):
            order = np.argsort(labels, kind="stable")
            labels, kinds = labels[order], kinds[order]
            starts = np.append(0, np.flatnonzero(labels[1:] != labels[:-1]) + 1)
        for begin, end in zip(starts, [*starts[1:], len(labels)], strict=True):
            self._add_one(_as_key(labels[begin]), kinds[begin:end])

    def _add_one(self, key: Hashable, kinds: np.ndarray) -> None:
        table = np.bincount(kinds, minlength=2 * _WIDE).reshape(_WIDE, 2)
        own = np.flatnonzero(table.any(axis=1))
        self._merge_one(key, (own.astype(np.int16), table[own]))

    def _merge_one(self, key: Hashable, more: Sparse) -> None:
        if key not in self.found:
            other = next(iter(self.found), key)
            if type(other) is not type(key):
                raise ValueError(f"clusters must be texts, or integers. Got {other!r} and {key!r}.")
            self.found[key] = more
            return
        bins, counts = self.found[key]
        both = np.union1d(bins, more[0])
        merged = np.zeros((len(both), 2), np.int64)
        for own, values in ((bins, counts), more):
            merged[np.searchsorted(both, own)] += values
        self.found[key] = both, merged

    def merge(self, other: ClusterCounts) -> None:
        """Add another's counts, in place."""
        for key, counts in other.found.items():
            self._merge_one(key, counts)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return arrays to save."""
        bins = [each for each, _ in self.found.values()]
        return {
            "labels": np.array(list(self.found)),
            "sizes": np.array([len(each) for each in bins], np.int64),
            "wide_bins": np.concatenate([np.empty(0, np.int16), *bins]),
            "wide_counts": np.concatenate([np.empty((0, 2), np.int64), *(c for _, c in self.found.values())]),
        }

    @classmethod
    def from_arrays(cls, content: dict[str, np.ndarray]) -> ClusterCounts:
        """Return what ``to_arrays`` gave; anything else is a ValueError."""
        labels, sizes, bins, counts = (
            content[each] for each in ("labels", "sizes", "wide_bins", "wide_counts")
        )
        if sizes.shape != labels.shape or counts.shape != (len(bins), 2) or sizes.sum() != len(bins):
            raise ValueError("clusters of other sizes")
        if len(bins) and not (bins.min() >= 0 and bins.max() < _WIDE and counts.min() >= 0):
            raise ValueError("counts of clusters that are none")
        found, ends = cls(), np.cumsum(sizes)
        for label, begin, end in zip(labels.tolist(), ends - sizes, ends, strict=True):
            found.found[label] = bins[begin:end], counts[begin:end]
        return found

    def sum(self) -> int:
        """Return how many inputs were counted."""
        return sum(int(counts.sum()) for _, counts in self.found.values())

    def tabulate(self) -> ClusterTable:
        """Return all counts as one table."""
        every = np.unique(np.concatenate([bins for bins, _ in self.found.values()]))[::-1]
        table = np.zeros((len(self.found), len(every), 2))
        for row, (bins, counts) in zip(table, self.found.values(), strict=True):
            row[len(every) - 1 - np.searchsorted(every[::-1], bins)] = counts
        return ClusterTable(table)


class ClusterTable:
    """Negatives and positives (clusters, bins, 2) from the highest bin on, to be resampled."""

    def __init__(self, table: np.ndarray) -> None:
        has = table.any(axis=1)  # (clusters, 2): of which kinds a cluster has inputs
        codes, kinds = np.nonzero(has)
        self.positive = kinds == 1
        self.clusters = Clusters(codes, len(table))
        self.rows = table[codes, :, kinds]
        self.total = self._count(np.ones((1, len(codes))))

    def _count(self, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positives and negatives, (rows, bins), of clusters that are taken so often."""
        positive, negative = (taken[:, kind] @ self.rows[kind] for kind in (self.positive, ~self.positive))
        return np.rint(positive).astype(np.int64), np.rint(negative).astype(np.int64)

    def enclose(
        self,
        figure: Callable[[np.ndarray, np.ndarray], float],
        limits: tuple[float, float],
        options: IntervalOptions,
        *,
        stratified: bool,
        both: bool,
    ) -> tuple[Estimate, Estimate]:
        """Return the limits of a figure, each with a percentile interval over draws of clusters.

        `stratified`: clusters of the two kinds are drawn apart, unless one has both. `both`: draws that lack
        a kind are left out. What wide bins blur is the figure, which is known; not by how much it varies.
        """
        rng, replicates = generator(options.seed), []
        chunk = max(1, 4_000_000 // self.rows.size)
        with resampling_progress(options.resamples, self.rows.size) as progress:
            for begin in range(0, options.resamples, chunk):
                rows = min(chunk, options.resamples - begin)
                taken = self.clusters.draw(rng, rows, self.positive if stratified else None)
                for positive, negative in zip(*self._count(taken.astype(float)), strict=True):
                    if not both or (positive.any() and negative.any()):
                        replicates.append(figure(positive, negative))
                progress(begin + rows)
        shifts = np.array(replicates) - figure(*(each[0] for each in self.total))
        freedom = self.clusters.number - 1
        low, high = (percentile(end, end + shifts, options.confidence, freedom) for end in limits)
        return low, high


def _as_key(label: Any) -> Hashable:
    return label.item() if isinstance(label, np.generic) else label
