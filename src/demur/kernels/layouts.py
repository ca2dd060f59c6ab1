"""Where the numbers of members lie, and how sixteen of them are brought into the lanes of a vector.

A box holds planes of sixteen numbers in slots: ``box[slot * step + plane + lane]``. Over classes, a slot has
sixteen classes of one input; the last slot may overlap the one before, and a class that stands there again
has the probability 0 and counts for nothing. Over inputs, a slot has one class of sixteen inputs. The
arithmetic of a slot is the same; what differs is how a slot is filled, and that sums over classes also go
over the lanes where these are classes. Both kinds of loops are made of the functions here.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from demur.kernels import vectors
from demur.kernels.compiling import COMPILED, INLINED
from demur.kernels.vectors import FOUR, LANES

TILE = 4  # members that are added at a time


@njit(**INLINED)
def four(array, place):
    """Return a plane of each of four members, which stand one after the other."""
    return (
        vectors.load(array, place),
        vectors.load(array, place + LANES),
        vectors.load(array, place + 2 * LANES),
        vectors.load(array, place + 3 * LANES),
    )


@njit(**INLINED)
def store_four(array, place, numbers):
    """Write a plane of each of four members, one after the other."""
    vectors.store(array, place, numbers[0])
    vectors.store(array, place + LANES, numbers[1])
    vectors.store(array, place + 2 * LANES, numbers[2])
    vectors.store(array, place + 3 * LANES, numbers[3])


@njit(**INLINED)
def add_four(left, right):
    """Add what four members have."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3]


@njit(**INLINED)
def dot_four(left, right):
    """Return the sum over four members of a product."""
    return (left[0] * right[0] + left[1] * right[1]) + (left[2] * right[2] + left[3] * right[3])


@njit(**INLINED)
def sum_over_classes(numbers):
    """Return float64 sums over classes where the lanes are classes: the same in every lane."""
    return vectors.spread(np.float64(vectors.add_up(numbers)))


@njit(**INLINED)
def sum_in_lanes(numbers):
    """Return float64 sums over classes where the lanes are inputs: each lane has its own already."""
    return vectors.to_double(numbers)


@njit(**INLINED)
def top_over_classes(numbers):
    """Return the highest number of all lanes in every lane."""
    return vectors.spread(vectors.highest(numbers))


@njit(**INLINED)
def top_in_lanes(numbers):
    """Return each lane's own number, the highest of its classes already."""
    return numbers


@njit(**INLINED)
def first_class(slot, classes):
    """Return the first class of a slot of sixteen."""
    return min(slot * LANES, classes - LANES)


@njit(**INLINED)
def count_slots(classes, over_classes):
    """Return how many slots the classes take."""
    return -(-classes // LANES) if over_classes else classes


@njit(**COMPILED)
def hide_repeated(box, step, plane, classes):
    """Write 0 for the classes that stand in the last slot and in the one before."""
    slots = -(-classes // LANES)
    at = (slots - 1) * step + plane
    box[at : at + slots * LANES - classes] = 0.0


@njit(**COMPILED)
def locate_inputs(origin, input_step, inputs, starts):
    """Write where inputs begin, for lanes without one the last; tell whether they fill all lanes evenly."""
    count = inputs.shape[0]
    for lane in range(LANES):
        starts[lane] = origin + inputs[min(lane, count - 1)] * input_step
    return count == LANES and inputs[count - 1] - inputs[0] == count - 1


@njit(**INLINED)
def load_single(flat, starts, shift, steps, evenly, classes, step, box, plane):
    """Copy one member's float32 numbers for sixteen inputs, which may lie ``evenly``, into a plane."""
    if steps[2] == 1 and classes >= FOUR:
        for y in range(0, classes, FOUR):
            first = min(y, classes - FOUR)  # the last four classes may overlap those before
            vectors.turn_four(flat, starts, shift + first, box, first * step + plane, step)
    elif steps[1] == 1 and evenly:  # as networks that label every pixel have them
        for y in range(classes):
            vectors.store(box, y * step + plane, vectors.load(flat, starts[0] + shift + y * steps[2]))
    else:
        for y in range(classes):
            at, here = y * step + plane, shift + y * steps[2]
            for lane in range(LANES):
                box[np.uintp(at + lane)] = flat[np.uintp(starts[lane] + here)]


@njit(**INLINED)
def load_over_inputs(flat, starts, shift, class_step, classes, step, box, plane):
    """Copy one member's numbers for sixteen inputs into a plane of a float64 box."""
    for y in range(classes):
        at, here = y * step + plane, shift + y * class_step
        for lane in range(LANES):  # unsigned: no test for negative indices
            box[np.uintp(at + lane)] = flat[np.uintp(starts[lane] + here)]


@njit(**INLINED)
def load_over_classes(flat, starts, shift, class_step, classes, step, box, plane):
    """Copy one member's numbers for one input into a plane of a float64 box."""
    place = starts[0] + shift
    for slot in range(-(-classes // LANES)):
        first = first_class(slot, classes)
        if class_step == 1:
            numbers = vectors.to_double(vectors.load(flat, place + first))
            vectors.store(box, slot * step + plane, numbers)
        else:
            for lane in range(LANES):
                box[slot * step + plane + lane] = flat[place + (first + lane) * class_step]


@njit(**INLINED)
def weight_of(weights, weight_steps, member, b):
    """Return the weight of a member for an input."""
    return weights[member * weight_steps[0] + b * weight_steps[1]]


@njit(**COMPILED)
def list_members(weights, weight_steps, count, inputs, found):
    """List the members that any of the inputs has weight for."""
    listed = 0
    shared = weight_steps[1] == 0
    for member in range(count):
        used = False
        for b in inputs[: 1 if shared else inputs.shape[0]]:
            used = used or weight_of(weights, weight_steps, member, b) > 0.0
        if used:
            found[listed] = member
            listed += 1
    return found[:listed]


@njit(**COMPILED)
def deal(weighing, inputs, group, group_of, room, weights_of, total):
    """List the members of a group that any of the inputs has weight for, with their weights."""
    weights, weight_steps, count = weighing
    listed = 0
    total[:] = 0.0
    for member in range(count):
        used = False
        for lane in range(LANES):
            own = weight_of(weights, weight_steps, member, inputs[min(lane, inputs.shape[0] - 1)])
            own = own if group_of[member, lane] == group else 0.0
            weights_of[listed * LANES + lane] = own
            total[lane] += own
            used = used or own > 0.0
        if used:
            room[listed] = member
            listed += 1
    return room[:listed]


@njit(**COMPILED)
def find_heaviest(weights, weight_steps, count, b):
    """Return the heaviest member of an input, the first of equals, and the weight of all."""
    heaviest, total = 0, 0.0
    for member in range(count):
        own = weight_of(weights, weight_steps, member, b)
        total += own
        if own > weight_of(weights, weight_steps, heaviest, b):
            heaviest = member
    return heaviest, total


@intrinsic
def _count_on(typing_context, counter, count):
    """Add to the first number of an array, at once for all threads; return what it was."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, arguments[1], "monotonic")

    return types.int64(counter, types.int64), generate


@njit(**INLINED)
def claim(chosen, claimed, most):
    """Return the next of the chosen inputs, which no other thread gets; none if all are claimed."""
    begin = _count_on(claimed, most)
    return chosen[begin : begin + most]
