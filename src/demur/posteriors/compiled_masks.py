"""The masks of ``masks.draw``, several times as fast."""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels.arithmetic import INLINED, cached
from demur.posteriors import masks

GOLDEN = masks.GOLDEN
ONE, TOP = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
NOTHING = np.uint64(0)

mixed = njit(**INLINED)(masks.mixed)


@cached
def draw(starts, whole, below, kept):
    """Write 1 where a feature is kept and 0 where not; ``kept`` is (sequences, features)."""
    rows, features = kept.shape
    words = -(-features // 8)
    drawn, tied = np.empty(words, np.uint64), np.empty(words, np.int64)
    single = drawn.view(np.uint8)
    every = ONE * np.uint64(whole)
    for row in range(rows):
        at = starts[row]
        ties = 0
        for word in range(words):
            at += GOLDEN
            bits = mixed(at)
            drawn[word] = bits
            # A byte that was `whole` is 0 now; this may tell of words that have none, never of fewer.
            apart = bits ^ every
            tied[ties] = word
            ties += (apart - ONE) & ~apart & TOP != NOTHING
        for feature in range(features):
            kept[row, feature] = single[feature] >= whole
        for tie in range(ties):
            for feature in range(8 * tied[tie], min(features, 8 * tied[tie] + 8)):
                if single[feature] == whole:
                    further = mixed(starts[row] + np.uint64(words + 1 + feature) * GOLDEN)
                    kept[row, feature] = further >= below
