"""Mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``wide``."""

from __future__ import annotations

import numpy as np

from demur.kernels.formulas import class_terms

FARTHEST = 600.0  # exponents beyond this take the general way
FEW = 4096  # numbers up to which one slow call beats three fast ones
CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member

add = np.add.reduce


def expm1(d: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return ``exp(d) - 1``; NumPy's own is slow, and needed only where ``d`` is small."""
    if d.size <= FEW:
        return np.expm1(d)
    growth = np.exp(d)
    growth -= 1.0
    near = np.flatnonzero(size < 0.5)
    growth.reshape(-1)[near] = np.expm1(d.reshape(-1)[near])
    return growth


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
        chosen = logits[0]
    else:
        chosen = logits[weights.argmax(0), np.arange(inputs)]
    top = chosen.argmax(1)
    if inputs > 1:
        top += np.arange(0, inputs * classes, classes)  # places in the flattened array
    with np.errstate(invalid="ignore"):  # infinity less infinity: not for here, as the next test finds
        d = logits - chosen
        d -= d.reshape(members, -1).take(top, 1)[..., None]
    size = np.abs(d)
    if not size.max() <= FARTHEST:
        return None
    log_q = chosen - chosen.take(top)[:, None]
    q = np.exp(log_q)
    q.put(top, 0.0)  # its 1 would round away what log1p needs
    rest = add(q, 1, keepdims=True)
    q.put(top, 1.0)
    q /= 1.0 + rest
    log_q -= np.log1p(rest)
    growth = expm1(d, size)
    shift = add(q * growth, 2, keepdims=True)
    terms = np.empty((3, members, inputs, classes))
    a, u, au = terms
    np.divide(growth - shift, 1.0 + shift, a)
    np.subtract(d, np.log1p(shift), u)
    np.multiply(a, u, au)
    if weights is None:
        means = add(terms, 1) / members
    else:
        means = add(terms * (weights / add(weights))[..., None], 1)
    a, u, au = means
    k, i, entropy = add(class_terms(q, a, u, au, log_q, np.log1p), 2)
    if (entropy < CANCELLED * k).any():
        return None
    return np.array((entropy, k, i))
