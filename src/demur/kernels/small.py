"""Mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``wide``."""

from __future__ import annotations

import numpy as np

from demur.kernels.formulas import class_terms

FARTHEST = 600.0  # exponents beyond this take the general way
FEW = 4096  # numbers up to which one slow call beats three fast ones
CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member

add, largest, some = np.add.reduce, np.maximum.reduce, np.count_nonzero  # as .max() and .any(), but at once


def expm1(d: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return ``exp(d) - 1``; NumPy's own is slow, and needed only where ``d`` is small."""
    if d.size <= FEW:
        return np.expm1(d)
    growth = np.exp(d)
    growth -= 1.0
    return np.expm1(d, out=growth, where=size < 0.5)


def dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the sum over the last axis of the product, as is fastest for how the left numbers lie."""
    if left.strides[-1] == left.itemsize:
        return np.vecdot(left, right)
    return np.einsum("...c,...c->...", left, right)


def summarise(logits: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """Return (3, inputs), or None if a number is not finite or digits would be lost.

    Parameters
    ----------
    logits
        Shape (members, inputs, classes), float64.
    weights
        Shape (members, inputs), or None where all weigh the same.
    """
    members, inputs, classes = logits.shape
    if weights is None:
        chosen, share = logits[0], 1 / members
    else:
        chosen = logits[weights.argmax(0), np.arange(inputs)]
        share = (weights / add(weights))[..., None]
    top = chosen.argmax(1)
    if inputs > 1:
        top += np.arange(0, inputs * classes, classes)  # places in the flattened array
    with np.errstate(invalid="ignore"):  # infinity less infinity: not for here, as the next test finds
        d = logits - chosen
        d -= d.reshape(members, -1).take(top, 1)[..., None]
    size = np.abs(d)
    if not largest(size, None) <= FARTHEST:
        return None
    log_q = chosen - chosen.take(top)[:, None]
    q = np.exp(log_q)
    q.put(top, 0.0)  # its 1 would round away what log1p needs
    rest = add(q, 1, keepdims=True)
    q.put(top, 1.0)
    q /= 1.0 + rest
    log_q -= np.log1p(rest)
    growth = expm1(d, size)
    shift = dot(growth, q)[..., None]
    a = growth
    a -= shift
    a /= 1.0 + shift
    a *= share
    u = d
    u -= np.log1p(shift)
    au = a * u
    u *= share
    found = np.vecdot(class_terms(add(a), add(u), add(au), log_q, np.log1p), q)
    return None if some(found[0] < CANCELLED * found[1]) else found
