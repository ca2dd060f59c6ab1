"""Mean entropy, K and I of large float32 arrays by NumPy, where numba is missing.

The arithmetic of ``wide_single`` without its care where members agree: whole arrays that fit in the cache,
float32 exponentials, which NumPy has fast. Inputs for which that is not enough are told.
"""

from __future__ import annotations

import threading

import numpy as np

from demur.kernels.formulas import class_terms

FARTHEST = 80.0  # the exponential of a larger difference is no float32
ROUGH = 0.03  # of K, below which float32 exponentials lose digits of it
CANCELLED = 0.2  # of K or of E phi: figures below that are differences of larger ones
CHUNK = 32  # members added up in float32
NARROW = 64  # classes below which arrays are turned so that inputs come last

_local = threading.local()


def scratch(size: int) -> np.ndarray:
    """Return float32 memory of this thread, the same at every call: it is mapped and in the cache already."""
    room = getattr(_local, "room", None)
    if room is None or room.size < size:
        room = _local.room = np.empty(size, np.float32)
    return room


def summarise(logits: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return (3, inputs), and the inputs for which it needs more than float32.

    Parameters
    ----------
    logits
        Shape (members, inputs, classes), float32, not checked.
    weights
        Shape (members, inputs), or None where all weigh the same.
    """
    members, inputs, classes = logits.shape
    each = np.arange(inputs)
    chosen = logits[0] if weights is None else logits[weights.argmax(0), each]
    top = chosen.argmax(1)
    offsets = logits[:, each, top] - chosen[each, top]
    share = np.ones(()) if weights is None else weights / weights.sum(0)
    with np.errstate(all="ignore"):  # what is not finite ends among the rejected
        log_q = (chosen - chosen[each, top][:, None]).astype(np.float64)
        log_q -= np.log(np.exp(log_q).sum(1, keepdims=True))
        narrow = classes < NARROW  # then inputs come last: the longer axis is the faster one
        if narrow:
            logits, chosen, log_q = logits.swapaxes(1, 2), chosen.T, np.ascontiguousarray(log_q.T)
        along = 0 if narrow else 1  # the classes' axis of (inputs, classes)
        q = np.exp(log_q).astype(np.float32)
        means, far = np.zeros((3, *q.shape)), np.zeros(q.shape, np.float32)
        room = scratch(3 * min(CHUNK, members) * q.size)
        for begin in range(0, members, CHUNK):
            chunk = slice(begin, begin + CHUNK)
            count = min(CHUNK, members - begin)
            terms = room[: 3 * count * q.size].reshape((3, count, *q.shape))
            a, u, au = terms
            np.subtract(logits[chunk], chosen, out=u)
            u -= np.expand_dims(offsets[chunk], along + 1)
            np.maximum(far, u.max(0), out=far)
            np.maximum(far, -u.min(0), out=far)
            np.exp(u, out=a)
            total = np.multiply(a, q, out=au).sum(along + 1, keepdims=True)
            a *= 1 / total
            a -= 1
            u -= np.log(total)
            np.multiply(a, u, out=au)
            if weights is not None:
                terms *= np.expand_dims(share[chunk], along + 1).astype(np.float32)
            means += terms.sum(1)
        if weights is None:
            means /= members
        double = q.astype(np.float64)
        a, u, au = means
        k, i, entropy = np.sum(class_terms(double, a, u, au, log_q, np.log1p), axis=along + 1)
        apart = np.sum(double * (au + u - a), axis=along)
        smallest = np.minimum(np.minimum(i, k - i), entropy)
        enough = far.max(along) < FARTHEST
        enough &= (k > ROUGH) & (smallest > CANCELLED * np.maximum(k, apart))
    return np.array((entropy, k, i)), np.flatnonzero(~enough)
