"""Dropout masks that depend on the seed, the member and the input alone, not on the rest of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from demur.kernels import compiling
from demur.posteriors.compiled_calls import (
    APPLY_MASKS,
    DRAW_MASKS,
    MULTIPLY_MASKED,
    find_loop,
    run_in_threads,
)
from demur.posteriors.heads.plain_products import multiply_in_lanes, split_rows

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_MULTIPLIER_1, _MULTIPLIER_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

_PLAIN_FEATURE, _PLAIN_PRODUCT = 4e-9, 1e-9
"""Seconds that NumPy takes to draw a feature's mask, and to multiply and add it for a class."""


def mix(z: Any) -> Any:
    """Return the number that SplitMix64 makes of its state; for arrays, and for compiled loops."""
    z = (z ^ (z >> _SHIFT_1)) * _MULTIPLIER_1
    z = (z ^ (z >> _SHIFT_2)) * _MULTIPLIER_2
    return z ^ (z >> _SHIFT_3)


class Masks:
    """Which features each member drops, for inputs given by their numbers in the data set.

    Each pair of input and member has its own sequence of random numbers: SplitMix64 (Steele et al., 2014),
    started from a mix of the seed, the input's number and the member. A feature takes one random byte. For
    255 of its 256 values, the byte alone decides whether it is below the rate; for the other, a further 64
    bits do, so that the rate is exact to 2**-72.

    Parameters
    ----------
    rate
        Probability of dropping a feature, above 0 and below 1.
    seed
        The seed of the masks.
    features
        The number of features.
    """

    def __init__(self, rate: float, seed: int, features: int) -> None:
        self.features = features
        self._seed = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
        # A byte below `whole` drops, one above it keeps; at `whole` a further draw decides.
        whole, part = divmod(rate * 256, 1)
        self._whole, self._below = np.uint8(whole), np.uint64(part * 2.0**64)
        self._room = np.empty((0, 0, features), np.uint8)

    def draw_kept(self, members: range, places: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return 1 where a feature is kept and 0 where it is dropped, as uint8, (members, inputs, features).

        The memory is reused in the next call, since allocating it takes longer than drawing.
        """
        if self._room.shape[:2] != (len(members), len(places)):
            self._room = np.empty((len(members), len(places), self.features), np.uint8)
        starts = self.find_starts(np.asarray(members), np.asarray(places))
        loop = compiling.find_loop(DRAW_MASKS, self._room.size * _PLAIN_FEATURE, repeated=True)
        if loop is not None:
            loop(starts.reshape(-1), self._whole, self._below, self._room.reshape(-1, self.features))
        else:
            _draw_plain(starts, self._whole, self._below, self._room)
        return self._room

    def apply(
        self, members: range, places: Sequence[int] | np.ndarray, values: np.ndarray, out: np.ndarray
    ) -> None:
        """Write the features, with 0 for those that are dropped.

        ``values`` are (inputs, features), ``out`` is (members, inputs, features).
        """
        numbers, places = np.asarray(members), np.asarray(places)
        loop = find_loop(APPLY_MASKS, out.dtype, out.size * _PLAIN_FEATURE)
        if loop is not None:
            selection = self._seed, numbers, places, self._whole, self._below
            run_in_threads(loop, (*selection, np.ascontiguousarray(values), out), len(values), out.size)
        else:
            for starts, own in zip(self.find_starts(numbers, places), out, strict=True):
                own[:] = self._drop(starts, values)

    def write_logits(
        self,
        members: range,
        places: Sequence[int] | np.ndarray,
        values: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """Write the logits of a linear layer, with 0 for the features that are dropped.

        ``values`` are (inputs, features), ``out`` is (members, inputs, classes).
        """
        numbers, places = np.asarray(members), np.asarray(places)
        values, weight = np.ascontiguousarray(values), np.ascontiguousarray(weight)
        seconds = len(members) * values.size * (_PLAIN_FEATURE + len(weight) * _PLAIN_PRODUCT)
        if find_loop(MULTIPLY_MASKED, out.dtype, seconds) is not None:
            from demur.posteriors.heads import compiled_products

            compiled_products.multiply_masked(
                self._seed, numbers, places, self._whole, self._below, values, weight, bias, out
            )
            return
        starts, inputs = self.find_starts(numbers, places).reshape(-1), np.arange(len(values))
        inputs, logits = np.tile(inputs, len(members)), out.reshape(-1, len(weight))
        for rows in split_rows(len(starts), len(weight)):
            masked = self._drop(starts[rows], values[inputs[rows]])
            logits[rows] = multiply_in_lanes(masked, weight, bias)

    def _drop(self, starts: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return values with 0 for those that the sequences at ``starts`` drop, (*starts, features)."""
        kept = np.empty((*starts.shape, self.features), np.uint8)
        _draw_plain(starts, self._whole, self._below, kept)
        return np.where(kept.view(bool), values, values.dtype.type(0))

    def find_starts(self, members: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the start of the sequence of each member and input, (members, inputs)."""
        of_inputs = mix(self._seed + (places.astype(np.uint64) + np.uint64(1)) * GOLDEN)
        return mix(of_inputs + (members[:, None].astype(np.uint64) + np.uint64(1)) * GOLDEN)


def _draw_plain(starts: np.ndarray, whole: np.uint8, below: np.uint64, kept: np.ndarray) -> None:
    """Write 1 where a feature is kept and 0 where not, by NumPy; ``kept`` is (*starts, features)."""
    features = kept.shape[-1]
    words = -(-features // 8)
    counts = np.arange(1, words + 1, dtype=np.uint64)
    drawn = mix(starts[..., None] + counts * GOLDEN).view(np.uint8)[..., :features]
    np.greater_equal(drawn, whole, out=kept.view(bool))
    # Indices into flat arrays, which NumPy finds ten times as fast as indices along three axes.
    ties = np.flatnonzero(drawn == whole)
    row, feature = np.divmod(ties, features)
    further = mix(starts.reshape(-1)[row] + (feature.astype(np.uint64) + np.uint64(words + 1)) * GOLDEN)
    kept.reshape(-1)[ties] = further >= below
