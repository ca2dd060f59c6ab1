"""Mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``wide``."""

from __future__ import annotations

import numpy as np

from demur.kernels.formulas import class_terms

FARTHEST = 30.0  # exponents beyond this, where 1 + expm1 loses digits, take the general way
CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member


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
    if np.maximum.reduce(np.abs(d), axis=None) > FARTHEST:
        return None
    growth = np.expm1(d)
    shift = add(q * growth, -1, keepdims=True)
    u = d - np.log1p(shift)
    a = (growth - shift) / (1.0 + shift)
    if weights is None:
        scale = 1.0 / logits.shape[0]
        means = add(a) * scale, add(u) * scale, add(a * u) * scale
    else:
        share = (weights / add(weights))[..., None]
        means = add(share * a), add(share * u), add(share * (a * u))
    k, i, entropy = (add(term, -1) for term in class_terms(q, *means, log_q, np.log1p))
    if (entropy < CANCELLED * k).any():
        return None
    return np.array([entropy, k, i])
