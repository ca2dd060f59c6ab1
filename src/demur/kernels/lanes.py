"""Sixteen numbers at a time: a type for compiled loops, with the arithmetic that they need.

Loops over lanes say which numbers stay in registers; a compiler that is left to find that out puts sums
through memory, and gives up where it cannot tell two arrays apart. LLVM takes sixteen numbers apart into as
many registers as the machine needs for them.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, models, overload, register_model

from demur.kernels.arithmetic import COMPILED, INLINED

LANES = 16
FOUR = 4
FUSED = ("contract",)
LINE = 64  # bytes
WORD = ir.IntType(32)
WORDS = ir.VectorType(WORD, LANES)
NUMBERS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


class Lanes(types.Type):
    """Sixteen numbers of one type."""

    def __init__(self, number: Any):
        self.number = number
        super().__init__(name=f"Lanes({number})")


SINGLE, DOUBLE = Lanes(types.float32), Lanes(types.float64)
OF = {types.float32: SINGLE, types.float64: DOUBLE}


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """Lanes are an LLVM vector."""

    def __init__(self, manager: Any, kind: Lanes):
        super().__init__(manager, kind, register(kind))


def register(kind: Lanes) -> ir.VectorType:
    """Return the LLVM type of lanes."""
    return ir.VectorType(NUMBERS[kind.number], LANES)


def everywhere(kind: ir.VectorType, number: float) -> ir.Constant:
    """Return a constant in all lanes; rounded to float32 for lanes of that type, as LLVM takes no other."""
    value = float(np.float32(number)) if kind.element == ir.FloatType() else number
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)


@intrinsic
def load(typing_context, array, place):
    """Read sixteen numbers that stand one after the other in an array."""

    def generate(context, builder, signature, arguments):
        return builder.load(pointer(context, builder, signature, arguments), align=size_of(signature))

    return OF[array.dtype](array, types.intp), generate


@intrinsic
def store(typing_context, array, place, numbers):
    """Write sixteen numbers one after the other to an array."""

    def generate(context, builder, signature, arguments):
        to = pointer(context, builder, signature, arguments)
        builder.store(arguments[2], to, align=size_of(signature))
        return context.get_dummy_value()

    return types.void(array, types.intp, OF[array.dtype]), generate


@intrinsic
def load_pairs(typing_context, array, place):
    """Read sixteen pairs of numbers: all that come first, and all that come second."""

    def generate(context, builder, signature, arguments):
        both = pointer(context, builder, signature, arguments, 2 * LANES)
        numbers = builder.load(both, align=size_of(signature))
        places = [ir.Constant(WORDS, list(range(first, 2 * LANES, 2))) for first in (0, 1)]
        taken = [builder.shuffle_vector(numbers, numbers, each) for each in places]
        return context.make_tuple(builder, signature.return_type, taken)

    return types.UniTuple(OF[array.dtype], 2)(array, types.intp), generate


@intrinsic
def turn_four(typing_context, array, starts, shift, to, place, step):
    """Copy four numbers from each of sixteen places of an array into four planes of another.

    Place k is ``starts[k] + shift``; its number j goes to ``to[place + j * step + k]``.
    """

    def generate(context, builder, signature, arguments):
        numbers, begins, box = (
            context.make_array(signature.args[k])(context, builder, arguments[k]).data for k in (0, 1, 3)
        )
        shift, place, step = arguments[2], *arguments[4:]
        quarter = ir.VectorType(ir.FloatType(), FOUR)

        def row(k):
            begin = builder.load(builder.gep(begins, [ir.Constant(shift.type, k)]))
            at = builder.gep(numbers, [builder.add(begin, shift)])
            return builder.load(builder.bitcast(at, quarter.as_pointer()), align=size_of(signature))

        def joined(left, right):
            return shuffled(builder, left, right, range(2 * left.type.count))

        # A row for each quarter of a register; then four by four numbers are turned within the quarters.
        rows = [joined(joined(row(k), row(k + 4)), joined(row(k + 8), row(k + 12))) for k in range(FOUR)]
        for apart, pairs in ((1, (0, 16, 1, 17)), (2, (0, 1, 16, 17))):
            found = {}
            for k in (k for k in range(FOUR) if not k & apart):
                for which, more in ((k, 0), (k + apart, 2)):
                    places = [each + more + first for first in range(0, LANES, FOUR) for each in pairs]
                    found[which] = shuffled(builder, rows[k], rows[k + apart], places)
            rows = [found[k] for k in range(FOUR)]
        for row_found, order in zip(rows, (0, 2, 1, 3), strict=True):
            at = builder.add(place, builder.mul(step, ir.Constant(step.type, order)))
            plane = builder.bitcast(builder.gep(box, [at]), row_found.type.as_pointer())
            builder.store(row_found, plane, align=size_of(signature))
        return context.get_dummy_value()

    return types.void(array, starts, types.intp, to, types.intp, types.intp), generate


def shuffled(builder, left, right, places):
    """Return numbers of two registers in another order."""
    places = list(places)
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(WORD, len(places)), places))


def pointer(context, builder, signature, arguments, count=LANES):
    """Return where in an array some numbers stand."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    vector = ir.VectorType(NUMBERS[signature.args[0].dtype], count)
    return builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())


def size_of(signature):
    """Return the bytes of one number: registers may be filled from anywhere."""
    return signature.args[0].dtype.bitwidth // 8


@intrinsic
def spread(typing_context, number):
    """Put one number into all lanes."""

    def generate(context, builder, signature, arguments):
        nothing = ir.Constant(register(signature.return_type), ir.Undefined)
        first = builder.insert_element(nothing, arguments[0], ir.Constant(WORD, 0))
        return builder.shuffle_vector(first, nothing, everywhere(WORDS, 0))

    return OF[number](number), generate


@intrinsic
def doubled(typing_context, numbers):
    """Bring lanes to float64."""
    return (
        DOUBLE(numbers),
        lambda context, builder, signature, arguments: (
            arguments[0] if numbers == DOUBLE else builder.fpext(arguments[0], register(DOUBLE))
        ),
    )


@intrinsic
def rounded(typing_context, numbers):
    """Bring float64 lanes to float32."""
    return SINGLE(DOUBLE), lambda context, builder, signature, arguments: builder.fptrunc(
        arguments[0], register(SINGLE)
    )


def overloaded(symbol: Any, name: str) -> None:
    """Give lanes the arithmetic of an operator; the compiler may fuse a product with a sum."""

    @intrinsic
    def combined(typing_context, left, right):
        return left(left, left), lambda context, builder, signature, arguments: getattr(builder, name)(
            *arguments, flags=FUSED
        )

    @overload(symbol, jit_options=INLINED)
    def _(left, right):
        if isinstance(left, Lanes) and left == right:
            return lambda left, right: combined(left, right)


overloaded(operator.add, "fadd")
overloaded(operator.sub, "fsub")
overloaded(operator.mul, "fmul")
overloaded(operator.truediv, "fdiv")


@intrinsic
def larger(typing_context, left, right):
    """Return the larger of two in each lane; the second where the first is not a number."""
    return left(left, left), lambda context, builder, signature, arguments: larger_of(builder, *arguments)


@intrinsic
def where_less(typing_context, left, right, then, otherwise):
    """Return ``then`` in the lanes where ``left < right``."""
    return left(left, left, left, left), lambda context, builder, signature, arguments: builder.select(
        builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:]
    )


@intrinsic
def magnitude(typing_context, numbers):
    """Return the magnitudes of float32 lanes."""

    def generate(context, builder, signature, arguments):
        bits = builder.and_(builder.bitcast(arguments[0], WORDS), everywhere(WORDS, 0x7FFFFFFF))
        return builder.bitcast(bits, register(SINGLE))

    return SINGLE(SINGLE), generate


def folding(combine: Callable[..., Any]) -> Any:
    """Return what brings all lanes to one number: halves are combined with halves."""

    @intrinsic
    def fold(typing_context, numbers):
        def generate(context, builder, signature, arguments):
            value, count = arguments[0], LANES
            while count > 1:
                count //= 2
                kind = ir.VectorType(WORD, count)
                halves = [ir.Constant(kind, list(range(first, first + count))) for first in (0, count)]
                value = combine(builder, *(builder.shuffle_vector(value, value, half) for half in halves))
            return builder.extract_element(value, ir.Constant(WORD, 0))

        return numbers.number(numbers), generate

    return fold


def larger_of(builder, left, right):
    """Return the larger of two in each lane, the second where the first is not a number."""
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


add_up = folding(lambda builder, left, right: builder.fadd(left, right))
highest = folding(larger_of)


@njit(**COMPILED)
def aligned_zeros(count):
    """Allocate float32 numbers from the beginning of a line of the cache on: no register then spans two."""
    room = np.zeros(count + LINE // 4, np.float32)
    skipped = (-room.ctypes.data % LINE) // 4
    return room[skipped : skipped + count]
