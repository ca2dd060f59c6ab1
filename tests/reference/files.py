"""Everything that files of predictions hold, and the words with which they are refused."""

import os

import numpy as np
import pytest

from demur.stores import StoreError, open_predictions

MEMBERS, INPUTS, CLASSES = 5, 37, 4


def read(names, **options) -> np.ndarray:
    """Everything that files hold, through tiles of 10 inputs and chunks of 2 members."""
    if isinstance(names, str | os.PathLike):
        names = [names]
    with open_predictions(names, **options) as predictions:
        rows = []
        for start in range(0, predictions.inputs, 10):
            chunks = list(predictions.chunks(slice(start, start + 10), 2))
            assert [m for chunk in chunks for m in chunk.members] == list(range(predictions.members))
            rows.append(np.concatenate([chunk.values for chunk in chunks]))
        return np.concatenate(rows, axis=1)


def refused(names, *words: str, **options) -> str:
    """The message with which files are refused: one line that has all of `words` in it."""
    with pytest.raises(StoreError) as caught:
        read(names, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message
