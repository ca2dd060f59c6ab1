"""Dropout masks that belong to a seed, a member and an input: who else is in the batch does not matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WORDS = 4
"""Numbers of 64 bits that one step of the generator's counter makes."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Masks:
    """Which features members drop, for inputs by their places in the data set.

    Each input has a stream of its own, Philox (Salmon et al., 2011) with the seed and the input's place as
    its key; member k's part of the stream begins at a fixed count. A feature takes one random byte, which is
    enough to tell all but one value in 256 apart from the rate; that value takes 64 bits more (SplitMix64,
    Steele et al., 2014, from a number of the stream), so that the rate is exact to 2**-72.

    Parameters
    ----------
    rate
        Probability with which a feature is dropped, above 0 and below 1.
    seed
        What fixes the masks.
    features
        How many features there are.
    """

    def __init__(self, rate: float, seed: int, features: int) -> None:
        self.features = features
        self._key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
        # A byte below `whole` drops, one above it keeps; at `whole` a further draw decides.
        whole, part = divmod(rate * 256, 1)
        self._whole = np.uint8(whole)
        self._below = np.uint64(part * 2.0**64)
        # A whole number of steps a member: one word for the ties, then a byte for each feature.
        steps = -(-(1 + -(-features // 8)) // WORDS)
        self._words = steps * WORDS
        self._steps = steps
        self._generator = np.random.Philox(key=np.zeros(2, np.uint64))
        self._state = self._generator.state
        self._rooms: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def kept(self, members: range, places: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return which features are kept, as 0 and 1 of type uint8, (members, inputs, features).

        The memory is that of the call before, since mapping new memory takes longer than drawing.
        """
        words, kept, tied = self._room(len(members), len(places))
        for i, place in enumerate(places):
            words[:, i] = self._drawn(members, int(place))
        drawn = words[..., 1:].view(np.uint8)[..., : self.features]
        if self._below:
            np.greater(drawn, self._whole, out=kept)
            self._break_ties(kept, np.equal(drawn, self._whole, out=tied), words[..., 0])
        else:
            np.greater_equal(drawn, self._whole, out=kept)
        return kept.view(np.uint8)

    def _room(self, members: int, inputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._rooms is None or self._rooms[0].shape[:2] != (members, inputs):
            shape = (members, inputs, self.features)
            words = np.empty((members, inputs, self._words), np.uint64)
            self._rooms = words, np.empty(shape, bool), np.empty(shape, bool)
        return self._rooms

    def _drawn(self, members: range, place: int) -> np.ndarray:
        """Return the words of one input for a run of members, (members, words)."""
        state = self._state
        state["state"]["key"][:] = self._key, place
        state["state"]["counter"][:] = members.start * self._steps, 0, 0, 0
        state["buffer_pos"] = WORDS  # nothing is left from before
        self._generator.state = state
        return self._generator.random_raw(len(members) * self._words).reshape(len(members), -1)

    def _break_ties(self, kept: np.ndarray, tied: np.ndarray, seeds: np.ndarray) -> None:
        """Decide the features whose byte says nothing, by further bits of their own."""
        # Places in flat arrays: NumPy finds them ten times as fast as places along three axes.
        ties = np.flatnonzero(tied)
        row, feature = np.divmod(ties, self.features)
        kept.reshape(-1)[ties] = mixed(seeds.reshape(-1)[row], feature) >= self._below


def mixed(seeds: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the ``index``-th numbers of SplitMix64 sequences."""
    z = seeds + (index.astype(np.uint64) + np.uint64(1)) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
