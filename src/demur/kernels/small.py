"""Mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``wide``."""

from __future__ import annotations

import numpy as np

from demur.kernels.formulas import CLOSE, class_terms, mean_phi, phi_of_average

FARTHEST = 600.0  # exponents beyond this take the general way,
TAME = FARTHEST / 4  # which no four numbers of that size make
FEW = 4096  # numbers up to which one slow call beats three fast ones
CLOSE_ALL = 1e-13  # of K: below, members are so close that I takes care
CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member

# As .max() and .any(), but at once.
add, largest, least, some = np.add.reduce, np.maximum.reduce, np.minimum.reduce, np.count_nonzero


def expm1(d: np.ndarray) -> np.ndarray:
    """Return ``exp(d) - 1``; NumPy's own is slow, and needed only where ``d`` is small."""
    if d.size <= FEW:
        return np.expm1(d)
    growth = np.exp(d)
    growth -= 1.0
    return np.expm1(d, out=growth, where=np.abs(d) < 0.5)


def dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the sum over the last axis of the product, as is fastest for how the left numbers lie."""
    if left.strides[-1] == left.itemsize:
        return np.vecdot(left, right)
    return np.einsum("...c,...c->...", left, right)


def apart(logits: np.ndarray, chosen: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Return how far logits are from the chosen ones, but for what moves all of a member's alike."""
    d = logits - chosen
    d -= d.reshape(len(d), -1).take(top, 1)[..., None]
    return d


def is_tame(logits: np.ndarray) -> bool:
    """Tell whether logits are numbers of moderate size; nothing here warns of others."""
    return largest(logits, None) <= TAME and least(logits, None) >= -TAME


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
    if is_tame(logits):
        d = apart(logits, chosen, top)
    else:
        with np.errstate(invalid="ignore"):  # infinity less infinity: not for here, as the next test finds
            d = apart(logits, chosen, top)
        if not largest(np.abs(d), None) <= FARTHEST:
            return None
    log_q = chosen - chosen.take(top)[:, None]
    q = np.exp(log_q)
    q.put(top, 0.0)  # its 1 would round away what log1p needs
    rest = add(q, 1, keepdims=True)
    q.put(top, 1.0)
    q /= 1.0 + rest
    log_q -= np.log1p(rest)
    a, u = expm1(d), d
    shift = dot(a, q)[..., None]
    a -= shift
    a *= share / (1.0 + shift)
    u -= np.log1p(shift)
    au = a * u
    u = add(u) * share if weights is None else add(u * share)
    a, au = add(a), add(au)
    phi, of_average = au + (u - a), (1.0 + a) * np.log1p(a) - a
    found = np.vecdot(class_terms(a, u, au, phi, of_average, log_q), q)
    if least(found[1]) < CLOSE_ALL:
        phi, of_average = mean_phi(a, u, au, au < CLOSE, np.where), phi_of_average(a, np.log1p, np.where)
        found = np.vecdot(class_terms(a, u, au, phi, of_average, log_q), q)
    return None if some(found[0] < CANCELLED * found[1]) else found
