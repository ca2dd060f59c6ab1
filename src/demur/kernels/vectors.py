"""Sixteen numbers at a time: a type for compiled loops, with the arithmetic that they need.

Loops over such vectors say which numbers stay in registers; a compiler that is left to find that out puts
sums through memory, and gives up where it cannot tell two arrays apart. LLVM takes sixteen numbers apart into
as many registers as the machine needs for them.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportOptionalCall=false
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from demur.kernels.compiling import COMPILED, INLINED

LANES, FOUR = 16, 4
_FUSED = ("contract",)
_LINE = 64  # bytes of a line of the cache
_WORD = ir.IntType(32)
_NUMBERS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


class Vector(types.Type):
    """Sixteen numbers of one type."""

    def __init__(self, number: Any):
        self.number = number
        super().__init__(name=f"Vector({number})")


_SINGLE, _DOUBLE = Vector(types.float32), Vector(types.float64)
_OF = {types.float32: _SINGLE, types.float64: _DOUBLE}


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    """Vectors are LLVM's own."""

    def __init__(self, manager: Any, kind: Vector):
        super().__init__(manager, kind, _register(kind))


def _register(kind: Vector) -> ir.VectorType:
    """Return the LLVM type of a vector."""
    return ir.VectorType(_NUMBERS[kind.number], LANES)


def constant(kind: Any, number: float) -> ir.Constant:
    """Return a number of an LLVM type, in all lanes of a vector; rounded where the type is float32."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    value = ir.Constant(element, float(np.float32(number)) if element == ir.FloatType() else number)
    return ir.Constant(kind, [value] * kind.count) if isinstance(kind, ir.VectorType) else value


def _pointer(context, builder, signature, arguments, count=LANES):
    """Return where in an array some numbers stand."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    vector = ir.VectorType(_NUMBERS[signature.args[0].dtype], count)
    return builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())


def _size_of(signature):
    """Return the bytes of one number: registers may be filled from anywhere."""
    return signature.args[0].dtype.bitwidth // 8


@intrinsic
def load(typing_context, array, place):
    """Read sixteen numbers that stand one after the other in an array."""

    def generate(context, builder, signature, arguments):
        return builder.load(_pointer(context, builder, signature, arguments), align=_size_of(signature))

    return _OF[array.dtype](array, types.intp), generate


@intrinsic
def store(typing_context, array, place, numbers):
    """Write sixteen numbers one after the other to an array."""

    def generate(context, builder, signature, arguments):
        to = _pointer(context, builder, signature, arguments)
        builder.store(arguments[2], to, align=_size_of(signature))
        return context.get_dummy_value()

    return types.void(array, types.intp, _OF[array.dtype]), generate


@intrinsic
def load_pairs(typing_context, array, place):
    """Read sixteen pairs of numbers: all that come first, and all that come second."""

    def generate(context, builder, signature, arguments):
        both = _pointer(context, builder, signature, arguments, 2 * LANES)
        numbers = builder.load(both, align=_size_of(signature))
        taken = [_shuffle(builder, numbers, numbers, range(first, 2 * LANES, 2)) for first in (0, 1)]
        return context.make_tuple(builder, signature.return_type, taken)

    return types.UniTuple(_OF[array.dtype], 2)(array, types.intp), generate


@intrinsic
def turn_four(typing_context, array, starts, shift, to, place, step):
    """Copy four numbers from each of sixteen places of a float32 array into four planes of another.

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
            return builder.load(builder.bitcast(at, quarter.as_pointer()), align=_size_of(signature))

        def join(left, right):
            return _shuffle(builder, left, right, range(2 * left.type.count))

        # A row for each quarter of a register; then four by four numbers are turned within the quarters.
        rows = [join(join(row(k), row(k + 4)), join(row(k + 8), row(k + 12))) for k in range(FOUR)]
        for apart, pairs in ((1, (0, 16, 1, 17)), (2, (0, 1, 16, 17))):
            found = {}
            for k in (k for k in range(FOUR) if not k & apart):
                for which, more in ((k, 0), (k + apart, 2)):
                    places = [each + more + first for first in range(0, LANES, FOUR) for each in pairs]
                    found[which] = _shuffle(builder, rows[k], rows[k + apart], places)
            rows = [found[k] for k in range(FOUR)]
        for turned, order in zip(rows, (0, 2, 1, 3), strict=True):
            at = builder.add(place, builder.mul(step, ir.Constant(step.type, order)))
            plane = builder.bitcast(builder.gep(box, [at]), turned.type.as_pointer())
            builder.store(turned, plane, align=_size_of(signature))
        return context.get_dummy_value()

    return types.void(array, starts, types.intp, to, types.intp, types.intp), generate


def _shuffle(builder, left, right, places):
    """Return numbers of two registers in another order."""
    places = list(places)
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(_WORD, len(places)), places))


@intrinsic
def spread(typing_context, number):
    """Put one number into all lanes."""

    def generate(context, builder, signature, arguments):
        nothing = ir.Constant(_register(signature.return_type), ir.Undefined)
        first = builder.insert_element(nothing, arguments[0], ir.Constant(_WORD, 0))
        return _shuffle(builder, first, nothing, [0] * LANES)

    return _OF[number](number), generate


@intrinsic
def to_double(typing_context, numbers):
    """Bring a vector to float64."""

    def generate(context, builder, signature, arguments):
        return arguments[0] if numbers == _DOUBLE else builder.fpext(arguments[0], _register(_DOUBLE))

    return _DOUBLE(numbers), generate


@intrinsic
def to_single(typing_context, numbers):
    """Round a float64 vector to float32."""
    return _SINGLE(_DOUBLE), lambda context, builder, signature, arguments: builder.fptrunc(
        arguments[0], _register(_SINGLE)
    )


def _lower_operator(symbol: Any, name: str) -> None:
    """Give vectors the arithmetic of an operator; the compiler may fuse a product with a sum."""

    class Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments, flags=_FUSED)

    infer_global(symbol)(Typing)
    lower_builtin(symbol, Vector, Vector)(generate)


_lower_operator(operator.add, "fadd")
_lower_operator(operator.sub, "fsub")
_lower_operator(operator.mul, "fmul")
_lower_operator(operator.truediv, "fdiv")


def _choose(builder, sign, left, right):
    """Return the first of two in each lane where it compares so with the second, else the second."""
    return builder.select(builder.fcmp_ordered(sign, left, right), left, right)


@intrinsic
def larger(typing_context, left, right):
    """Return the larger of two in each lane; the second where the first is not a number."""
    return left(left, left), lambda context, builder, signature, arguments: _choose(builder, ">", *arguments)


@intrinsic
def smaller(typing_context, left, right):
    """Return the smaller of two in each lane; the second where the first is not a number."""
    return left(left, left), lambda context, builder, signature, arguments: _choose(builder, "<", *arguments)


@intrinsic
def where_less(typing_context, left, right, then, otherwise):
    """Return ``then`` in the lanes where ``left < right``."""
    return left(left, left, left, left), lambda context, builder, signature, arguments: builder.select(
        builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:]
    )


@intrinsic
def magnitude(typing_context, numbers):
    """Return the magnitudes of a float32 vector."""

    def generate(context, builder, signature, arguments):
        words = ir.VectorType(_WORD, LANES)
        bits = builder.and_(builder.bitcast(arguments[0], words), constant(words, 0x7FFFFFFF))
        return builder.bitcast(bits, _register(_SINGLE))

    return _SINGLE(_SINGLE), generate


def _folding(combine: Callable[..., Any]) -> Any:
    """Return what brings all lanes to one number: halves are combined with halves."""

    @intrinsic
    def fold(typing_context, numbers):
        def generate(context, builder, signature, arguments):
            value, count = arguments[0], LANES
            while count > 1:
                count //= 2
                halves = (
                    _shuffle(builder, value, value, range(first, first + count)) for first in (0, count)
                )
                value = combine(builder, *halves)
            return builder.extract_element(value, ir.Constant(_WORD, 0))

        return numbers.number(numbers), generate

    return fold


add_up = _folding(lambda builder, left, right: builder.fadd(left, right))
highest = _folding(lambda builder, left, right: _choose(builder, ">", left, right))
lowest = _folding(lambda builder, left, right: _choose(builder, "<", left, right))


@njit(**COMPILED)
def aligned_zeros(count, like):
    """Allocate numbers from the beginning of a line of the cache on: no register then spans two."""
    per_line = _LINE // like.itemsize
    room = np.zeros(count + per_line, like.dtype)
    skipped = (-room.ctypes.data % _LINE) // like.itemsize
    return room[skipped : skipped + count]


@intrinsic
def prefetch(typing_context, flat, place):
    """Bring the number at a place of an array, which need not be in it, into the second cache."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        at = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(fetch, [at, *(ir.Constant(_WORD, n) for n in (0, 2, 1))])
        return context.get_dummy_value()

    return types.void(flat, types.intp), generate


@intrinsic
def add_in_any_order(typing_context, left, right):
    """Add two float64 numbers, and let the compiler reorder this one reduction."""
    # For single additions: elsewhere it would undo the rounding in the exponential.
    flags = ("reassoc", "contract", "nsz")
    return types.float64(
        types.float64, types.float64
    ), lambda context, builder, signature, arguments: builder.fadd(*arguments, flags=flags)


@njit(**INLINED)
def where(condition, then, otherwise):
    """Return one of two numbers; as NumPy's, for formulas that both take."""
    return then if condition else otherwise
