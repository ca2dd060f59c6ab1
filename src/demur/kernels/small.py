"""Mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``wide``."""

from __future__ import annotations

import numpy as np

from demur.kernels.formulas import class_terms

FARTHEST = 600.0  # exponents beyond this take the general way
FEW = 4096  # numbers up to which one slow call beats three fast ones
CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member


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
    if not np.isfinite(logits).all():
        return None
    add = np.add.reduce
    inputs = np.arange(logits.shape[1])
    if weights is None:
        chosen = logits[0]
    else:
        chosen = logits[np.argmax(weights, axis=0), inputs]
    top = chosen.argmax(-1)
    below = chosen - chosen[inputs, top][:, None]
    q = np.exp(below)
    q[inputs, top] = 0.0  # its 1 would round away what log1p needs
    rest = add(q, -1, keepdims=True)
    q[inputs, top] = 1.0
    q /= 1.0 + rest
    log_q = below - np.log1p(rest)
    d = logits - logits[:, inputs, top][..., None] - below
    size = np.abs(d)
    if np.maximum.reduce(size, axis=None) > FARTHEST:
        return None
    growth = expm1(d, size)
    shift = add(q * growth, -1, keepdims=True)
    terms = np.empty((3, *d.shape))  # a, u and a u
    np.divide(growth - shift, 1.0 + shift, out=terms[0])
    np.subtract(d, np.log1p(shift), out=terms[1])
    np.multiply(terms[0], terms[1], out=terms[2])
    if weights is None:
        means = add(terms, 1) / len(d)
    else:
        means = add(terms * (weights / add(weights))[..., None], 1)
    a, u, au = means
    k, i, entropy = add(np.array(class_terms(q, a, u, au, log_q, np.log1p)), -1)
    if (entropy < CANCELLED * k).any():
        return None
    return np.array([entropy, k, i])
