"""Compiled loops for the steps of chains, with Gaussian noise drawn several times as fast as in PyTorch."""

from __future__ import annotations

# numba, not Python, calls these functions.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math

import numpy as np
from numba import njit

from demur.kernels.compiling import COMPILED, cached
from demur.kernels.exp_log import log
from demur.posteriors.dropout.compiled_masks import GOLDEN, mix

_PAIRS_PER_BLOCK = 512
"""Pairs of numbers drawn at a time: what they are made of stays in the first-level cache."""

BLOCK_SIZE = 2 * _PAIRS_PER_BLOCK
"""Numbers in these pairs."""

_HIGH_SHIFT, _LOW_MASK = np.uint64(33), np.uint64(0x7FFFFFFF)
_HALF, _ONE, _MINUS_TWO = map(np.float32, (0.5, 1.0, -2.0))
_UNIT = np.float32(2.0**-31)
# The step of an angle with 29 bits over a quarter turn centred at 0, and half of that quarter.
_QUARTER_UNIT, _EIGHTH_TURN = np.float32(2.0**-30 * math.pi), np.float32(math.pi / 4)
# Taylor series; the next terms are below the last digit at an eighth of a turn.
_SINE = tuple(map(np.float32, (-1 / 6, 1 / 120, -1 / 5040)))
_COSINE = tuple(map(np.float32, (-1 / 2, 1 / 24, -1 / 720, 1 / 40320)))


@njit(**COMPILED)
def _allocate():
    """Allocate the scratch memory and the output of ``_draw_noise``."""
    return (
        np.empty(_PAIRS_PER_BLOCK, np.int32),
        np.empty(_PAIRS_PER_BLOCK, np.int32),
        np.empty(BLOCK_SIZE, np.float32),
    )


@njit(**COMPILED)
def _find_start(start, first):
    """Return the state of the generator at the beginning of the block that starts with number ``first``."""
    return start + np.uint64(first // BLOCK_SIZE * _PAIRS_PER_BLOCK) * GOLDEN


@njit(**COMPILED)
def _draw_noise(at, scale, room, numbers):
    """Draw Gaussian noise by the method of Box and Muller (1958); return the state of the generator after it.

    Where fewer numbers are wanted than ``_PAIRS_PER_BLOCK``, they are the first numbers of as many pairs.

    A pair takes one number of SplitMix64: 31 bits for its distance from 0, which reaches 6.6 standard
    deviations, and 31 bits for its direction.
    """
    upper, lower, noise = room
    pairs = min(_PAIRS_PER_BLOCK, numbers)
    for k in range(pairs):
        at += GOLDEN
        bits = mix(at)
        upper[k] = np.int32(bits >> _HIGH_SHIFT)
        lower[k] = np.int32(bits & _LOW_MASK)
    for k in range(pairs):
        far = scale * np.sqrt(_MINUS_TWO * log((np.float32(upper[k]) + _HALF) * _UNIT))
        angle = (np.float32(lower[k] >> 2) + _HALF) * _QUARTER_UNIT - _EIGHTH_TURN
        square = angle * angle
        sine = (((_SINE[2] * square + _SINE[1]) * square + _SINE[0]) * square + _ONE) * angle
        cosine = ((_COSINE[3] * square + _COSINE[2]) * square + _COSINE[1]) * square + _COSINE[0]
        cosine = cosine * square + _ONE
        # Two more bits choose among the four quarters.
        cosine = -cosine if lower[k] & 2 else cosine
        noise[k] = far * (sine if lower[k] & 1 else cosine)
        noise[_PAIRS_PER_BLOCK + k] = far * (cosine if lower[k] & 1 else sine)
    return at


@cached
def langevin_step(value, forces, factors, step, deviation, start, first, last):
    """Take the step of ``sgld.langevin_step``, in one pass, for numbers ``first`` to before ``last``."""
    own, at, kind = _allocate(), _find_start(start, first), value.dtype.type
    own[2][:] = np.float32(0.0)
    gradient, values, centre = forces
    by, then, also = kind(factors[0] * step), kind(factors[1] * step), kind(factors[2] * step)
    for begin in range(first, last, BLOCK_SIZE):
        if deviation > 0.0:
            at = _draw_noise(at, np.float32(deviation), own, last - begin)
        part = slice(begin, min(begin + BLOCK_SIZE, last))
        v, one, two, three = value[part], gradient[part], values[part], centre[part]
        for k in range(v.size):
            v[k] += (by * one[k] + then * two[k] + also * three[k]) + kind(own[2][k])


@cached
def baoa_step(value, momentum, forces, factors, time, kept, deviation, start, first, last):
    """Take the step of ``sghmc.baoa_step``, in one pass, for numbers ``first`` to before ``last``."""
    own, at, kind = _allocate(), _find_start(start, first), value.dtype.type
    own[2][:] = np.float32(0.0)
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
