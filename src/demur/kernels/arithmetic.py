"""Exponential and logarithm that LLVM can vectorise, for the fused kernel.

numba calls the C library one number at a time for ``np.exp`` and ``np.log1p``; the polynomials here are
inlined into the caller's loop and run on whole vector registers.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

LOG2_E = 1.0 / math.log(2.0)
LN_2 = math.log(2.0)
# Adding 1.5 * 2**52 rounds to an integer and leaves it in the low bits; 1023 is the exponent's bias.
ROUND = 1.5 * 2.0**52 + 1023.0
EXPONENT_BITS = 0x4330000000000000  # the bits of 2**52: an integer below 2**52 put into them is a double
EXPONENT_BIAS = 2.0**52 + 1023.0
MANTISSA_MASK = 0x000FFFFFFFFFFFFF
HALF_SQRT_OFFSET = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
# Minimax coefficients of (2**r - 1) / r (Chebyshev fits in 50 digits), even and odd powers apart for a short
# chain. The first one is exactly ln 2, so that the relative error falls with r.
EVEN = (
    LN_2, 0.0555041086648216, 0.0013333558146416933, 1.5252733829837666e-05, 1.01780624449026e-07,
    4.454960786822665e-10,
)  # fmt: skip
ODD = (
    0.24022650695910072, 0.009618129107628479, 0.00015403530393375914, 1.3215486802904698e-06,
    7.054899955905795e-09, 2.5725081510549964e-11,
)  # fmt: skip
# Minimax coefficients of (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2.
LOG_TAIL = (
    0.666666666666667, 0.3999999999989931, 0.2857142862606338, 0.22222211120449298, 0.1818289017031397,
    0.15331686868638428, 0.14616878919029822,
)  # fmt: skip

# The same in float32.
SINGLE_LN_2 = np.float32(LN_2)
SINGLE_HALF_SQRT = 0x3F3504F3
TWO = np.float32(2.0)
SINGLE_LOG_TAIL = tuple(map(np.float32, (0.66666685, 0.3998878, 0.2957995)))

COMPILED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
INLINED: dict[str, Any] = {"forceinline": True, "error_model": "numpy", "fastmath": {"contract"}}


def cached(function: Callable[..., Any]) -> Any:
    """Compile an entry of the kernel and keep it on disk, or compile it anew where nothing can be written."""
    try:
        compiled: Any = njit(cache=True, **COMPILED)(function)
    except RuntimeError:  # numba: no locator available
        return njit(**COMPILED)(function)
    keep_one_at_a_time(compiled._cache)
    return compiled


def named(name: str) -> Callable[..., Any]:
    """Compile a function made by another one, of which there are several, under a name of its own.

    numba calls code by the name of its function and a number that begins anew in each process. Of two
    functions of one name, compiled in two processes and kept on disk, one would be called for the other.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__qualname__}.{name}"
        return njit(**COMPILED)(function)

    return compiled


def keep_one_at_a_time(cache: Any) -> None:
    """Let one process at a time save a function or load it.

    numba writes an index, then a file that the index names. Two processes that save at the same moment can
    leave the code of one under the types of the other, and whoever loads that crashes.
    """

    def alone(work: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_work(*arguments: Any) -> Any:
            with locked(Path(cache.cache_path) / "demur.lock"):
                return work(*arguments)

        return wait_and_work

    cache.save_overload, cache.load_overload = alone(cache.save_overload), alone(cache.load_overload)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that no other process has; where there is none, or no place for it, go on without."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # not on Windows

            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
        yield


@intrinsic
def to_bits(typing_context, number):
    """Read the bits of a float64 as an int64."""
    return types.int64(types.float64), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.IntType(64)
    )


@intrinsic
def from_bits(typing_context, bits):
    """Read the bits of an int64 as a float64."""
    return types.float64(types.int64), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.DoubleType()
    )


@intrinsic
def trailing_zeros(typing_context, bits):
    """Count the zeros below the lowest one of a uint64 that is not 0."""
    return types.int64(types.uint64), lambda context, builder, signature, arguments: builder.cttz(
        arguments[0], ir.Constant(ir.IntType(1), 1)
    )


@intrinsic
def exponent_bits(typing_context, bits):
    """Shift the 52 bits of the fraction out, as unsigned: the signed shift does not vectorise everywhere."""
    return types.int64(types.int64), lambda context, builder, signature, arguments: builder.lshr(
        arguments[0], ir.Constant(ir.IntType(64), 52)
    )


IN_ANY_ORDER = ("reassoc", "contract", "nsz")  # for single additions: elsewhere it would undo ROUND


@intrinsic
def add_in_any_order(typing_context, left, right):
    """Add, and let the compiler reorder this one reduction."""
    return types.float64(
        types.float64, types.float64
    ), lambda context, builder, signature, arguments: builder.fadd(*arguments, flags=IN_ANY_ORDER)


def expm1_fraction(remainder, like):
    """Return ``2**r - 1`` for ``|r| <= 1/2``, as exactly as the type of ``like`` asks."""
    raise AssertionError("compiled code only")


@overload(expm1_fraction, jit_options=INLINED)
def _(remainder, like):
    # As EVEN and ODD; float32 logits get 1e-11 at |r| = 1/2 and 2e-16 where members agree.
    if like == types.float32:

        def short(remainder, like):
            t = remainder * remainder
            even = ((1.5297324653722335e-05 * t + 0.0013333502383930348) * t + 0.05550410883910665) * t + LN_2
            odd = (
                (1.3246387779935336e-06 * t + 0.00015403491753192072) * t + 0.009618129119705152
            ) * t + 0.24022650695910072
            return (odd * remainder + even) * remainder

        return short

    def full(remainder, like):
        t = remainder * remainder
        even = EVEN[5] * t + EVEN[4]
        even = even * t + EVEN[3]
        even = even * t + EVEN[2]
        even = even * t + EVEN[1]
        even = even * t + EVEN[0]
        odd = ODD[5] * t + ODD[4]
        odd = odd * t + ODD[3]
        odd = odd * t + ODD[2]
        odd = odd * t + ODD[1]
        odd = odd * t + ODD[0]
        return (odd * remainder + even) * remainder

    return full


@njit(**INLINED)
def split(exponent):
    """Return ``2**n`` and ``r`` with ``exp(exponent) = 2**(n + r)`` and ``|r| <= 1/2``."""
    scaled = exponent * LOG2_E
    rounded = scaled + ROUND
    return from_bits(to_bits(rounded) << 52), scaled - (rounded - ROUND)


@njit(**INLINED)
def expm1(exponent, like):
    """Return ``exp(exponent) - 1``, exact relative to itself and 0 at 0, for exponents within +-708."""
    power, remainder = split(exponent)
    return power * expm1_fraction(remainder, like) + (power - 1.0)


@intrinsic
def exponent_single(typing_context, number):
    """Return n, as float32, of a positive float32 ``2**n m`` with ``m`` in [sqrt(1/2), sqrt(2))."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(32)
        bits = builder.bitcast(arguments[0], word)
        shifted = builder.sub(bits, ir.Constant(word, SINGLE_HALF_SQRT))
        whole = builder.ashr(shifted, ir.Constant(word, 23))
        return builder.sitofp(whole, ir.FloatType())

    return types.float32(types.float32), generate


@intrinsic
def mantissa_minus_one(typing_context, number):
    """Return the mantissa of ``exponent_single`` less 1."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(32)
        bits = builder.bitcast(arguments[0], word)
        shifted = builder.sub(bits, ir.Constant(word, SINGLE_HALF_SQRT))
        fraction = builder.and_(shifted, ir.Constant(word, 0x007FFFFF))
        mantissa = builder.bitcast(builder.add(fraction, ir.Constant(word, SINGLE_HALF_SQRT)), ir.FloatType())
        return builder.fsub(mantissa, ir.Constant(ir.FloatType(), 1.0))

    return types.float32(types.float32), generate


@njit(**INLINED)
def exp(exponent):
    """Return ``exp(exponent)``, exact relative to itself, for exponents within +-708."""
    power, remainder = split(exponent)
    return power * expm1_fraction(remainder, exponent) + power


@njit(**INLINED)
def clip(exponent):
    """Bring an exponent within +-708; NaN stays."""
    raised = -708.0 if exponent < -708.0 else exponent
    return 708.0 if raised > 708.0 else raised


@njit(**INLINED)
def log1p(number):
    """Return ``log(1 + number)``, exact relative to itself; a large negative number at and below -1."""
    plus_one = 1.0 + number
    positive = plus_one if plus_one > 1e-300 else 1e-300
    bits = to_bits(positive)
    # Split into 2**exponent * mantissa with the mantissa in [sqrt(1/2), sqrt(2)).
    shifted = bits - HALF_SQRT_OFFSET + 0x3FF0000000000000
    exponent = from_bits(exponent_bits(shifted) | EXPONENT_BITS) - EXPONENT_BIAS
    mantissa = from_bits((shifted & MANTISSA_MASK) + HALF_SQRT_OFFSET)
    f = mantissa - 1.0
    s = f / (2.0 + f)
    t = s * s
    p = LOG_TAIL[6]
    p = p * t + LOG_TAIL[5]
    p = p * t + LOG_TAIL[4]
    p = p * t + LOG_TAIL[3]
    p = p * t + LOG_TAIL[2]
    p = p * t + LOG_TAIL[1]
    p = p * t + LOG_TAIL[0]
    # What rounding 1 + number threw away, to first order.
    lost = (number - (plus_one - 1.0)) / positive
    return exponent * LN_2 + (2.0 * s + (s * t) * p + lost)


@njit(**INLINED)
def log_single(number):
    """Return ``log(number)`` in float32 of a positive number, to some units of the last digit of 1."""
    f = mantissa_minus_one(number)
    s = f / (f + TWO)
    t = s * s
    tail = (SINGLE_LOG_TAIL[2] * t + SINGLE_LOG_TAIL[1]) * t + SINGLE_LOG_TAIL[0]
    return exponent_single(number) * SINGLE_LN_2 + ((s + s) + (s * t) * tail)


def call_prefetch(builder, pointer, locality=3):
    """Write a call that brings the memory behind a pointer, which may be anywhere, into the cache."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    builder.call(fetch, [builder.bitcast(pointer, byte), *(ir.Constant(word, n) for n in (0, locality, 1))])


def prefetching(locality: int) -> Any:
    """Return what brings the number at a place of an array, which need not be in it, into a cache."""

    @intrinsic
    def prefetch(typing_context, flat, place):
        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            call_prefetch(builder, builder.gep(data, [arguments[1]]), locality)
            return context.get_dummy_value()

        return types.void(flat, types.intp), generate

    return prefetch


prefetch = prefetching(3)  # into the first cache
prefetch_near = prefetching(2)  # into the second one, so as not to drive out of the first what is in use


@intrinsic
def count_on(typing_context, counter, count):
    """Add to the first number of an array, at once for all threads; return what it was."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, arguments[1], "monotonic")

    return types.int64(counter, types.int64), generate


@njit(**INLINED)
def claim(chosen, claimed, most):
    """Return the next of the chosen inputs, which no other thread gets; none if all are claimed."""
    begin = count_on(claimed, most)
    return chosen[begin : begin + most]
