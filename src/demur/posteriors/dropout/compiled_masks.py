"""Compiled loops that draw and apply the masks of ``masks.Masks``, several times as fast as NumPy."""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from demur.kernels.compiling import COMPILED, INLINED, cached
from demur.posteriors.dropout import masks

GOLDEN = masks.GOLDEN
_ONE_IN_EACH_BYTE, _LOW_SEVEN_BITS = np.uint64(0x0101010101010101), np.uint64(0x7F7F7F7F7F7F7F7F)
_ZERO, _ONE = np.uint64(0), np.uint64(1)

_FEATURES_TOGETHER = 32
"""Features processed at a time, the last group padded: the bytes in one register of the processor."""

mix = njit(**INLINED)(masks.mix)


@intrinsic
def _count_trailing_zeros(typing_context, bits):
    """Count the zeros below the lowest one of a uint64 that is not 0."""
    return types.int64(types.uint64), lambda context, builder, signature, arguments: builder.cttz(
        arguments[0], ir.Constant(ir.IntType(1), 1)
    )


@njit(**INLINED)
def start_sequence(seed, member, place):
    """Return the start of the sequence of a member and an input, as ``Masks.find_starts`` does."""
    of_input = mix(seed + (np.uint64(place) + _ONE) * GOLDEN)
    return mix(of_input + (np.uint64(member) + _ONE) * GOLDEN)


@njit(**INLINED)
def pad_features(features):
    """Return the number of features after padding."""
    return -(-features // _FEATURES_TOGETHER) * _FEATURES_TOGETHER


@njit(**COMPILED)
def allocate(features):
    """Allocate the scratch memory of ``apply_mask``: one number for eight features."""
    words = pad_features(features) // 8
    return np.empty(words, np.uint64), np.empty(words, np.uint64)


@njit(**COMPILED)
def _draw_bytes(start, whole, room):
    """Draw one byte per feature from the sequence at ``start``, and mark the bytes equal to ``whole``."""
    drawn, tied = room
    every = _ONE_IN_EACH_BYTE * np.uint64(whole)
    for word in range(drawn.size):
        drawn[word] = mix(start + np.uint64(word + 1) * GOLDEN)
    for word in range(drawn.size):
        apart = drawn[word] ^ every
        tied[word] = ~(((apart & _LOW_SEVEN_BITS) + _LOW_SEVEN_BITS) | apart | _LOW_SEVEN_BITS)


@njit(**COMPILED)
def _choose(drawn, whole, values, out):
    """Write the values whose byte is at least ``whole``, and 0 for the others."""
    nothing = out.dtype.type(0)
    for feature in range(out.size):
        out[feature] = values[feature] if drawn[feature] >= whole else nothing


@njit(**COMPILED)
def _drop_further(start, below, room, features, out):
    """Write 0 where a byte equals ``whole`` and a further number drops the feature."""
    _, tied = room
    first = -(-features // 8) + 1
    for word in range(tied.size):
        bits = tied[word]
        while bits != _ZERO:
            feature = 8 * word + _count_trailing_zeros(bits) // 8
            bits &= bits - _ONE
            if feature < features:
                further = mix(start + np.uint64(first + feature) * GOLDEN)
                out[feature] = out[feature] if further >= below else 0


@njit(**COMPILED)
def apply_mask(start, whole, below, room, values, features, out):
    """Write the features, with 0 for those that the sequence at ``start`` drops."""
    _draw_bytes(start, whole, room)
    _choose(room[0].view(np.uint8), whole, values, out)
    _drop_further(start, below, room, features, out)


@cached
def draw_masks(starts, whole, below, kept):
    """Write 1 where a feature is kept and 0 where it is dropped; ``kept`` is (sequences, features)."""
    features = kept.shape[1]
    own, ones = allocate(features), np.ones(features, np.uint8)
    for row in range(kept.shape[0]):
        apply_mask(starts[row], whole, below, own, ones, features, kept[row])


@cached
def apply_masks(seed, members, places, whole, below, values, out, first, last):
    """Write features, 0 where they are dropped, for the inputs from ``first`` to before ``last``.

    ``out`` is (members, inputs, features).
    """
    features = values.shape[1]
    own = allocate(features)
    for m in range(members.size):
        for b in range(first, last):
            start = start_sequence(seed, members[m], places[b])
            apply_mask(start, whole, below, own, values[b], features, out[m, b])
