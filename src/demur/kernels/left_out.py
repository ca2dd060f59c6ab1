"""The figures without each group of members in turn, for the jackknife."""

from __future__ import annotations

# numba, not Python, calls these functions: intrinsics get their first argument from the compiler.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
import numpy as np

from demur.kernels.arithmetic import add_in_any_order, cached, log1p
from demur.kernels.wide import class_terms, set_reference


@cached
def leave_out(references, state, entropies, weights, begin, end, out):
    """Write entropy, K and I of inputs ``begin`` to ``end`` without each group in turn to ``out``."""
    state_a, state_u, state_au, _, state_excluded, state_allowed = state
    groups, _, classes = state_a.shape
    aligned, log_q, q = np.empty(classes), np.empty(classes), np.empty(classes)
    sums, share = np.empty((3, classes)), np.empty(classes)
    for b in range(begin, end):
        set_reference(references[b], aligned, log_q, q)
        share[:] = q
        for y in range(classes if state_excluded.shape[0] > 0 else 0):
            if not np.any(state_allowed[:, b, y] > 0.0):
                share[y] = 0.0
        sums[:] = 0.0
        total = entropy = 0.0
        for group in range(groups):
            total += weights[group, b]
            entropy += entropies[group, b]
            for y in range(classes):
                sums[0, y] += state_a[group, b, y]
                sums[1, y] += state_u[group, b, y]
                sums[2, y] += state_au[group, b, y]
        for group in range(groups):
            scale = 1.0 / (total - weights[group, b])
            k = i = 0.0
            for y in range(classes):
                a = (sums[0, y] - state_a[group, b, y]) * scale / q[y]
                u = (sums[1, y] - state_u[group, b, y]) * scale
                au = (sums[2, y] - state_au[group, b, y]) * scale / q[y]
                _, k_y, i_y = class_terms(a, u, au, log_q[y], log1p)
                k = add_in_any_order(k, share[y] * k_y)
                i = add_in_any_order(i, share[y] * i_y)
            for y in range(classes if state_excluded.shape[0] > 0 else 0):
                excluding = allowing = False
                for other in range(groups):
                    if other != group:
                        excluding = excluding or state_excluded[other, b, y] > 0.0
                        allowing = allowing or state_allowed[other, b, y] > 0.0
                if excluding and allowing:
                    k = np.inf
            out[group, 0, b] = (entropy - entropies[group, b]) * scale
            out[group, 1, b] = k
            out[group, 2, b] = i
