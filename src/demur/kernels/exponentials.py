"""Exponentials and logarithms of sixteen numbers at a time."""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from demur.kernels import arithmetic
from demur.kernels.lanes import DOUBLE, FUSED, LANES, SINGLE, WORDS, everywhere, register

FARTHEST = 87.0  # exponents are brought within that: beyond, float32 has no exponential
MAGIC = 1.5 * 2.0**23  # adding it rounds to an integer and leaves that in the low bits
# Minimax coefficients on |r| <= ln(2) / 2: of exp(r), 1 at 0 and good to 1e-7; of (exp(r) - 1 - r) / r**2.
EXPONENTIAL = (1.0, 0.999999706, 0.499991478, 0.166676381, 0.0418981596, 0.00829027207)
GROWTH = (0.5, 0.16666577, 0.041666555, 0.008363173, 0.0013926176)


@intrinsic
def exp(typing_context, numbers):
    """Return the exponentials of float32 lanes, to 2e-7; beyond +-87 those of +-87, of NaN that of -87."""

    def generate(context, builder, signature, arguments):
        power, rest = powers_of_two(builder, arguments[0])
        found = builder.bitcast(polynomial(builder, EXPONENTIAL, rest), WORDS)
        return builder.bitcast(builder.add(found, power), register(SINGLE))

    return SINGLE(SINGLE), generate


def growing(less: float) -> Any:
    """Return the exponential less 0 or 1, with more digits than ``exp`` has; beyond +-87 as there."""

    @intrinsic
    def grown(typing_context, numbers):
        def generate(context, builder, signature, arguments):
            vector = register(SINGLE)
            power, rest = powers_of_two(builder, arguments[0])
            one = everywhere(vector, 1.0)
            factor = builder.bitcast(builder.add(builder.bitcast(one, WORDS), power), vector)
            square = builder.fmul(rest, rest, flags=FUSED)
            growth = fused(builder, polynomial(builder, GROWTH, rest), square, rest)
            return fused(builder, factor, growth, builder.fsub(factor, everywhere(vector, less)))

        return SINGLE(SINGLE), generate

    return grown


full_exp, expm1 = growing(less=0.0), growing(less=1.0)


@intrinsic
def expm1_double(typing_context, numbers):
    """Return the exponential less 1 of float64 lanes, as ``arithmetic.expm1`` does, within +-708."""

    def generate(context, builder, signature, arguments):
        vector, words = register(DOUBLE), ir.VectorType(ir.IntType(64), LANES)
        rounding = everywhere(vector, arithmetic.ROUND)
        scaled = builder.fmul(arguments[0], everywhere(vector, arithmetic.LOG2_E))
        whole = builder.fadd(scaled, rounding)
        power = builder.bitcast(builder.shl(builder.bitcast(whole, words), everywhere(words, 52)), vector)
        rest = builder.fsub(scaled, builder.fsub(whole, rounding))
        square = builder.fmul(rest, rest)
        even, odd = (polynomial(builder, each, square) for each in (arithmetic.EVEN, arithmetic.ODD))
        growth = builder.fmul(fused(builder, odd, rest, even), rest)
        return fused(builder, power, growth, builder.fsub(power, everywhere(vector, 1.0)))

    return DOUBLE(DOUBLE), generate


def powers_of_two(builder, exponent):
    """Return n, shifted to where a float32 has its exponent, and r with ``exp(exponent) = 2**n exp(r)``."""
    vector = register(SINGLE)
    for sign, bound in ((">", -FARTHEST), ("<", FARTHEST)):
        bounds = everywhere(vector, bound)
        exponent = builder.select(builder.fcmp_ordered(sign, exponent, bounds), exponent, bounds)
    magic = everywhere(vector, MAGIC)
    whole = fused(builder, exponent, everywhere(vector, arithmetic.LOG2_E), magic)
    power = builder.shl(builder.bitcast(whole, WORDS), everywhere(WORDS, 23))
    count = builder.fsub(whole, magic)
    return power, fused(builder, count, everywhere(vector, -arithmetic.LN_2), exponent)


def polynomial(builder, coefficients: Sequence[float], at):
    """Return a polynomial, the constant first, in all lanes."""
    found = everywhere(at.type, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        found = fused(builder, found, at, everywhere(at.type, coefficient))
    return found


def fused(builder, left, right, more):
    """Return ``left right + more``."""
    return builder.fadd(builder.fmul(left, right, flags=FUSED), more, flags=FUSED)


@intrinsic
def log(typing_context, numbers):
    """Return the logarithms of positive lanes, to some units of the last digit of 1."""
    return numbers(numbers), lambda context, builder, signature, arguments: logarithm(builder, arguments[0])


@intrinsic
def log1p(typing_context, numbers):
    """Return ``log(1 + number)``, exact relative to itself, for numbers above -1."""

    def generate(context, builder, signature, arguments):
        number = arguments[0]
        one = everywhere(number.type, 1.0)
        plus_one = builder.fadd(number, one)
        # What rounding 1 + number threw away, to first order.
        lost = builder.fdiv(builder.fsub(number, builder.fsub(plus_one, one)), plus_one)
        return logarithm(builder, plus_one, lost)

    return numbers(numbers), generate


def logarithm(builder, number, lost=None):
    """Return the logarithm; what is ``lost`` is added to its smallest part."""
    vector = number.type
    is_single = vector.element == ir.FloatType()
    exponent, mantissa = (parts_of_single if is_single else parts_of_double)(builder, number)
    f = builder.fsub(mantissa, everywhere(vector, 1.0))
    s = builder.fdiv(f, builder.fadd(f, everywhere(vector, 2.0)))
    t = builder.fmul(s, s)
    tail = polynomial(builder, arithmetic.SINGLE_LOG_TAIL if is_single else arithmetic.LOG_TAIL, t)
    lost = everywhere(vector, 0.0) if lost is None else lost
    odd = fused(builder, builder.fmul(s, t), tail, lost)
    ln_2 = everywhere(vector, arithmetic.LN_2)
    return fused(builder, exponent, ln_2, builder.fadd(builder.fadd(s, s), odd))


def parts_of_single(builder, number):
    """Return n and m with ``number = 2**n m`` and m in [sqrt(1/2), sqrt(2))."""
    middle = everywhere(WORDS, arithmetic.SINGLE_HALF_SQRT)
    shifted = builder.sub(builder.bitcast(number, WORDS), middle)
    exponent = builder.sitofp(builder.ashr(shifted, everywhere(WORDS, 23)), number.type)
    mantissa = builder.add(builder.and_(shifted, everywhere(WORDS, 0x007FFFFF)), middle)
    return exponent, builder.bitcast(mantissa, number.type)


def parts_of_double(builder, number):
    """Do the same in float64; an integer becomes a float as in ``arithmetic.log1p``."""
    words = ir.VectorType(ir.IntType(64), LANES)
    middle = everywhere(words, arithmetic.HALF_SQRT_OFFSET)
    shifted = builder.sub(builder.bitcast(number, words), middle)
    biased = builder.lshr(builder.add(shifted, everywhere(words, 0x3FF0000000000000)), everywhere(words, 52))
    whole = builder.bitcast(builder.or_(biased, everywhere(words, arithmetic.EXPONENT_BITS)), number.type)
    exponent = builder.fsub(whole, everywhere(number.type, arithmetic.EXPONENT_BIAS))
    mantissa = builder.add(builder.and_(shifted, everywhere(words, arithmetic.MANTISSA_MASK)), middle)
    return exponent, builder.bitcast(mantissa, number.type)
