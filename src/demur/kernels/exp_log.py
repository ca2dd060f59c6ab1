"""Exponentials and logarithms, of single numbers and of sixteen at a time, in float32 and float64.

numba calls the C library one number at a time for ``np.exp`` and ``np.log1p``. The polynomials here are
straight code, which LLVM inlines into the caller's loop and runs on whole registers.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from demur.kernels.vectors import constant

_FUSED = ("contract",)
_LOG2_E, _LN_2 = 1.0 / math.log(2.0), math.log(2.0)


class _Format(NamedTuple):
    """What the functions need to know of float32 or float64."""

    bits: int
    fraction: int  # bits of the fraction
    bias: int  # of the exponent
    farthest: float  # exponents are brought within that: products with other numbers then stay finite
    half_root: int  # the bits of sqrt(1/2)
    smallest: float  # logarithms of anything below are those of that
    log_tail: Sequence[float]  # minimax coefficients of (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2


_SINGLE = _Format(32, 23, 127, 87.0, 0x3F3504F3, 1e-37, (0.66666685, 0.3998878, 0.2957995))
_DOUBLE = _Format(
    64, 52, 1023, 708.0, 0x3FE6A09E667F3BCD, 1e-300,
    (0.666666666666667, 0.3999999999989931, 0.2857142862606338, 0.22222211120449298, 0.1818289017031397,
     0.15331686868638428, 0.14616878919029822),
)  # fmt: skip
# Minimax coefficients, Chebyshev fits in 50 digits. In float32, on |r| <= ln(2) / 2: of exp(r), 1 at 0 and
# good to 1e-7; of (exp(r) - 1 - r) / r**2.
_EXPONENTIAL = (1.0, 0.999999706, 0.499991478, 0.166676381, 0.0418981596, 0.00829027207)
_GROWTH = (0.5, 0.16666577, 0.041666555, 0.008363173, 0.0013926176)
# In float64, of (2**r - 1) / r on |r| <= 1/2, even and odd powers apart for a short chain. The first one is
# exactly ln 2, so that the relative error falls with r.
_EVEN = (
    _LN_2, 0.0555041086648216, 0.0013333558146416933, 1.5252733829837666e-05, 1.01780624449026e-07,
    4.454960786822665e-10,
)  # fmt: skip
_ODD = (
    0.24022650695910072, 0.009618129107628479, 0.00015403530393375914, 1.3215486802904698e-06,
    7.054899955905795e-09, 2.5725081510549964e-11,
)  # fmt: skip


def _element(kind: Any) -> Any:
    """Return the type of one number of a vector, or a number's own."""
    return kind.element if isinstance(kind, ir.VectorType) else kind


def _format_of(kind: Any) -> _Format:
    return _SINGLE if _element(kind) == ir.FloatType() else _DOUBLE


def _words(kind: Any) -> Any:
    """Return the integers with as many bits."""
    word = ir.IntType(_format_of(kind).bits)
    return ir.VectorType(word, kind.count) if isinstance(kind, ir.VectorType) else word


def _fused(builder, left, right, more):
    """Return ``left right + more``."""
    return builder.fadd(builder.fmul(left, right, flags=_FUSED), more, flags=_FUSED)


def _polynomial(builder, coefficients: Sequence[float], at):
    """Return a polynomial, the constant first."""
    found = constant(at.type, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        found = _fused(builder, found, at, constant(at.type, coefficient))
    return found


def _split_exponent(builder, exponent):
    """Return n, shifted to where a number has its exponent, and r: ``exp(exponent)`` is ``2**n exp(r)``.

    In float64 r comes in units of ln 2. Exponents beyond the farthest count as that, NaN as the lowest.
    """
    kind, form = exponent.type, _format_of(exponent.type)
    for sign, bound in ((">", -form.farthest), ("<", form.farthest)):
        bounds = constant(kind, bound)
        exponent = builder.select(builder.fcmp_ordered(sign, exponent, bounds), exponent, bounds)
    # Adding 1.5 * 2**fraction rounds to an integer and leaves it in the low bits.
    magic = constant(kind, 1.5 * 2.0**form.fraction)
    shift = constant(_words(kind), form.fraction)
    if form is _SINGLE:
        whole = _fused(builder, exponent, constant(kind, _LOG2_E), magic)
        rest = _fused(builder, builder.fsub(whole, magic), constant(kind, -_LN_2), exponent)
    else:
        scaled = builder.fmul(exponent, constant(kind, _LOG2_E))
        whole = builder.fadd(scaled, magic)
        rest = builder.fsub(scaled, builder.fsub(whole, magic))
    return builder.shl(builder.bitcast(whole, _words(kind)), shift), rest


def _grow(builder, exponent):
    """Return ``2**n`` and ``exp(r) - 1``, whose product and the first make the exponential."""
    kind = exponent.type
    power, rest = _split_exponent(builder, exponent)
    one = builder.bitcast(constant(kind, 1.0), _words(kind))
    factor = builder.bitcast(builder.add(one, power), kind)
    square = builder.fmul(rest, rest, flags=_FUSED)
    if _format_of(kind) is _SINGLE:
        return factor, _fused(builder, _polynomial(builder, _GROWTH, rest), square, rest)
    even, odd = (_polynomial(builder, each, square) for each in (_EVEN, _ODD))
    return factor, builder.fmul(_fused(builder, odd, rest, even), rest)


@intrinsic
def exp(typing_context, numbers):
    """Return exponentials, exact relative to themselves; beyond +-87 (float64: +-708), those of that."""

    def generate(context, builder, signature, arguments):
        factor, growth = _grow(builder, arguments[0])
        return _fused(builder, factor, growth, factor)

    return numbers(numbers), generate


@intrinsic
def rough_exp(typing_context, numbers):
    """Return float32 exponentials to 2e-7, in fewer operations than ``exp``."""

    def generate(context, builder, signature, arguments):
        kind = arguments[0].type
        power, rest = _split_exponent(builder, arguments[0])
        found = builder.bitcast(_polynomial(builder, _EXPONENTIAL, rest), _words(kind))
        return builder.bitcast(builder.add(found, power), kind)

    return numbers(numbers), generate


@intrinsic
def expm1(typing_context, numbers):
    """Return the exponential less 1, exact relative to itself and 0 at 0; bounded as ``exp``."""

    def generate(context, builder, signature, arguments):
        factor, growth = _grow(builder, arguments[0])
        return _fused(builder, factor, growth, builder.fsub(factor, constant(factor.type, 1.0)))

    return numbers(numbers), generate


@intrinsic
def expm1_and_exp(typing_context, numbers):
    """Return both."""

    def generate(context, builder, signature, arguments):
        factor, growth = _grow(builder, arguments[0])
        less = _fused(builder, factor, growth, builder.fsub(factor, constant(factor.type, 1.0)))
        whole = _fused(builder, factor, growth, factor)
        return context.make_tuple(builder, signature.return_type, [less, whole])

    return types.UniTuple(numbers, 2)(numbers), generate


@intrinsic
def log(typing_context, numbers):
    """Return logarithms of positive normal numbers, to some units of the last digit of 1."""
    return numbers(numbers), lambda context, builder, signature, arguments: _logarithm(builder, arguments[0])


@intrinsic
def log1p(typing_context, numbers):
    """Return ``log(1 + number)``, exact relative to itself; a large negative number at and below -1."""

    def generate(context, builder, signature, arguments):
        number = arguments[0]
        one, least = constant(number.type, 1.0), constant(number.type, _format_of(number.type).smallest)
        plus_one = builder.fadd(number, one)
        positive = builder.select(builder.fcmp_ordered(">", plus_one, least), plus_one, least)
        # What rounding 1 + number threw away, to first order.
        lost = builder.fdiv(builder.fsub(number, builder.fsub(plus_one, one)), positive)
        return _logarithm(builder, positive, lost)

    return numbers(numbers), generate


def _logarithm(builder, number, lost=None):
    """Return the logarithm; what is ``lost`` is added to its smallest part."""
    kind, form = number.type, _format_of(number.type)
    exponent, mantissa = _split_number(builder, number)
    f = builder.fsub(mantissa, constant(kind, 1.0))
    s = builder.fdiv(f, builder.fadd(f, constant(kind, 2.0)))
    t = builder.fmul(s, s)
    tail = _polynomial(builder, form.log_tail, t)
    odd = _fused(builder, builder.fmul(s, t), tail, constant(kind, 0.0) if lost is None else lost)
    return _fused(builder, exponent, constant(kind, _LN_2), builder.fadd(builder.fadd(s, s), odd))


def _split_number(builder, number):
    """Return n and m with ``number = 2**n m`` and m in [sqrt(1/2), sqrt(2))."""
    kind, form, words = number.type, _format_of(number.type), _words(number.type)
    middle, shift = constant(words, form.half_root), constant(words, form.fraction)
    shifted = builder.sub(builder.bitcast(number, words), middle)
    mask = constant(words, (1 << form.fraction) - 1)
    mantissa = builder.bitcast(builder.add(builder.and_(shifted, mask), middle), kind)
    if form is _SINGLE:
        return builder.sitofp(builder.ashr(shifted, shift), kind), mantissa
    # Neither the signed shift nor the conversion of 64 bits vectorises everywhere: an unsigned shift, and the
    # integer put into the fraction of 2**52.
    biased = builder.lshr(builder.add(shifted, constant(words, form.bias << form.fraction)), shift)
    whole = builder.or_(biased, constant(words, (form.bias + form.fraction) << form.fraction))
    offset = constant(kind, 2.0**form.fraction + form.bias)
    return builder.fsub(builder.bitcast(whole, kind), offset), mantissa
