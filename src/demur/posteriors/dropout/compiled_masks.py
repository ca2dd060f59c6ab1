"""The masks of ``masks.draw``, several times as fast."""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels.compiling import COMPILED, INLINED, cached
from demur.kernels.vectors import trailing_zeros
from demur.posteriors.dropout import masks

GOLDEN = masks.GOLDEN
ONE, _SEVEN = np.uint64(0x0101010101010101), np.uint64(0x7F7F7F7F7F7F7F7F)
_NOTHING, _LEAST = np.uint64(0), np.uint64(1)

_WIDE = 32
"""Features come in so many, the last ones filled up: the processor takes as many bytes at a time."""

mixed = njit(**INLINED)(masks.mixed)


@njit(**INLINED)
def start_of(seed, member, place):
    """Return where the sequence of a member and an input starts; as ``Masks.starts``."""
    of_input = mixed(seed + (np.uint64(place) + _LEAST) * GOLDEN)
    return mixed(of_input + (np.uint64(member) + _LEAST) * GOLDEN)


@njit(**INLINED)
def filled_up(features):
    """Return how many features there are with those that fill up the last ones."""
    return -(-features // _WIDE) * _WIDE


@njit(**COMPILED)
def workspace(features):
    """Allocate what ``keep`` needs: eight features a number."""
    words = filled_up(features) // 8
    return np.empty(words, np.uint64), np.empty(words, np.uint64)


@njit(**COMPILED)
def _draw_bytes(start, whole, room):
    """Draw a byte a feature, of the sequence that starts there, and mark those at ``whole`` by a bit."""
    drawn, tied = room
    every = ONE * np.uint64(whole)
    for word in range(drawn.size):
        drawn[word] = mixed(start + np.uint64(word + 1) * GOLDEN)
    for word in range(drawn.size):
        apart = drawn[word] ^ every
        tied[word] = ~(((apart & _SEVEN) + _SEVEN) | apart | _SEVEN)


@njit(**COMPILED)
def _choose(drawn, whole, values, out):
    """Write values whose byte is at least ``whole``, and 0 for the others."""
    nothing = out.dtype.type(0)
    for feature in range(out.size):
        out[feature] = values[feature] if drawn[feature] >= whole else nothing


@njit(**COMPILED)
def _drop_further(start, below, room, features, out):
    """Write 0 where a byte at ``whole`` takes a further number, which drops the feature."""
    _, tied = room
    first = -(-features // 8) + 1
    for word in range(tied.size):
        bits = tied[word]
        while bits != _NOTHING:
            feature = 8 * word + trailing_zeros(bits) // 8
            bits &= bits - _LEAST
            if feature < features:
                further = mixed(start + np.uint64(first + feature) * GOLDEN)
                out[feature] = out[feature] if further >= below else 0


@njit(**COMPILED)
def keep(start, whole, below, room, values, features, out):
    """Write values of features with 0 for those that are dropped, by the sequence that starts there."""
    _draw_bytes(start, whole, room)
    _choose(room[0].view(np.uint8), whole, values, out)
    _drop_further(start, below, room, features, out)


@cached
def draw(starts, whole, below, kept):
    """Write 1 where a feature is kept and 0 where not; ``kept`` is (sequences, features)."""
    features = kept.shape[1]
    own, ones = workspace(features), np.ones(features, np.uint8)
    for row in range(kept.shape[0]):
        keep(starts[row], whole, below, own, ones, features, kept[row])


@cached
def apply(seed, members, places, whole, below, values, out, first, last):
    """Write values where a feature is kept and 0 where not, of inputs from ``first`` to before ``last``.

    ``out`` is (members, inputs, features).
    """
    features = values.shape[1]
    own = workspace(features)
    for m in range(members.size):
        for b in range(first, last):
            start = start_of(seed, members[m], places[b])
            keep(start, whole, below, own, values[b], features, out[m, b])
