"""Entropy, K and I from the sums of a state: of all members, or without each group in turn."""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import math

import numpy as np
from numba import njit

from demur.core import class_terms
from demur.kernels.compiling import COMPILED, INLINED, cached
from demur.kernels.exp_log import exp, log1p
from demur.kernels.vectors import add_in_any_order, where

_settle = njit(**INLINED)(class_terms.settle)
_phi_of_average = njit(**INLINED)(class_terms.phi_of_average)


@njit(**COMPILED)
def _set_probabilities(reference, q):
    """Write the probabilities of a reference by its logits, whose highest is 0."""
    total = 0.0
    for y in range(q.shape[0]):
        q[y] = exp(reference[y])
        total = add_in_any_order(total, q[y])
    for y in range(q.shape[0]):
        q[y] /= total


@cached
def without_groups(references, a, u, au, phi, excluded, allowed, entropies, weights, left, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` to ``out``, without each group ``left`` in turn.

    A group of -1 stands for none. ``weights``, (left, inputs), are those of the members that stay.
    """
    groups, _, classes = a.shape
    q, sums, counts = np.empty(classes), np.empty((4, classes)), np.empty(classes, np.bool_)
    for b in range(begin, end):
        _set_probabilities(references[b], q)
        for y in range(classes):  # those that somebody allows
            counts[y] = excluded.shape[0] == 0 or np.any(allowed[:, b, y] > 0.0)
        sums[:] = 0.0
        entropy = 0.0
        for group in range(groups):
            entropy += entropies[group, b]
            for y in range(classes):
                sums[0, y] += a[group, b, y]
                sums[1, y] += u[group, b, y]
                sums[2, y] += au[group, b, y]
                sums[3, y] += phi[group, b, y]
        for at in range(left.shape[0]):
            group = left[at]
            none = group < 0
            other = 0 if none else group
            taken = 0.0 if none else 1.0
            scale = 1.0 / weights[at, b]
            k = i = 0.0
            for y in range(classes):
                # Not over q, as in other loops: beside a q of exp(-690) that could be infinite.
                own_a = (sums[0, y] - taken * a[other, b, y]) * scale
                own_u = (sums[1, y] - taken * u[other, b, y]) * scale
                own_au = (sums[2, y] - taken * au[other, b, y]) * scale
                own_phi = (sums[3, y] - taken * phi[other, b, y]) * scale
                k_y = _settle(own_au - own_a * own_u, own_au, where)
                i_y = own_phi - q[y] * _phi_of_average(own_a / q[y], log1p, where)
                i_y = _settle(i_y, own_au, where)
                k = add_in_any_order(k, k_y if counts[y] else 0.0)
                i = add_in_any_order(i, i_y if counts[y] else 0.0)
            for y in range(classes if excluded.shape[0] > 0 else 0):
                excluding = allowing = False
                for kept in range(groups):
                    if none or kept != group:
                        excluding = excluding or excluded[kept, b, y] > 0.0
                        allowing = allowing or allowed[kept, b, y] > 0.0
                if excluding and allowing:
                    k = math.inf
            out[at, 0, b] = (entropy - taken * entropies[other, b]) * scale
            out[at, 1, b] = k
            out[at, 2, b] = i
