"""The box of the float64 loops: members' logits are brought there, and one of them becomes the reference.

That is the heaviest member, with classes that it excludes from the first member that allows them; or it is
the reference of a state, to whose sums members are added. ``float64`` says what it is for.
"""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math
from typing import Any

import numpy as np
from numba import njit

from demur.kernels import exp_log, layouts, vectors
from demur.kernels.compiling import COMPILED, named
from demur.kernels.layouts import TILE, count_slots, first_class
from demur.kernels.vectors import LANES

# The planes of a slot in the box.
REFERENCE, Q, A, U, AU = 0, LANES, 2 * LANES, 3 * LANES, 4 * LANES
D = 5 * LANES  # of four members; their logits first
E = D + TILE * LANES
STEP = E + TILE * LANES
NO_CLASS = -1e200
"""``d`` below that belongs to a class that the member excludes."""

_FLOOR = -690.0  # of the reference's log-probability below its top class: exp(d) then never overflows


@njit(**COMPILED)
def _log_of(p):
    """Return the logarithm of a probability, -inf of 0, and NaN of what is none."""
    return math.log(p) if p > 0.0 else (-np.inf if p == 0.0 else np.nan)


def build_reference(over_classes: bool) -> tuple[Any, ...]:
    """Return what loads members, and what sets, reads and writes the reference, for one layout."""
    name = "over_classes" if over_classes else "over_inputs"
    sum_up = layouts.sum_over_classes if over_classes else layouts.sum_in_lanes
    top_of = layouts.top_over_classes if over_classes else layouts.top_in_lanes
    copy_member = layouts.load_over_classes if over_classes else layouts.load_over_inputs

    @named(name)
    def load(source, starts, shift, classes, box, plane):
        """Copy a member's logits, or the logarithms of its probabilities, into a plane of the box."""
        single, double, is_single, is_probs, steps = source
        if is_single:
            copy_member(single, starts, shift, steps[2], classes, STEP, box, plane)
        else:
            copy_member(double, starts, shift, steps[2], classes, STEP, box, plane)
        if not is_probs:
            return
        for at in range(plane, box.shape[0], STEP):
            p = vectors.load(box, at)
            if vectors.lowest(p) > 1e-300:
                vectors.store(box, at, exp_log.log(p))
            else:
                for lane in range(LANES):
                    box[at + lane] = _log_of(box[at + lane])

    @named(name)
    def fill_reference(source, starts, steps, classes, members, weights, box, lanes):
        """Give classes that the reference excludes what the first member has that allows them."""
        single, double, is_single, is_probs, _ = source
        for lane in range(lanes):
            top, missing = -np.inf, False
            for y in range(classes):
                slot, each = (min(y // LANES, -(-classes // LANES) - 1), 0) if over_classes else (y, lane)
                if over_classes:
                    each = y - first_class(slot, classes)
                z = box[slot * STEP + REFERENCE + each]
                top, missing = max(top, z), missing or z == -np.inf
            for index in range(members.shape[0] if missing else 0):
                if not weights[index * LANES + lane] > 0.0:
                    continue
                start, own_top = starts[lane] + members[index] * steps[0], -np.inf
                for again in range(2):  # the member's own highest first
                    for y in range(classes):
                        place = start + y * steps[2]
                        z = np.float64(single[place]) if is_single else double[place]
                        z = _log_of(z) if is_probs else z
                        if again == 0:
                            own_top = max(own_top, z)
                            continue
                        # A class may stand in two slots.
                        begin = y // LANES if over_classes else y
                        for slot in range(
                            begin, count_slots(classes, over_classes) if over_classes else y + 1
                        ):
                            each = y - first_class(slot, classes) if over_classes else lane
                            if 0 <= each < LANES and box[slot * STEP + REFERENCE + each] == -np.inf:
                                box[slot * STEP + REFERENCE + each] = (z - own_top) + top

    @named(name)
    def set_first_reference(source, starts, classes, weighing, inputs, heaviest, box):
        """Write the heaviest member's logits; classes it excludes come from the first that allows them."""
        count = weighing[2]
        zero, places = np.int64(0), np.empty(LANES, np.int64)  # numba would compile ``load`` again for 0
        for lane in range(LANES):
            places[lane] = starts[lane] + heaviest[lane] * source[4][0]
        load(source, places, zero, classes, box, zero + REFERENCE)
        least = vectors.spread(np.inf)
        for at in range(0, box.shape[0], STEP):
            least = vectors.smaller(vectors.load(box, at + REFERENCE), least)
        if vectors.lowest(least) > -np.inf:
            return
        alone, room = np.zeros((count, LANES), np.int64), np.empty(count, np.int64)  # one group of all
        weights_of = np.empty((count + 1) * LANES)
        members = layouts.deal(weighing, inputs, zero, alone, room, weights_of, np.empty(LANES))
        fill_reference(source, starts, source[4], classes, members, weights_of, box, inputs.shape[0])

    @named(name)
    def set_reference(box, classes, normaliser):
        """Align and normalise the reference's logits, of which -inf is a class that no member allows."""
        top, none = vectors.spread(-np.inf), vectors.spread(0.0)
        for at in range(0, box.shape[0], STEP):
            top = vectors.larger(vectors.load(box, at + REFERENCE), top)
        top = top_of(top)
        floor, excluded = vectors.spread(_FLOOR), vectors.spread(NO_CLASS)
        for at in range(0, box.shape[0], STEP):
            z = vectors.load(box, at + REFERENCE)
            below = vectors.larger(z - top, floor)
            vectors.store(box, at + REFERENCE, below)
            vectors.store(box, at + Q, vectors.where_less(z, excluded, none, exp_log.exp(below)))
        if over_classes:
            layouts.hide_repeated(box, STEP, Q, classes)
        tops, others, one = none, none, vectors.spread(1.0)
        for at in range(0, box.shape[0], STEP):
            below, odds = vectors.load(box, at + REFERENCE), vectors.load(box, at + Q)
            tops = tops + vectors.where_less(below, none, none, odds)
            others = others + vectors.where_less(below, none, odds, none)
        rest = (sum_up(tops) - one) + sum_up(others)
        vectors.store(normaliser, 0, exp_log.log1p(rest))
        vectors.store(normaliser, LANES, one + rest)
        for at in range(0, box.shape[0], STEP):
            vectors.store(box, at + Q, vectors.load(box, at + Q) / (one + rest))

    @named(name)
    def read_reference(references, inputs, classes, box):
        """Write the references of a state."""
        for slot in range(count_slots(classes, over_classes)):
            for lane in range(LANES):
                y = first_class(slot, classes) + lane if over_classes else slot
                b = inputs[0 if over_classes else min(lane, inputs.shape[0] - 1)]
                box[slot * STEP + REFERENCE + lane] = references[b, y]

    @named(name)
    def write_reference(references, inputs, classes, box):
        """Keep the references of a state."""
        for slot in range(count_slots(classes, over_classes)):
            for lane in range(LANES if over_classes else inputs.shape[0]):
                y = first_class(slot, classes) + lane if over_classes else slot
                b = inputs[0 if over_classes else lane]
                references[b, y] = box[slot * STEP + REFERENCE + lane]

    return load, set_first_reference, set_reference, read_reference, write_reference
