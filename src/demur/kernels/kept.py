"""Means over members, relative to a reference of theirs, as sums of a state, relative to its own."""

from __future__ import annotations

import numpy as np
from numba import njit

from demur.kernels import wide
from demur.kernels.arithmetic import COMPILED, INLINED, exp, expm1
from demur.kernels.lanes import LANES


@njit(**COMPILED)
def moved(means, total, log_q, log_to, careful, sums):
    """Write the sums of members, whose means are relative to one reference, relative to another one."""
    for y in range(log_q.shape[0]):
        m = log_q[y] - log_to[y]
        target = exp(log_to[y])
        growth = expm1(m, m)
        apart = target * growth
        q = target + apart
        a, u, au = q * means[0, y], means[1, y], q * means[2, y]
        phi = 0.5 * au + q * means[3, y] if careful else au + q * u - a
        sums[0, y] = total * (a + apart)
        sums[1, y] = total * (u + m)
        sums[2, y] = total * (au + m * a + apart * u + apart * m)
        sums[3, y] = total * (phi + m * a + target * (m * growth - (growth - m)))


@njit(**COMPILED)
def room_to_keep(classes):
    """Allocate what ``keep`` needs: the means, the reference, and more."""
    rows = np.empty((5, classes))
    return np.empty((4, classes)), rows[0], np.empty((4, classes)), rows[1], rows[2], rows[3], rows[4]


@njit(**INLINED)
def set_means(y, reference, sums, place, share, careful, room):
    """Write one class of the reference, and its means from the sums of ``careful`` or of ``quick``."""
    means, references = room[0], room[1]
    first, u, third = sums[place] * share, sums[place + LANES] * share, sums[place + 2 * LANES] * share
    references[y] = np.float64(reference)
    means[0, y], means[1, y] = first if careful else first - 1.0, u
    means[2, y] = third if careful else third - u
    means[3, y] = sums[place + 3 * LANES] * share if careful else 0.0


@njit(**COMPILED)
def keep(b, total, entropy, careful, state, room):
    """Write the sums of one input, with members added whose means are relative to logits of their own.

    Its normaliser is made anew, in float64: sums relative to two references meet here.
    """
    fresh, references, old, new, entropies = state
    means, reference, added, aligned, log_q, log_to, q = room
    wide.set_reference(reference, aligned, log_q, q)
    if fresh:
        references[b] = aligned
    wide.set_reference(references[b], aligned, log_to, q)
    moved(means, total, log_q, log_to, careful, added)
    entropies[b] += total * entropy
    for part in range(4):
        for y in range(q.shape[0]):
            new[part, b, y] = added[part, y] + (0.0 if fresh else old[part][b, y])
