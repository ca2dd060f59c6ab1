"""Compiled loops for the steps of chains, with Gaussian noise drawn several times as fast as in PyTorch.

Steps and noise are those of ``plain_steps``, to the last bit.
"""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit
from numba.extending import register_jitable

from demur.kernels.compiling import AS_WRITTEN, cached_as_written
from demur.kernels.vectors import where
from demur.posteriors.chains import plain_steps
from demur.posteriors.chains.plain_steps import BLOCK_SIZE, HIGH_SHIFT, LOW_MASK, PAIRS_PER_BLOCK
from demur.posteriors.dropout import masks
from demur.posteriors.dropout.masks import GOLDEN

register_jitable(plain_steps.log_of)
_make_pair = njit(**AS_WRITTEN)(plain_steps.make_pair)
_mix = njit(**AS_WRITTEN)(masks.mix)


@njit(**AS_WRITTEN)
def _allocate():
    """Allocate the scratch memory and the output of ``_draw_noise``."""
    return (
        np.empty(PAIRS_PER_BLOCK, np.int32),
        np.empty(PAIRS_PER_BLOCK, np.int32),
        np.zeros(BLOCK_SIZE, np.float32),
    )


@njit(**AS_WRITTEN)
def _find_start(start, first):
    """Return the state of the generator at the beginning of the block that starts with number ``first``."""
    return start + np.uint64(first // BLOCK_SIZE * PAIRS_PER_BLOCK) * GOLDEN


@njit(**AS_WRITTEN)
def _draw_noise(at, scale, room, numbers):
    """Draw Gaussian noise; return the state of the generator after it.

    Where fewer numbers are wanted than ``PAIRS_PER_BLOCK``, they are the first numbers of as many pairs.
    """
    upper, lower, noise = room
    pairs = min(PAIRS_PER_BLOCK, numbers)
    for k in range(pairs):
        at += GOLDEN
        bits = _mix(at)
        upper[k] = np.int32(bits >> HIGH_SHIFT)
        lower[k] = np.int32(bits & LOW_MASK)
    for k in range(pairs):
        noise[k], noise[PAIRS_PER_BLOCK + k] = _make_pair(upper[k], lower[k], scale, where)
    return at


@cached_as_written
def langevin_step(value, forces, factors, step, deviation, start, first, last):
    """Take the step of ``sgld.langevin_step``, in one pass, for numbers ``first`` to before ``last``."""
    own, at, kind = _allocate(), _find_start(start, first), value.dtype.type
    gradient, values, centre = forces
    by, then, also = kind(factors[0] * step), kind(factors[1] * step), kind(factors[2] * step)
    for begin in range(first, last, BLOCK_SIZE):
        if deviation > 0.0:
            at = _draw_noise(at, np.float32(deviation), own, last - begin)
        part = slice(begin, min(begin + BLOCK_SIZE, last))
        v, one, two, three = value[part], gradient[part], values[part], centre[part]
        for k in range(v.size):
            v[k] += (by * one[k] + then * two[k] + also * three[k]) + kind(own[2][k])


@cached_as_written
def baoa_step(value, momentum, forces, factors, time, kept, deviation, start, first, last):
    """Take the step of ``sghmc.baoa_step``, in one pass, for numbers ``first`` to before ``last``."""
    own, at, kind = _allocate(), _find_start(start, first), value.dtype.type
    gradient, values, centre = forces
    by, then, also = kind(factors[0] * time), kind(factors[1] * time), kind(factors[2] * time)
    half, stays = kind(time / 2), kind(kept)
    pushed = np.empty(BLOCK_SIZE, value.dtype)
    for begin in range(first, last, BLOCK_SIZE):
        if deviation > 0.0:
            at = _draw_noise(at, np.float32(deviation), own, last - begin)
        part = slice(begin, min(begin + BLOCK_SIZE, last))
        v, m, one, two, three = value[part], momentum[part], gradient[part], values[part], centre[part]
        # Two loops: with one, the compiler would have to check too many arrays for overlap.
        for k in range(v.size):
            pushed[k] = m[k] + (by * one[k] + then * two[k] + also * three[k])
        for k in range(v.size):
            rest = stays * pushed[k] + kind(own[2][k])
            v[k] += half * (pushed[k] + rest)
            m[k] = rest
