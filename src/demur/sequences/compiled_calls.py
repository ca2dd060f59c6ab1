"""The compiled loop of sequences, for a few members, whose logits may lie apart: nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demur.kernels import compiling
from demur.kernels.threads import WORTH_A_THREAD, run_together

FEW = "demur.sequences.compiled_steps.over_classes"

LOOPS = (FEW,)

_MOST, _LEAST_CLASSES = 4, 64
_SMALLEST = 1 << 15  # numbers from which calling a compiled loop pays
_PLAIN = 12e-9  # seconds that plain functions take for a number


def takes_few(members: Sequence[np.ndarray]) -> bool:
    """Tell whether ``summarise_few`` takes the logits of members, each (rows, classes)."""
    first = members[0]
    rows, classes = first.shape
    form = first.shape, first.strides, np.float32
    # Aligned, since the loop finds every member by its distance from the first one, in whole numbers.
    alike = all((each.shape, each.strides, each.dtype) == form and each.flags.aligned for each in members)
    fits = 2 <= len(members) <= _MOST and classes >= _LEAST_CLASSES and rows > 0 and alike
    size = len(members) * rows * classes
    if (
        not fits
        or size < _SMALLEST
        or first.strides[1] != first.itemsize
        or first.strides[0] % first.itemsize
    ):
        return False
    return compiling.find_loop(FEW, size * _PLAIN) is not None


def summarise_few(
    members: Sequence[np.ndarray], chosen: np.ndarray, weights: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return entropy, K, I and M of chosen rows, (4, rows), their normalisers, and rows left for others.

    Normalisers are the logs of sums of exponentials, (members, rows). Only numbers of chosen rows are set,
    and of rows that are left none counts.

    Parameters
    ----------
    weights, prior
        Of members as predictors, and as the truth, (members, rows).
    """
    flat, loop = members[0][0].view(), compiling.load_loop(FEW)
    flat.flags.writeable = False
    begins = [each.__array_interface__["data"][0] for each in members]
    origins = np.array([(each - begins[0]) // flat.itemsize for each in begins], np.int64)
    (rows, classes), claimed = members[0].shape, np.zeros(1, np.int64)
    found, normalisers = np.zeros((4, rows)), np.zeros((len(members), rows))
    with np.errstate(invalid="ignore"):  # other rows may have no weight at all
        weights, prior = (np.ascontiguousarray(each / each.sum(axis=0)) for each in (weights, prior))
    given = flat, origins, members[0].strides[0] // flat.itemsize, classes, chosen, weights, prior
    most = chosen.size * len(members) * classes // WORTH_A_THREAD
    left = run_together(lambda: loop(*given, claimed, found, normalisers), most)
    return found, normalisers, np.sort(np.concatenate(left))


def compile_loop(name: str) -> None:
    """Compile a loop of ``LOOPS``, or load it from disk, by calling it on next to nothing."""
    rows, weights = np.zeros((3, 16), np.float32), np.ones((2, 3))
    summarise_few([rows, rows], np.arange(3), weights, weights)
