"""The steps of chains by NumPy, with the Gaussian noise that compiled loops draw: the same to the last bit.

NumPy rounds after every operation. So do the compiled loops, whose compiler may not fuse a product with a sum
here: a chain of a given seed is the same wherever its steps are taken, and from one step to the next they may
be taken elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from demur.posteriors.dropout.masks import GOLDEN, mix

PAIRS_PER_BLOCK = 512
"""Pairs of numbers drawn at a time: what they are made of stays in the first-level cache."""

BLOCK_SIZE = 2 * PAIRS_PER_BLOCK
"""Numbers in these pairs."""

_NUMBERS_AT_ONCE = 16 * BLOCK_SIZE
"""Numbers that NumPy works on at a time, so that they stay in the second-level cache."""

HIGH_SHIFT, LOW_MASK = np.uint64(33), np.uint64(0x7FFFFFFF)
_HALF, _ONE, _TWO, _MINUS_TWO = map(np.float32, (0.5, 1.0, 2.0, -2.0))
_UNIT = np.float32(2.0**-31)
# The step of an angle with 29 bits over a quarter turn centred at 0, and half of that quarter.
_QUARTER_UNIT, _EIGHTH_TURN = np.float32(2.0**-30 * math.pi), np.float32(math.pi / 4)
# Taylor series; the next terms are below the last digit at an eighth of a turn.
_SINE = tuple(map(np.float32, (-1 / 6, 1 / 120, -1 / 5040)))
_COSINE = tuple(map(np.float32, (-1 / 2, 1 / 24, -1 / 720, 1 / 40320)))
# Minimax coefficients of (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2, and the bits of sqrt(1/2).
_LOG_TAIL = tuple(map(np.float32, (0.66666685, 0.3998878, 0.2957995)))
_LN_2, _HALF_ROOT = np.float32(math.log(2.0)), np.int32(0x3F3504F3)
_FRACTION_BITS, _FRACTION = np.int32(23), np.int32(0x7FFFFF)


def log_of(number: Any) -> Any:
    """Return the logarithm of positive normal float32 numbers; for arrays, and for compiled loops."""
    # number = 2**n m, with m in [sqrt(1/2), sqrt(2)).
    shifted = np.int32(np.float32(number).view(np.int32) - _HALF_ROOT)
    n = np.float32(shifted >> _FRACTION_BITS)
    f = np.int32((shifted & _FRACTION) + _HALF_ROOT).view(np.float32) - _ONE
    s = f / (f + _TWO)
    t = s * s
    tail = (_LOG_TAIL[2] * t + _LOG_TAIL[1]) * t + _LOG_TAIL[0]
    return n * _LN_2 + ((s + s) + (s * t) * tail)


def make_pair(upper: Any, lower: Any, scale: Any, where: Any) -> tuple[Any, Any]:
    """Return two independent Gaussian numbers, by the method of Box and Muller (1958).

    For arrays, and for compiled loops.

    Parameters
    ----------
    upper, lower
        31 random bits each, as int32: for the distance from 0, which reaches 6.6 standard deviations, and for
        the direction.
    scale
        The standard deviation, float32.
    where
        ``np.where``, or what stands for it in a compiled loop.
    """
    far = scale * np.sqrt(_MINUS_TWO * log_of((np.float32(upper) + _HALF) * _UNIT))
    angle = (np.float32(lower >> np.int32(2)) + _HALF) * _QUARTER_UNIT - _EIGHTH_TURN
    square = angle * angle
    sine = (((_SINE[2] * square + _SINE[1]) * square + _SINE[0]) * square + _ONE) * angle
    cosine = ((_COSINE[3] * square + _COSINE[2]) * square + _COSINE[1]) * square + _COSINE[0]
    cosine = cosine * square + _ONE
    # Two more bits choose among the four quarters.
    cosine = where((lower & np.int32(2)) != 0, -cosine, cosine)
    turned = (lower & np.int32(1)) != 0
    return far * where(turned, sine, cosine), far * where(turned, cosine, sine)


def _draw_noise(start: np.uint64, deviation: float, first: int, size: int) -> np.ndarray:
    """Return ``size`` numbers of noise, float32, from number ``first`` on, where a block begins.

    Where fewer numbers are left than a block has pairs, they are the first numbers of as many pairs.
    """
    pairs = size if size < PAIRS_PER_BLOCK else -(-size // BLOCK_SIZE) * PAIRS_PER_BLOCK
    begin = np.uint64(first // BLOCK_SIZE * PAIRS_PER_BLOCK + 1)
    bits = mix(start + np.arange(begin, begin + np.uint64(pairs), dtype=np.uint64) * GOLDEN)
    upper, lower = (bits >> HIGH_SHIFT).astype(np.int32), (bits & LOW_MASK).astype(np.int32)
    both = make_pair(upper, lower, np.float32(deviation), np.where)
    if size < PAIRS_PER_BLOCK:
        return both[0]
    return np.stack([each.reshape(-1, PAIRS_PER_BLOCK) for each in both], axis=1).reshape(-1)[:size]


def _push(forces: tuple[Any, ...], factors: tuple[float, ...], step: float, part: slice) -> np.ndarray:
    """Return a step along the forces."""
    gradient, values, centre = (each[part] for each in forces)
    by, then, also = (gradient.dtype.type(factor * step) for factor in factors)
    return by * gradient + then * values + also * centre


def _split(first: int, last: int) -> list[slice]:
    return [slice(k, min(k + _NUMBERS_AT_ONCE, last)) for k in range(first, last, _NUMBERS_AT_ONCE)]


def langevin_step(
    value: np.ndarray, forces: Any, factors: Any, step: float, deviation: float, start: Any, first: int,
    last: int,
) -> None:  # fmt: skip
    """Take the step of ``sgld.langevin_step`` for numbers ``first`` to before ``last``."""
    with np.errstate(over="ignore", invalid="ignore"):  # a chain that diverges is reported by its stepper
        for part in _split(first, last):
            push = _push(forces, factors, step, part)
            if deviation > 0.0:
                push += _draw_noise(start, deviation, part.start, part.stop - part.start)
            value[part] += push


def baoa_step(
    value: np.ndarray, momentum: np.ndarray, forces: Any, factors: Any, time: float, kept: float,
    deviation: float, start: Any, first: int, last: int,
) -> None:  # fmt: skip
    """Take the step of ``sghmc.baoa_step`` for numbers ``first`` to before ``last``."""
    half, stays = value.dtype.type(time / 2), value.dtype.type(kept)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _split(first, last):
            pushed = momentum[part] + _push(forces, factors, time, part)
            rest = stays * pushed
            if deviation > 0.0:
                rest += _draw_noise(start, deviation, part.start, part.stop - part.start)
            value[part] += half * (pushed + rest)
            momentum[part] = rest
