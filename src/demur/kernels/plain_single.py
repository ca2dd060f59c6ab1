"""Mean entropy, K and I of large float32 arrays by NumPy, where numba is missing.

Relative to a reference ``q`` in the midst of the members, ``r = p / q`` and ``u = log r`` give, with means
over members, ``K = <q, E[r u]> - <q E r, E u>`` and ``I = <q, E[r u]> - <q E r, log E r>``: few passes over
arrays that fit in the cache, float32 exponentials, which NumPy has fast, and memory that is the same at every
call. There is no care where members agree; inputs for which that is not enough are told.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

MOVED = 4.0  # how far all logits of a member may move without taking digits from their differences
ROUGH = 0.02  # of I and of M, below which float32 exponentials lose digits of them,
ROUGHER = 0.05  # and where classes are few, so that their errors do not average out
CANCELLED = 0.1  # of K or of E phi: figures below that are differences of larger ones
CHUNK = 32  # members added up in float32
FEW = 4  # members whose mean is the reference
WIDE = 64  # classes from which a dot product of each row is the fastest sum,
LONG = 8192  # and up to which the library for these does not call for help from other threads
NARROW = 8  # classes below which they lie outermost in memory, so that loops run over inputs
NUMBERS = 1 << 20  # of a chunk's members times inputs times classes, worked on at a time

_local = threading.local()


def scratch(name: str, dtype: Any, *shape: int) -> np.ndarray:
    """Return memory of this thread: mapped and in the cache already, unlike what is new at every call."""
    rooms = _local.__dict__.setdefault("rooms", {})
    size = math.prod(shape)
    if name not in rooms or rooms[name].size < size:
        rooms[name] = np.empty(size, dtype)
    if shape[-1] >= NARROW:
        return rooms[name][:size].reshape(shape)
    return np.moveaxis(rooms[name][:size].reshape((shape[-1], *shape[:-1])), 0, -1)


def arranged(logits: np.ndarray) -> np.ndarray:
    """Return the same numbers as they are worked on fastest: the axis of few classes outermost in memory."""
    if logits.shape[2] >= NARROW:
        return logits
    turned = np.empty((logits.shape[2], *logits.shape[:2]), logits.dtype)
    for y, plane in enumerate(turned):
        plane[:] = logits[..., y]
    return np.moveaxis(turned, 0, -1)


def summarise(logits: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return entropy, K and I, (3, inputs), and the inputs for which it needs more than float32.

    Parameters
    ----------
    logits
        Shape (members, inputs, classes), float32, not checked.
    weights
        Shape (members, inputs), or None where all weigh the same.
    """
    inputs, classes = logits.shape[1:]
    found, enough = np.empty((3, inputs)), np.empty(inputs, bool)
    step = max(1, NUMBERS // (classes * min(len(logits), CHUNK)))
    with np.errstate(all="ignore"):  # what is not finite ends among the rejected
        for begin in range(0, inputs, step):
            part = slice(begin, begin + step)
            own = None if weights is None else weights[:, part]
            found[:, part], enough[part] = summarise_part(logits[:, part], own)
    return found, np.flatnonzero(~enough)


def summarise_part(logits: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of inputs that fit in the cache, and for which float32 was enough."""
    classes, shape = logits.shape[2], logits.shape[1:]
    if classes < NARROW and shape[0] == 1:  # alone, it would have its members added up in another order
        doubled = None if weights is None else np.repeat(weights, 2, axis=1)
        found, enough = summarise_part(np.repeat(logits, 2, axis=1), doubled)
        return found[:, :1], enough[:1]
    single = scratch("single", np.float32, 3, *shape)
    r, u, ru, qr, log_q, q = scratch("double", np.float64, 6, *shape)
    prepared(logits, weights, single[0], single[1], log_q)
    q[:] = single[1]
    add_members(logits, weights, single, r, u, ru)
    np.multiply(q, r, out=qr)
    of_ru = sums(ru, q)
    k = of_ru - sums(u, qr)
    mass = np.add.reduce(qr, 1) - np.add.reduce(q, 1)
    entropy = mass - of_ru - sums(log_q, qr)
    i = of_ru - sums(np.log(r, out=r), qr)
    smallest = np.minimum(np.minimum(i, k - i), entropy)
    rough = ROUGH if classes >= WIDE else ROUGHER
    enough = smallest > np.maximum(rough, CANCELLED * np.maximum(k, of_ru - mass))
    return np.array((entropy, k, i)), enough


def prepared(
    logits: np.ndarray, weights: np.ndarray | None, reference: np.ndarray, q: np.ndarray, log_q: np.ndarray
) -> None:
    """Write a reference in the midst of the members, or the heaviest where weights differ, q and log q."""
    each = np.arange(logits.shape[1])
    if weights is None:
        np.add.reduce(logits[:FEW], out=reference)
        reference /= np.float32(len(logits[:FEW]))
    else:
        reference[:] = logits[weights.argmax(0), each]
    top = reference.argmax(1)
    reference -= reference[each, top][:, None]
    np.exp(reference, out=q)
    q[each, top] = 0.0  # its 1 would round away what log1p needs
    rest = np.add.reduce(q, 1, np.float64)[:, None]
    q[each, top] = 1.0
    q /= (1.0 + rest).astype(np.float32)
    np.subtract(reference, np.log1p(rest), out=log_q)


def add_members(
    logits: np.ndarray,
    weights: np.ndarray | None,
    single: np.ndarray,
    of_r: np.ndarray,
    of_u: np.ndarray,
    of_ru: np.ndarray,
) -> None:
    """Write the means over members of ``r``, ``u`` and ``r u``."""
    reference, q, held = single
    top = q.argmax(1)
    means = of_r, of_u, of_ru
    for mean in means:
        mean[:] = 0.0
    shares = None if weights is None else (weights / weights.sum(0)).astype(np.float32)
    for begin in range(0, len(logits), CHUNK):
        chunk = logits[begin : begin + CHUNK]
        u, r = scratch("members", np.float32, 2, *chunk.shape)
        subtract(chunk, reference, u)
        # A move of all logits together changes nothing; a small one needs no pass over the numbers.
        moved = at_top(u, top)
        moved[np.abs(moved) < MOVED] = 0.0
        if moved.any():
            spread(u, moved, np.subtract)
        np.exp(u, out=r)
        # Both take the same rounded scale, so that r stays exp(u): the scale's error then cancels.
        scale = 1 / sums(r, q)
        spread(u, np.log(scale), np.add)
        spread(r, scale if shares is None else scale * shares[begin : begin + CHUNK], np.multiply)
        of_r += np.add.reduce(r, out=held)
        of_ru += np.einsum("mbc,mbc->bc", r, u, out=held)
        if shares is not None:
            spread(u, shares[begin : begin + CHUNK], np.multiply)
        of_u += np.add.reduce(u, out=held)
    if weights is None:
        for mean in means:
            mean /= len(logits)


def subtract(numbers: np.ndarray, reference: np.ndarray, out: np.ndarray) -> None:
    """Write numbers (members, inputs, classes) less the reference (inputs, classes)."""
    if out.shape[2] >= NARROW:
        np.subtract(numbers, reference, out=out)
        return
    for y in range(out.shape[2]):  # NumPy would take the short axis for its loop, as the numbers lie
        np.subtract(numbers[..., y], reference[..., y], out=out[..., y])


def at_top(numbers: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Return the numbers (members, inputs, classes) of each input's top class, (members, inputs)."""
    if numbers.shape[2] >= NARROW:
        return numbers[:, np.arange(len(top)), top]
    found = numbers[..., 0].copy()
    for y in range(1, numbers.shape[2]):
        np.copyto(found, numbers[..., y], where=top == y)
    return found


def sums(numbers: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return the sums over classes of a product; each the same whatever stands beside it."""
    if WIDE <= numbers.shape[-1] <= LONG:
        return np.vecdot(numbers, factors)
    return np.einsum("...c,...c->...", numbers, factors)


def spread(numbers: np.ndarray, by: np.ndarray, change: np.ufunc) -> None:
    """Change numbers (members, inputs, classes), in place, by one number a member and input."""
    classes, whole = numbers.shape[2], by[..., None]
    if NARROW <= classes < WIDE:
        # A short loop costs more to start than to run; repeated numbers make one long loop of them.
        whole = np.repeat(by, classes, axis=1).reshape(numbers.shape)
    change(numbers, whole, out=numbers)
