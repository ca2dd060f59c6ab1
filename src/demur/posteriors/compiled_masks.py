"""The masks of ``masks.draw``, several times as fast."""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels.arithmetic import COMPILED, INLINED, cached
from demur.posteriors import masks

GOLDEN = masks.GOLDEN
ONE, TOP = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
NOTHING, LEAST = np.uint64(0), np.uint64(1)

mixed = njit(**INLINED)(masks.mixed)


@njit(**INLINED)
def start_of(seed, member, place):
    """Return where the sequence of a member and an input starts; as ``Masks.starts``."""
    of_input = mixed(seed + (np.uint64(place) + LEAST) * GOLDEN)
    return mixed(of_input + (np.uint64(member) + LEAST) * GOLDEN)


@njit(**COMPILED)
def workspace(features):
    """Allocate what ``draw_bytes`` needs."""
    words = -(-features // 8)
    return np.empty(words, np.uint64), np.empty(words, np.int64)


@njit(**COMPILED)
def draw_bytes(start, whole, room):
    """Draw the bytes of the sequence that starts there; return how many words may have one at ``whole``."""
    drawn, tied = room
    every = ONE * np.uint64(whole)
    at, ties = start, 0
    for word in range(drawn.size):
        at += GOLDEN
        bits = mixed(at)
        drawn[word] = bits
        # A byte that was `whole` is 0 now; this may tell of words that have none, never of fewer.
        apart = bits ^ every
        tied[ties] = word
        ties += (apart - ONE) & ~apart & TOP != NOTHING
    return ties


@njit(**COMPILED)
def drop_further(start, whole, below, room, ties, out):
    """Write 0 where a byte at ``whole`` takes a further number, which drops the feature."""
    drawn, tied = room
    single = drawn.view(np.uint8)
    for tie in range(ties):
        for feature in range(8 * tied[tie], min(out.size, 8 * tied[tie] + 8)):
            if single[feature] == whole:
                further = mixed(start + np.uint64(drawn.size + 1 + feature) * GOLDEN)
                if further < below:
                    out[feature] = 0


@cached
def draw(starts, whole, below, kept):
    """Write 1 where a feature is kept and 0 where not; ``kept`` is (sequences, features)."""
    own = workspace(kept.shape[1])
    single = own[0].view(np.uint8)
    for row in range(kept.shape[0]):
        ties = draw_bytes(starts[row], whole, own)
        for feature in range(kept.shape[1]):
            kept[row, feature] = single[feature] >= whole
        drop_further(starts[row], whole, below, own, ties, kept[row])


@cached
def apply(seed, members, places, whole, below, values, out):
    """Write values where a feature is kept and 0 where not; ``out`` is (members, inputs, features)."""
    own = workspace(values.shape[1])
    single, nothing = own[0].view(np.uint8), values.dtype.type(0)
    for m in range(members.size):
        for b in range(places.size):
            start = start_of(seed, members[m], places[b])
            ties = draw_bytes(start, whole, own)
            for feature in range(values.shape[1]):
                out[m, b, feature] = values[b, feature] if single[feature] >= whole else nothing
            drop_further(start, whole, below, own, ties, out[m, b])
