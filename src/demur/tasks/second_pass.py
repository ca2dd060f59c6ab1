"""Exact figures from a second look at the scores of bins that have both kinds, in bounded memory.

A figure of bins whose scores count as tied, plus what it changes by where the levels of some bins are known,
one window of bins after the other, is the figure of all levels. For a window, all above it are one level and
all below it another, which changes nothing about the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from demur.tasks.figure_limits import FIGURES, Counts
from demur.tasks.levels import count_levels
from demur.tasks.score_bins import BINS, find_bins, find_used, lowest_scores

Chunks = Callable[[], Iterable[tuple[np.ndarray, np.ndarray | bool]]]
"""What gives all scores again, in parts, each with its positives."""

Around = tuple[tuple[int, int], tuple[int, int]]
"""How many positives, and negatives, are above and below what is looked at."""

_BYTES = 96  # that a score needs while its window is sorted, and figures of its levels are computed
_FIXED_BYTES = 48 << 20  # for tables that do not grow with the scores
_PIECE = 1 << 17  # scores of a part that are looked at together, however many it has
_SAMPLE = 1 << 12  # scores by which a bin that is too large is cut


@dataclass(frozen=True)
class _Levels:
    """Distinct scores, the highest first, and positives and negatives that have them."""

    scores: np.ndarray
    counts: Counts

    def merge(self, scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> _Levels:
        """Return levels with more of them: distinct scores, the highest first, and their counts."""
        if not len(scores):
            return self
        if not len(self.scores):
            return _Levels(scores, (positive, negative))
        every = np.concatenate([self.scores, scores])
        order = np.argsort(every, kind="stable")[::-1]
        ranked = every[order]
        starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        more = zip(self.counts, (positive, negative), strict=True)
        sums = [np.add.reduceat(np.concatenate(both)[order], starts) for both in more]
        return _Levels(ranked[starts], (sums[0], sums[1]))


def _no_levels() -> _Levels:
    return _Levels(np.empty(0), (np.empty(0, np.int64), np.empty(0, np.int64)))


def find_corrections(table: np.ndarray, read: Chunks, memory: int) -> dict[str, float]:
    """Return by how much each figure differs from that of bins whose scores are tied.

    Parameters
    ----------
    table : (bins, 2) int
        Negatives and positives per bin.
    read
        Returns an iterator of all scores, the same each time it is called.
    memory
        Bytes to use, besides what `read` takes itself; more scores take more passes.
    """
    budget = max((memory - _FIXED_BYTES) // _BYTES, 2 * _SAMPLE)
    bins = find_used(table)[::-1]  # from the highest on
    positive, negative = table[bins, 1], table[bins, 0]
    open_bins = _find_open(positive, negative)
    found = dict.fromkeys(FIGURES, 0.0)
    for begin, end in _plan_windows(np.where(open_bins, positive + negative, 0), budget):
        inside, around = slice(begin, end), _sum_around((positive, negative), begin, end)
        coarse = positive[inside], negative[inside]
        wanted = np.zeros(BINS, bool)
        wanted[bins[inside][open_bins[inside]]] = True
        number = int(positive[inside][open_bins[inside]].sum() + negative[inside][open_bins[inside]].sum())
        if number > budget:  # of one bin
            fine = _add_parts(found, _cut(read, wanted, number, budget), read, wanted, budget, around, coarse)
        else:
            known = begin + np.flatnonzero(~open_bins[inside])
            lowest = lowest_scores(bins[known]).astype(float)
            fine = _collect(read, wanted, number).merge(lowest, positive[known], negative[known]).counts
        _check_counts(fine, coarse)
        _add_changes(found, around, coarse, fine)
        del fine  # before there are others
    return found


def _add_parts(
    found: dict[str, float],
    ends: list[tuple[float, float]],
    read: Chunks,
    wanted: np.ndarray,
    budget: int,
    around: Around,
    whole: Counts,
) -> Counts:
    """Add what each figure changes within the parts of one bin; return the counts of the parts.

    The levels of one part are in memory at a time: what is above it came before, the rest is below.
    """
    pieces: list[tuple[int, ...]] = []
    left = [int(each.sum()) for each in whole]
    for low, high in ends:
        fine = _collect(read, wanted, budget, low, high).counts
        own = tuple(int(each.sum()) for each in fine)
        left = [max(number - taken, 0) for number, taken in zip(left, own, strict=True)]
        above = [sum(piece[kind] for piece in pieces) for kind in (0, 1)]
        beside = [(outer[0] + above[kind], outer[1] + left[kind]) for kind, outer in enumerate(around)]
        _add_changes(found, (beside[0], beside[1]), (np.array(own[:1]), np.array(own[1:])), fine)
        pieces.append(own)
    counts = np.array(pieces, np.int64)
    return counts[:, 0], counts[:, 1]


def _sum_around(counts: Counts, begin: int, end: int, outside: Around = ((0, 0), (0, 0))) -> Around:
    """Return how many positives, and negatives, are above and below some of the levels."""
    found = [
        (above + int(each[:begin].sum()), below + int(each[end:].sum()))
        for (above, below), each in zip(outside, counts, strict=True)
    ]
    return found[0], found[1]


def _find_open(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return the bins whose levels matter: those of both kinds, and positives that precision depends on."""
    above = np.cumsum(negative) - negative
    return (positive > 0) & (negative > 0) | (positive > 1) & (above > 0)


def _plan_windows(sizes: np.ndarray, budget: int) -> Iterator[tuple[int, int]]:
    """Return ranges of bins that have open ones, of so many scores each, or of one bin that has more."""
    places = np.flatnonzero(sizes)
    ends = np.cumsum(sizes[places])
    first = 0
    while first < len(places):
        before = ends[first - 1] if first else 0
        after = max(int(np.searchsorted(ends, before + budget, side="right")), first + 1)
        yield int(places[first]), int(places[after - 1]) + 1
        first = after


def _take(
    read: Chunks, wanted: np.ndarray, low: float = -np.inf, high: float = np.inf
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return the scores of wanted bins between two ends, both included, in parts, with their positives."""
    for scores, positive in read():
        for begin in range(0, len(scores), _PIECE):
            piece = slice(begin, begin + _PIECE)
            chosen = wanted[find_bins(scores[piece])]
            values = scores[piece][chosen].astype(float) + 0.0  # -0 is 0
            marked = np.full(len(values), positive) if isinstance(positive, bool) else positive[piece][chosen]
            inside = (values >= low) & (values <= high)
            yield values[inside], marked[inside]


def _collect(
    read: Chunks, wanted: np.ndarray, budget: int, low: float = -np.inf, high: float = np.inf
) -> _Levels:
    """Return the levels of the scores of wanted bins; ties take no memory."""
    found, size = _no_levels(), 0
    scores, marks = np.empty(max(budget, _PIECE)), np.empty(max(budget, _PIECE), bool)
    for values, marked in _take(read, wanted, low, high):
        if size + len(values) > len(scores):
            found, size = _join(found, scores[:size], marks[:size]), 0
        scores[size : size + len(values)], marks[size : size + len(values)] = values, marked
        size += len(values)
    return _join(found, scores[:size], marks[:size]) if size else found


def _join(found: _Levels, scores: np.ndarray, positive: np.ndarray) -> _Levels:
    more = count_levels(scores, positive)
    return found.merge(more.scores, more.positive, more.negative)


def _cut(read: Chunks, wanted: np.ndarray, number: int, budget: int) -> list[tuple[float, float]]:
    """Return ranges of scores, the highest first, that have no more than about the budget.

    They are cut at quantiles of every so manieth score, between which ties may be many and levels are few.
    """
    step, seen, sample = max(1, number // _SAMPLE), 0, []
    for values, _ in _take(read, wanted):
        sample.append(values[-seen % step :: step])
        seen += len(values)
    ranked = np.sort(np.concatenate(sample))
    count = -(-2 * number // budget)
    edges = np.unique(ranked[np.linspace(0, len(ranked) - 1, count + 1).astype(int)[1:-1]])
    edges = edges[edges < np.inf]
    lows = np.append(-np.inf, np.nextafter(edges, np.inf))
    highs = np.append(edges, np.inf)
    return list(zip(lows[::-1].tolist(), highs[::-1].tolist(), strict=True))


def _check_counts(fine: Counts, coarse: Counts) -> None:
    """Raise unless a second pass brought as many scores as the first."""
    came, expected = (tuple(int(each.sum()) for each in counts) for counts in (fine, coarse))
    if came != expected:
        raise ValueError(
            "refine must be given the scores that were counted, all of them, each time that it calls read. "
            f"Got {came[0]} positives and {came[1]} negatives of {expected[0]} and {expected[1]}."
        )


def _add_changes(found: dict[str, float], around: Around, coarse: Counts, fine: Counts) -> None:
    """Add what each figure changes by where the counts of bins become those of levels."""
    ends = [
        tuple(
            np.concatenate([[above], own, [below]], dtype=np.int64, casting="unsafe")
            for (above, below), own in zip(around, counts, strict=True)
        )
        for counts in (fine, coarse)
    ]
    for name, figure in FIGURES.items():
        if name != "excess":  # what the best area has more than `auc`, which is the same for all orders
            found[name] += figure(*ends[0]) - figure(*ends[1])
    found["excess"] = -found["auc"]
