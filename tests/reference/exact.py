"""The log-loss measures in mpmath, with more digits than any cancellation here can take.

Inputs are taken as the exact real numbers that the arrays hold, whatever their dtype, so float16
and bfloat16 logits have one right answer too. Exponents are unbounded: exp(-1e300) is not zero,
and only a logit of -inf or a probability of exactly zero excludes a class.
"""

from typing import NamedTuple

import mpmath
import numpy as np
import numpy.typing as npt

DIGITS = 60  # beyond those that 1 - p needs to differ from one

Array = npt.NDArray[np.float64]

# Every array library asks about the same numbers, and sixty digits are slow.
KNOWN: dict[tuple, "Exact"] = {}


def digits_for(values: Array, kind: str) -> int:
    """Digits in which the least probable class still changes 1 - p; no more than a thousand."""
    allowed = np.isfinite(values) if kind == "logits" else values > 0
    logs = values if kind == "logits" else np.log(np.where(allowed, values, 1.0))
    lowest = np.where(allowed, logs, np.inf).min()
    return DIGITS + int(min(np.where(allowed, logs, -np.inf).max() - lowest, 2000.0) / np.log(10.0))


class Exact(NamedTuple):
    """Correctly rounded values per input, in nats."""

    pairwise: Array  # K
    average: Array  # I
    reverse: Array  # M
    entropy: Array  # mean entropy of the members
    total: Array  # expected pairwise cross-entropy


def distributions_of_logits(row: list[float]) -> tuple[list, list]:
    """Probabilities and log-probabilities of one member, as mpf."""
    top = max(row)
    shifted = [mpmath.mpf(z) - mpmath.mpf(top) if z > -np.inf else None for z in row]
    exponentials = [mpmath.exp(d) if d is not None else mpmath.mpf(0) for d in shifted]
    whole = mpmath.fsum(exponentials)
    log_whole = mpmath.log(whole)
    probabilities = [e / whole for e in exponentials]
    logs = [d - log_whole if d is not None else -mpmath.inf for d in shifted]
    return probabilities, logs


def distributions_of_probs(row: list[float]) -> tuple[list, list]:
    """Probabilities, divided by their exact sum, and their logarithms."""
    whole = mpmath.fsum(mpmath.mpf(p) for p in row)
    probabilities = [mpmath.mpf(p) / whole for p in row]
    return probabilities, [mpmath.log(p) if p > 0 else -mpmath.inf for p in probabilities]


def measure_one(members: list[tuple[list, list]], weights: list) -> tuple:
    """K, I, M, mean entropy and pairwise total of one input."""
    whole = mpmath.fsum(weights)
    shares = [w / whole for w in weights]
    pairwise, average, entropy = [], [], []
    infinite = False
    for y in range(len(members[0][0])):
        mean = mpmath.fdot((w, p[y]) for w, (p, _) in zip(shares, members, strict=True))
        if mean == 0:
            continue
        negentropy = mpmath.fdot(
            (w * p[y], logs[y]) for w, (p, logs) in zip(shares, members, strict=True) if p[y] > 0
        )
        entropy.append(-negentropy)
        average.append(negentropy - mean * mpmath.log(mean))
        if any(p[y] == 0 for p, _ in members):
            infinite = True
        else:
            mean_log = mpmath.fdot((w, logs[y]) for w, (_, logs) in zip(shares, members, strict=True))
            pairwise.append(negentropy - mean * mean_log)
    k = mpmath.inf if infinite else mpmath.fsum(pairwise)
    i, h = mpmath.fsum(average), mpmath.fsum(entropy)
    return k, i, k - i, h, k + h


def measures(
    *,
    logits: npt.ArrayLike | None = None,
    probs: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
) -> Exact:
    """K, I and M of (members, *batch, classes), with weights (members,) or (members, *batch)."""
    assert (logits is None) != (probs is None)
    arguments = (logits, probs, weights)
    # The same numbers in whatever type a library holds them.
    key = tuple(
        None if a is None else (np.shape(a), np.asarray(a).astype(np.float64).tobytes()) for a in arguments
    )
    if key not in KNOWN:
        KNOWN[key] = compute(*arguments)
    return KNOWN[key]


def compute(
    logits: npt.ArrayLike | None, probs: npt.ArrayLike | None, weights: npt.ArrayLike | None
) -> Exact:
    """The same without looking whether it was asked before."""
    # float64 holds every float16, bfloat16 and float32 number exactly.
    values = np.asarray(probs if logits is None else logits).astype(np.float64)
    distributions = distributions_of_probs if logits is None else distributions_of_logits
    members, batch = values.shape[0], values.shape[1:-1]
    shares = np.ones(members) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = np.broadcast_to(
        shares.reshape(members, *[1] * len(batch)) if shares.ndim == 1 else shares,
        (members, *batch),
    )
    result = np.empty((5, *batch))
    with mpmath.workdps(digits_for(values, "probs" if logits is None else "logits")):
        for index in np.ndindex(*batch):
            kept = [i for i in range(members) if shares[(i, *index)] > 0]
            rows = [distributions(values[(i, *index)].tolist()) for i in kept]
            own = [mpmath.mpf(float(shares[(i, *index)])) for i in kept]
            result[(slice(None), *index)] = [float(value) for value in measure_one(rows, own)]
    return Exact(*result)


def dirichlet(alpha: npt.ArrayLike) -> dict[str, float]:
    """The population K, I and M when members are drawn from a Dirichlet distribution.

    K = (C - 1) / sum(alpha); mean entropy = psi(a0 + 1) - sum_y a_y / a0 psi(a_y + 1).
    """
    with mpmath.workdps(DIGITS):
        values = [mpmath.mpf(float(a)) for a in np.asarray(alpha)]
        whole = mpmath.fsum(values)
        mean = [a / whole for a in values]
        entropy = mpmath.digamma(whole + 1) - mpmath.fsum(
            m * mpmath.digamma(a + 1) for m, a in zip(mean, values, strict=True)
        )
        pairwise = (len(values) - 1) / whole
        average = -mpmath.fsum(m * mpmath.log(m) for m in mean) - entropy
        return {
            "entropy": float(entropy),
            "pairwise": float(pairwise),
            "average": float(average),
            "reverse": float(pairwise - average),
            "total": float(entropy + pairwise),
        }
