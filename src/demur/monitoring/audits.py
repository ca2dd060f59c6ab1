"""Which kept inputs are audited: coins with known probabilities, the same for the same seed and input."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core.arrays import as_array, to_numpy

_ALLOWED_ERRORS = 7.0
_ALLOWED_INPUTS = 10.0
"""By so many standard errors, and inputs more, numbers of audits may differ from what is expected: honest
coins exceed it in fewer than one of a million streams."""


AUDIT, TIES = 0xA0D, 0x71E
"""What numbers are drawn for: who is audited, and the order of ties of `Drift`."""


@dataclass(frozen=True)
class AuditPlan:
    """With which probability a kept input is audited: by its score, and never less than the least.

    Parameters
    ----------
    steps : tuple of (score, probability)
        Inputs with scores up to this one, and above those before, have this probability. The last score is
        infinite.
    least : float
        The smallest probability that an input may have.
    """

    steps: tuple[tuple[float, float], ...]
    least: float

    @classmethod
    def parse(cls, audit: float | Sequence[tuple[float, float]], least: float | None) -> AuditPlan:
        """Return the plan of one probability, or of pairs of a score and a probability."""
        wish = "audit must be a probability such as 0.1, or pairs of a score and a probability such as "
        wish += "[(0.2, 0.05), (inf, 0.5)], with rising scores that end in inf"
        try:
            pairs: Any = [(math.inf, audit)] if np.isscalar(audit) else audit
            steps = tuple((float(score), float(probability)) for score, probability in pairs)
        except (TypeError, ValueError):
            raise ValueError(f"{wish}. Got {audit!r}.") from None
        if (
            not steps
            or steps[-1][0] != math.inf
            or any(not a[0] < b[0] for a, b in itertools.pairwise(steps))
        ):
            raise ValueError(f"{wish}. Got {audit!r}.")
        for _, probability in steps:
            if not 0 < probability <= 1:
                raise ValueError(
                    f"{wish}. Probabilities must be above 0, since what is never audited cannot be watched, "
                    f"and at most 1. Got {probability:g}."
                )
        smallest = min(probability for _, probability in steps)
        if least is None:
            least = smallest
        if not 0 < least <= smallest:
            raise ValueError(
                f"least must be above 0 and at most the smallest probability of audit, {smallest:g}. "
                f"Got {least!r}."
            )
        return cls(steps, float(least))

    def probabilities(self, scores: np.ndarray, given: Any = None) -> np.ndarray:
        """Return the probability of each input: by its score, or as given and checked."""
        if given is None:
            edges = np.array([score for score, _ in self.steps])
            values = np.array([probability for _, probability in self.steps])
            return values[np.searchsorted(edges, scores, side="left")]
        found = np.broadcast_to(to_numpy(as_array(given)).astype(float), scores.shape)
        wrong = ~((found >= self.least) & (found <= 1))
        if wrong.any():
            raise ValueError(
                f"probability must be from {self.least:g} (least=) to 1. Got {found[wrong][0]:g} at input "
                f"{int(np.argmax(wrong))}. Start the monitor with least= the smallest you will ever use."
            )
        return found


def toss_by_place(seed: int, start: int, number: int, *, purpose: int = AUDIT) -> np.ndarray:
    """Return uniform numbers of inputs from `start` on: the same in whatever pieces they are asked for.

    Numbers of another purpose are independent of these, though the seed is the same.

    Examples
    --------
    >>> bool(np.all(toss_by_place(0, 3, 4) == toss_by_place(0, 0, 7)[3:]))
    True
    """
    bits = np.random.Philox(key=np.random.SeedSequence([seed, purpose]).generate_state(2, np.uint64))
    bits.advance(start // 4)  # Each step of its counter gives four numbers.
    return np.random.Generator(bits).random(number + start % 4)[start % 4 :]


def toss_by_id(seed: int, ids: Sequence[str]) -> np.ndarray:
    """Return uniform numbers of inputs by their ids alone, in any order and on any machine."""
    salt = str(seed).encode()
    digests = [hashlib.blake2b(each.encode(), digest_size=8, key=salt[:64]).digest() for each in ids]
    return np.array([int.from_bytes(each, "little") >> 11 for each in digests], dtype=float) / 2**53


def check_number_audited(expected: float, variance: float, audited: int, kept: int) -> None:
    """Raise a `ValueError` where so many audits cannot have come from coins of these probabilities."""
    if abs(audited - expected) > _ALLOWED_ERRORS * math.sqrt(variance) + _ALLOWED_INPUTS:
        raise ValueError(
            f"audited must be drawn with the probabilities of audit=, which gives about {expected:.0f} of "
            f"{kept} kept inputs. Got {audited}. Pass what to_audit returned, with correct=nan where there "
            "is no label yet; if you know every truth, use audit=1."
        )
