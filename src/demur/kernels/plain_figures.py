"""Mean entropy, K and I of small NumPy arrays in few calls; the arithmetic is that of ``float64``."""

from __future__ import annotations

import contextlib

import numpy as np

from demur.core.class_terms import CLOSE, class_terms, mean_phi, phi_of_average

_FARTHEST = 600.0  # exponents beyond this take the general way
_FEW = 4096  # numbers up to which one slow call beats three fast ones
_CLOSE_ALL = 1e-13  # of K: below, members are so close that I takes care
_CANCELLED = 1e-3  # of K: an entropy below that is better summed member by member

_NOTHING = contextlib.nullcontext()

# As .max() and .any(), but at once.
_add, _largest, _least, _some = np.add.reduce, np.maximum.reduce, np.minimum.reduce, np.count_nonzero


def _expm1(d: np.ndarray) -> np.ndarray:
    """Return ``exp(d) - 1``; NumPy's own is slow, and needed only where ``d`` is small."""
    if d.size <= _FEW:
        return np.expm1(d)
    growth = np.exp(d)
    growth -= 1.0
    return np.expm1(d, out=growth, where=np.abs(d) < 0.5)


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
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
    share = 1 / members if weights is None else (weights / _add(weights))[..., None]
    finite = _largest(logits, None) < np.inf and _least(logits, None) > -np.inf
    with _NOTHING if finite else np.errstate(invalid="ignore"):  # infinity less infinity: not for here
        below = logits - _largest(logits, 2, keepdims=True)
        chosen = below[0] if weights is None else below[weights.argmax(0), np.arange(inputs)]
        d = below - chosen
        if not (_least(d, None) >= -_FARTHEST and _largest(d, None) <= _FARTHEST):
            return None
    top = chosen.argmax(1)
    if inputs > 1:
        top += np.arange(0, inputs * classes, classes)  # places in the flattened array
    log_q = chosen.copy()
    q = np.exp(log_q)
    q.put(top, 0.0)  # its 1 would round away what log1p needs
    rest = _add(q, 1, keepdims=True)
    q.put(top, 1.0)
    q /= 1.0 + rest
    log_q -= np.log1p(rest)
    a, u = _expm1(d), d
    shift = _dot(a, q)[..., None]
    a -= shift
    a *= share / (1.0 + shift)
    u -= np.log1p(shift)
    au = a * u
    u = _add(u) * share if weights is None else _add(u * share)
    a, au = _add(a), _add(au)
    phi, of_average = au + (u - a), (1.0 + a) * np.log1p(a) - a
    found = np.vecdot(class_terms(a, u, au, phi, of_average, log_q), q)
    if _least(found[1]) < _CLOSE_ALL:
        phi, of_average = mean_phi(a, u, au, au < CLOSE, np.where), phi_of_average(a, np.log1p, np.where)
        found = np.vecdot(class_terms(a, u, au, phi, of_average, log_q), q)
    return None if _some(found[0] < _CANCELLED * found[1]) else found
