"""The reference of each of many inputs of few classes: arrays are (classes, LANES)."""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np
from numba import njit

from demur.kernels.arithmetic import COMPILED, add_in_any_order, exp, log1p
from demur.kernels.wide import FLOOR
from demur.kernels.workers import BLOCK

LANES = BLOCK


@njit(**COMPILED)
def load(flat, starts, offset, class_step, lanes, z):
    """Copy one member's logits to (classes, LANES); return the sum of their squares."""
    for y in range(z.shape[0]):
        for lane in range(lanes):  # unsigned: no test for negative indices
            z[y, lane] = flat[np.uintp(starts[lane] + offset + y * class_step)]
        for lane in range(lanes, LANES):
            z[y, lane] = 0.0
    squares = 0.0
    in_a_row = z.reshape(-1)
    for i in range(in_a_row.shape[0]):
        squares = add_in_any_order(squares, in_a_row[i] * in_a_row[i])
    return squares


@njit(**COMPILED)
def first_reference(flat, starts, steps, weights, inputs, lanes, logits, z):
    """Copy the heaviest member's logits; classes it excludes come from the first member that allows them."""
    member_step, _, class_step = steps
    count = weights.shape[0]
    clean = True
    for lane in range(lanes):
        heaviest = 0
        for member in range(count):
            if weights[member, inputs[lane]] > weights[heaviest, inputs[lane]]:
                heaviest = member
        begin = starts[lane] + heaviest * member_step
        for y in range(logits.shape[0]):
            logits[y, lane] = flat[begin + y * class_step]
            clean = clean and logits[y, lane] > -np.inf
    for lane in range(lanes, LANES):
        logits[:, lane] = 0.0
    if clean:
        return
    top = np.full(LANES, -np.inf)
    for y in range(logits.shape[0]):
        for lane in range(LANES):
            top[lane] = max(top[lane], logits[y, lane])
    for member in range(count):
        load(flat, starts, member * member_step, class_step, lanes, z)
        for lane in range(lanes):
            if weights[member, inputs[lane]] > 0.0:
                own_top = np.max(z[:, lane])
                for y in range(logits.shape[0]):
                    if logits[y, lane] == -np.inf and z[y, lane] > -np.inf:
                        logits[y, lane] = (z[y, lane] - own_top) + top[lane]


@njit(**COMPILED)
def find_top(logits, top):
    """Write the most probable class of each lane."""
    for lane in range(logits.shape[1]):
        best = 0
        for y in range(logits.shape[0]):
            if logits[y, lane] > logits[best, lane]:
                best = y
        top[lane] = best


@njit(**COMPILED)
def set_reference(logits, aligned, log_q, q, top):
    """Align and normalise ``logits``; -inf stands for a class that no member allows."""
    find_top(logits, top)
    lanes = logits.shape[1]
    highest, rest = np.empty(lanes), np.zeros(lanes)
    for lane in range(lanes):
        highest[lane] = logits[top[lane], lane]
    for y in range(logits.shape[0]):
        for lane in range(lanes):
            below = logits[y, lane] - highest[lane]
            below = below if below > FLOOR else FLOOR
            aligned[y, lane] = below
            q[y, lane] = exp(below) if logits[y, lane] > -np.inf else 0.0
    for lane in range(lanes):
        q[top[lane], lane] = 0.0
    for y in range(logits.shape[0]):
        for lane in range(lanes):
            rest[lane] += q[y, lane]
    for lane in range(lanes):
        q[top[lane], lane] = 1.0
        highest[lane] = log1p(rest[lane])
    for y in range(logits.shape[0]):
        for lane in range(lanes):
            log_q[y, lane] = aligned[y, lane] - highest[lane]
            q[y, lane] /= 1.0 + rest[lane]
