"""The figures of sums, of all members or without a group of them, as the jackknife takes them."""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np

from demur.kernels.arithmetic import add_in_any_order, cached, log1p
from demur.kernels.compiled_formulas import phi_of_average, settled, where
from demur.kernels.wide import set_reference


@cached
def figures(references, state, entropies, weights, left, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` to ``out``, without each group ``left`` in turn.

    A group of -1 stands for none. ``weights``, (left, inputs), are those of the members that stay.
    """
    state_a, state_u, state_au, state_phi, state_excluded, state_allowed = state
    groups, _, classes = state_a.shape
    aligned, log_q, q = np.empty(classes), np.empty(classes), np.empty(classes)
    sums, counts = np.empty((4, classes)), np.empty(classes, np.bool_)
    for b in range(begin, end):
        set_reference(references[b], aligned, log_q, q)
        for y in range(classes):  # those that somebody allows
            counts[y] = state_excluded.shape[0] == 0 or np.any(state_allowed[:, b, y] > 0.0)
        sums[:] = 0.0
        entropy = 0.0
        for group in range(groups):
            entropy += entropies[group, b]
            for y in range(classes):
                sums[0, y] += state_a[group, b, y]
                sums[1, y] += state_u[group, b, y]
                sums[2, y] += state_au[group, b, y]
                sums[3, y] += state_phi[group, b, y]
        for at in range(left.shape[0]):
            group = left[at]
            none = group < 0
            other = 0 if none else group
            taken = 0.0 if none else 1.0
            scale = 1.0 / weights[at, b]
            k = i = 0.0
            for y in range(classes):
                if not counts[y]:
                    continue
                # Not over q, as in other loops: beside a q of exp(-690) that could be infinite.
                a = (sums[0, y] - taken * state_a[other, b, y]) * scale
                u = (sums[1, y] - taken * state_u[other, b, y]) * scale
                au = (sums[2, y] - taken * state_au[other, b, y]) * scale
                # Not made of the other sums: those of float32 members lose it where the members agree.
                phi = (sums[3, y] - taken * state_phi[other, b, y]) * scale
                k = add_in_any_order(k, settled(au - a * u, au, where))
                i_y = phi - q[y] * phi_of_average(a / q[y], log1p, where)
                i = add_in_any_order(i, settled(i_y, au, where))
            for y in range(classes if state_excluded.shape[0] > 0 else 0):
                excluding = allowing = False
                for kept in range(groups):
                    if none or kept != group:
                        excluding = excluding or state_excluded[kept, b, y] > 0.0
                        allowing = allowing or state_allowed[kept, b, y] > 0.0
                if excluding and allowing:
                    k = np.inf
            out[at, 0, b] = (entropy - taken * entropies[other, b]) * scale
            out[at, 1, b] = k
            out[at, 2, b] = i
