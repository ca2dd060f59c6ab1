"""Scores counted in bins of their bits: in the order of the scores, and the same for all data.

The bits of a float32, read as an integer, are in the order of the numbers; below 0 they count backwards. A
bin is all numbers that share the first ``BITS`` of them: a sign, eight of the exponent and eleven of the
fraction, so that it is about a two-thousandth of its numbers wide. Scores of other types are rounded to
float32 first, which keeps their order.
"""

from __future__ import annotations

import numpy as np

BITS = 20
BINS = 1 << BITS
_REST = 32 - BITS
_HALF = BINS // 2
_AT_ONCE = 1 << 18  # scores counted at a time


def find_bins(scores: np.ndarray) -> np.ndarray:
    """Return the bin of each score, from 0 for the lowest on; -0 and 0 are one number."""
    if scores.dtype != np.float32:
        with np.errstate(over="ignore"):  # beyond float32 is its infinity
            scores = scores.astype(np.float32)
    keys = (scores + np.float32(0)).view(np.int32)
    keys ^= (keys >> 31) & np.int32(0x7FFFFFFF)
    keys >>= _REST
    keys += _HALF
    return keys


def lowest_scores(bins: np.ndarray) -> np.ndarray:
    """Return the lowest float32 of each bin.

    Examples
    --------
    >>> lowest_scores(find_bins(np.array([-np.inf, -0.3, 0.0, 1.0, 1.0004, np.inf])))
    array([      -inf, -0.3000488,  0.       ,  1.       ,  1.       ,
                 inf], dtype=float32)
    """
    keys = (np.asarray(bins, np.int64) - _HALF) << _REST
    keys = keys.astype(np.int32)
    keys ^= (keys >> 31) & np.int32(0x7FFFFFFF)
    found = keys.view(np.float32)
    return np.where(np.isnan(found), np.float32(-np.inf), found)  # the bin of -inf begins below it


def add_to_bins(table: np.ndarray, scores: np.ndarray, positive: np.ndarray | bool) -> None:
    """Count scores, and which of them are positives, in a table (bins, 2) of negatives and positives."""
    flat = table.reshape(-1)
    for begin in range(0, len(scores), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        places = find_bins(scores[part])
        places *= 2
        places += positive if isinstance(positive, bool) else positive[part]
        first = int(places.min())
        counts = np.bincount(places - first)
        flat[first : first + len(counts)] += counts


def find_used(table: np.ndarray) -> np.ndarray:
    """Return the bins of a table that have scores, from the lowest on."""
    return np.flatnonzero(table[:, 0] | table[:, 1])
