"""Mean entropy, K and I of large float32 arrays by NumPy, where numba is missing.

The sums are those of ``brief``, but for two classes, which need less; in few passes over arrays that fit in
the cache, unless classes are many, with float32 exponentials, which NumPy has fast. There is no care where
members agree; inputs for which that is not enough are told.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from demur.kernels.formulas import noise

ROUGH = 0.05  # of I, of M and of the entropy, below which float32 exponentials lose digits of them,
ROUGHER = 0.07  # and where classes are few, so that their errors do not average out
CANCELLED = 0.1  # of K or of E phi: figures below that are differences of larger ones
ASIDE = 0.02  # of how far the mean is from the middle: figures below that lose digits to the distance
LARGEST = 1e30  # of p / q: beyond, float32 may have few digits of q,
FAR = -50.0  # which no class has whose logit is so far below the highest at most
AS_SINGLE: dict[str, Any] = {"dtype": np.float32, "casting": "same_kind"}
ONE, SIGN = np.float32(1.0), np.int32(-(2**31))
CHUNK = 32  # members added up in float32,
MANY = 1024  # and where there are two classes, in pairs
FEW = 4  # members, the first, whose mean is the reference
WIDE = 64  # classes from which a dot product of each row is the fastest sum,
LONG = 8192  # and up to which the library for these does not call for help from other threads
NARROW = 8  # classes below which they lie outermost in memory, so that loops run over inputs
NUMBERS = 1 << 20  # of a chunk's members times inputs times classes, worked on at a time
KEPT = 8 * NUMBERS  # numbers up to which memory is kept for the next call

_local = threading.local()


def room(name: str, dtype: Any, *shape: int) -> np.ndarray:
    """Return memory of this thread: mapped and in the cache already, unlike what is new at every call."""
    rooms = _local.__dict__.setdefault("rooms", {})
    size = math.prod(shape)
    if size > KEPT:
        return np.empty(shape, dtype)
    if name not in rooms or rooms[name].size < size:
        rooms[name] = np.empty(size, dtype)
    return rooms[name][:size].reshape(shape)


def scratch(name: str, dtype: Any, *shape: int) -> np.ndarray:
    """Do so with the axis of few classes, the last, outermost in memory."""
    if shape[-1] >= NARROW:
        return room(name, dtype, *shape)
    return np.moveaxis(room(name, dtype, shape[-1], *shape[:-1]), 0, -1)


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
    way, most = (summarise_two, MANY) if classes == 2 else (summarise_part, CHUNK)
    step = max(1, NUMBERS // (classes * min(len(logits), most)))
    with np.errstate(all="ignore"):  # what is not finite ends among the rejected
        for begin in range(0, inputs, step):
            part = slice(begin, begin + step)
            own = None if weights is None else weights[:, part]
            found[:, part], enough[part] = way(logits[:, part], own)
    return found, np.flatnonzero(~enough)


def summarise_part(
    logits: np.ndarray, weights: np.ndarray | None, *, aligned: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of inputs that fit in the cache, and for which float32 was enough.

    ``aligned``: take from the logits of each member how far all of them have moved together.
    """
    classes, shape = logits.shape[2], logits.shape[1:]
    if classes < WIDE and shape[0] == 1:  # alone, it would have its members added up in another order
        doubled = None if weights is None else np.repeat(weights, 2, axis=1)
        found, enough = summarise_part(np.repeat(logits, 2, axis=1), doubled, aligned=aligned)
        return found[:, :1], enough[:1]
    single = scratch("single", np.float32, 3, *shape)
    r, d, qr, log_q = scratch("double", np.float64, 4, *shape)
    prepared(logits, weights, single[0], single[1], log_q)
    t, log_s, moved = add_members(logits, weights, single, r, d, aligned=aligned)
    np.multiply(single[1], r, out=qr)
    net = t - log_s
    largest = np.maximum.reduce(r, 1) if np.minimum.reduce(single[0], None) < FAR else 0.0
    # Errors of float32 logarithms average out over many classes.
    log_r = np.log(r, out=r) if classes < WIDE else np.log(r, out=single[2], **AS_SINGLE)
    entropy, k, i = -net - sums(log_q, qr), t - sums(d, qr), net - sums(log_r, qr)
    of_phi = net + 1.0 - np.add.reduce(qr, 1)
    rough = ROUGH if classes >= WIDE else ROUGHER
    smallest = np.minimum(np.minimum(i, k - i), entropy)
    rises = (smallest > np.maximum(rough, CANCELLED * np.maximum(k, of_phi))) & (largest < LARGEST)
    enough = rises & (smallest > noise(moved, len(logits)))
    found, again = np.array((entropy, k, i)), np.flatnonzero(rises & ~enough)
    if again.size and not aligned:
        own = None if weights is None else weights[:, again]
        found[:, again], enough[again] = summarise_part(logits[:, again], own, aligned=True)
    return found, enough


def summarise_two(logits: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Do the same for two classes, by one number a member: ``x``, its second logit less the first.

    With ``e = exp(-|x|)`` the smaller probability is ``w = e / (1 + e)``, the entropy ``log(1 + e) + |x| w``;
    K is the covariance of the second probability with ``x``.
    """
    means = np.zeros((4, logits.shape[1]))
    shares = shares_of(weights)
    reference = room("single", np.float32, logits.shape[1], 2)
    write_reference(logits, weights, reference)
    middle = reference[:, 1] - reference[:, 0]
    for begin, end in chunks(len(logits), MANY):
        x, e, total, p, sign = room("members", np.float32, 5, end - begin, logits.shape[1])
        np.subtract(logits[begin:end, :, 1], logits[begin:end, :, 0], out=x)
        # Signs by their bit, which takes a third of the time of copysign.
        negative = np.bitwise_or(x.view(np.int32), SIGN, out=p.view(np.int32)).view(np.float32)
        np.bitwise_and(x.view(np.int32), SIGN, out=sign.view(np.int32))
        np.exp(negative, out=e)
        np.add(e, ONE, out=total)
        w = np.divide(e, total, out=e)
        entropy = np.log(total, out=total)
        entropy -= np.multiply(negative, w, out=negative)
        # Half of the difference of the probabilities: the second, less a half that changes no covariance.
        half = np.subtract(ONE / 2, w, out=p)
        np.bitwise_or(half.view(np.int32), sign.view(np.int32), out=half.view(np.int32))
        x -= middle
        own = None if shares is None else shares[begin:end]
        for mean, each in zip(means, (entropy, half, x, np.multiply(half, x, out=e)), strict=True):
            mean += weighed(each, own)
    entropy, half, x, half_x = means if shares is not None else means / len(logits)
    k, i = half_x - half * x, -entropy
    for probability in (0.5 + half, 0.5 - half):
        i -= probability * np.log(probability)
    smallest, aside = np.minimum(np.minimum(i, k - i), entropy), ASIDE * np.abs(x)
    enough = smallest > np.maximum(np.maximum(ROUGHER, CANCELLED * k), aside)
    return np.array((entropy, k, i)), enough


def shares_of(weights: np.ndarray | None) -> np.ndarray | None:
    """Return which part of the weight each member has, or None where no weights were given."""
    return None if weights is None else (weights / weights.sum(0)).astype(np.float32)


def weighed(numbers: np.ndarray, shares: np.ndarray | None) -> np.ndarray:
    """Return sums over members, (inputs,), each the same whatever stands beside it; changes the numbers."""
    left = len(numbers)
    if shares is not None:
        numbers *= shares
    while left > 1:  # halves on halves: long loops, and small errors
        half = left // 2
        numbers[:half] += numbers[left - half : left]
        left -= half
    return numbers[0].astype(np.float64)


def write_reference(logits: np.ndarray, weights: np.ndarray | None, out: np.ndarray) -> None:
    """Write logits, (inputs, classes), near those of the members: a mean, or those of the heaviest."""
    if weights is None:
        np.add.reduce(logits[:FEW], out=out)
        out /= np.float32(len(logits[:FEW]))
    else:
        out[:] = logits[weights.argmax(0), np.arange(logits.shape[1])]


def prepared(
    logits: np.ndarray, weights: np.ndarray | None, reference: np.ndarray, q: np.ndarray, log_q: np.ndarray
) -> None:
    """Write the reference, its highest logit brought to 0, its probabilities q, and log q."""
    each = np.arange(logits.shape[1])
    write_reference(logits, weights, reference)
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
    of_d: np.ndarray,
    *,
    aligned: bool,
) -> np.ndarray:
    """Write means over members of ``p / q`` and ``d``; return those of ``t / s``, ``log s``, ``|log s|``."""
    reference, q, held = single
    of_members = np.empty((3, *logits.shape[:2]), np.float32)
    of_r[:] = of_d[:] = 0.0
    shares = shares_of(weights)
    for begin, end in chunks(len(logits), min(CHUNK, max(1, NUMBERS // logits.shape[2]))):
        d, r = scratch("members", np.float32, 2, end - begin, *logits.shape[1:])
        subtract(logits[begin:end], reference, d)
        np.exp(d, out=r)
        s = sums(r, q)
        if aligned:
            # From the logits first: their difference to a distant reference would lose digits.
            np.subtract(logits[begin:end], np.log(s)[..., None], out=d)
            d -= reference
            np.exp(d, out=r)
            s = sums(r, q)
        own = None if shares is None else shares[begin:end]
        of_r += added(r, 1 / s if own is None else own / s, held)
        of_d += np.add.reduce(d, out=held) if own is None else added(d, own, held)
        t, log_s, size = of_members[:, begin:end]
        np.divide(sums(np.multiply(r, d, out=d), q), s, out=t)
        np.abs(np.log(s, out=log_s), out=size)
    means = np.array([weighed(of_members[k], shares) for k in range(3)])
    if shares is None:
        for mean in (of_r, of_d, means):
            mean /= len(logits)
    return means


def chunks(members: int, most: int) -> Iterator[tuple[int, int]]:
    """Return ranges of members, all about as long, none longer than ``most``."""
    count = -(-members // most)
    yield from itertools.pairwise(members * i // count for i in range(count + 1))


def subtract(numbers: np.ndarray, reference: np.ndarray, out: np.ndarray) -> None:
    """Write numbers (members, inputs, classes) less the reference (inputs, classes)."""
    if out.shape[2] >= NARROW:
        np.subtract(numbers, reference, out=out)
        return
    for y in range(out.shape[2]):  # NumPy would take the short axis for its loop, as the numbers lie
        np.subtract(numbers[..., y], reference[..., y], out=out[..., y])


def sums(numbers: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return the sums over classes of a product; each the same whatever stands beside it."""
    if numbers.ndim == 3 and NARROW <= numbers.shape[-1] < WIDE:
        return np.matmul(numbers.transpose(1, 0, 2), factors[:, :, None])[..., 0].T
    if numbers.shape[-1] < WIDE:
        return np.einsum("...c,...c->...", numbers, factors)
    if numbers.shape[-1] <= LONG:
        return np.vecdot(numbers, factors)
    parts = [slice(begin, begin + LONG) for begin in range(0, numbers.shape[-1], LONG)]
    found = [np.vecdot(numbers[..., part], factors[..., part]) for part in parts]
    return np.add.reduce(found, dtype=np.float64).astype(numbers.dtype, copy=False)


def added(numbers: np.ndarray, shares: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write the sums over members of numbers (members, inputs, classes) times shares (members, inputs)."""
    if NARROW <= numbers.shape[-1] < WIDE:
        np.matmul(shares.T[:, None], numbers.transpose(1, 0, 2), out=out[:, None])
        return out
    return np.einsum("mbc,mb->bc", numbers, shares, out=out)
