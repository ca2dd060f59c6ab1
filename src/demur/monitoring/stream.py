"""What one server saw: its audited inputs, the capital of the bets on them, and the ids that it knows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from demur.tasks.betting import Bettors, error_factors, list_stakes, locate_start

RIGHT, WRONG, MISSING = 0, 1, -1
_NO_ID = ("None", "nan", "<NA>", "NaT")
"""How Python, NumPy and pandas write that there is none."""


class AuditedInput(NamedTuple):
    """A kept input that was audited.

    `place` counts inputs of the stream from 0, kept or not; `outcome` is RIGHT, WRONG or MISSING.
    """

    place: int
    group: str
    score: float
    probability: float
    outcome: int


class GroupBets:
    """Bets on the audited inputs of one group, in their order.

    An input without a label counts as right until its label comes: capital rises with each error, so it is
    never above what it will be, whatever the reason that a label is missing. `settled` is the capital before
    the first input without a label.
    """

    def __init__(self, limit: float, least: float) -> None:
        self.limit, self.least = limit, least
        self.inputs: list[AuditedInput] = []
        self.counts: dict[float, list[int]] = {}
        self.settled = Bettors(np.zeros(len(list_stakes())))
        self.current = self.settled.copy()
        self._factors: dict[float, np.ndarray] = {}

    def factors(self, audited: AuditedInput) -> np.ndarray:
        """Return by what the capitals are multiplied."""
        if audited.probability not in self._factors:
            self._factors[audited.probability] = error_factors(self.limit, self.least, audited.probability)
        return self._factors[audited.probability][int(audited.outcome == WRONG)]

    def add(self, audited: AuditedInput) -> float:
        """Bet on one more input, and return the capital then."""
        self.inputs.append(audited)
        self.counts.setdefault(audited.probability, [0, 0, 0])[audited.outcome] += 1
        capital = self.current.bet(self.factors(audited))
        self._settle()
        return capital

    def resolve(self, labels: Sequence[tuple[int, int]]) -> float:
        """Take labels of inputs that had none, and return the largest capital since the first without one."""
        for index, outcome in labels:
            audited = self.inputs[index]
            counts = self.counts[audited.probability]
            counts[MISSING] -= 1
            counts[outcome] += 1
            self.inputs[index] = audited._replace(outcome=outcome)
        largest = self.current.total
        if any(outcome == WRONG for _, outcome in labels):  # the others counted as right already
            self.current = self.settled.copy()
            for each in self.inputs[self.settled.count :]:
                largest = max(largest, self.current.bet(self.factors(each)))
        self._settle()
        return largest

    def _settle(self) -> None:
        """Move the settled capital up to the next input without a label."""
        if self.counts_of(MISSING) == 0:
            self.settled = self.current.copy()
            return
        while self.inputs[self.settled.count].outcome != MISSING:
            self.settled.bet(self.factors(self.inputs[self.settled.count]))

    def counts_of(self, outcome: int) -> int:
        """Return how many audited inputs have an outcome."""
        return sum(each[outcome] for each in self.counts.values())

    def locate_start(self, end: float) -> int | None:
        """Return the place from which on bets on the inputs before place `end` won the most."""
        known = [self.factors(each) for each in self.inputs if each.place < end]
        if not known:
            return None
        factors = np.stack(known)
        return self.inputs[locate_start(factors)].place


class ServerStream:
    """Inputs of one server, in their order."""

    def __init__(self, seed: int, limits: Mapping[str, float], least: float) -> None:
        self.seed = seed
        self.observed = 0
        self.drawn = 0
        self.kept = dict.fromkeys(limits, 0)
        self.expected = self.variance = 0.0
        self.bets = {group: GroupBets(limit, least) for group, limit in limits.items()}
        self.ids: dict[str, tuple[str, int] | None] = {}  # Where among the audited inputs of which group.
        self.trail = Trail(seed)

    @property
    def audited(self) -> int:
        """How many kept inputs were audited."""
        return sum(len(each.inputs) for each in self.bets.values())

    @property
    def known(self) -> int:
        """How many of them have a label."""
        return self.audited - sum(each.counts_of(MISSING) for each in self.bets.values())


class Trail:
    """Checksums of the first 1, 2, 4, 8, ... inputs: by them a stream knows its earlier and later states."""

    def __init__(self, seed: int) -> None:
        self.count, self.sum, self.marks = 0, zlib.crc32(str(seed).encode()), list[int]()

    def describe(self) -> list[Any]:
        """Return all as JSON can hold it."""
        return [self.count, self.sum, self.marks]

    def take(self, described: Sequence[Any]) -> None:
        """Become what `describe` or `extend` returned."""
        self.count, self.sum, self.marks = described[0], described[1], list(described[2])

    def extend(self, scores: np.ndarray, codes: np.ndarray, ids: Sequence[str] = ()) -> list[Any]:
        """Return what more inputs make of it: scores, a number for what is known of each, and any ids."""
        columns = [scores, codes]
        if ids:  # Servers whose scores are all the same are told apart by these.
            columns.append(np.array([zlib.crc32(each.encode()) for each in ids], float))
        content = np.column_stack(columns)
        count, found, marks, begin = self.count, self.sum, list(self.marks), 0
        while begin < len(content):
            end = min(len(content), begin + (1 << len(marks)) - count)
            found = zlib.crc32(np.ascontiguousarray(content[begin:end]).tobytes(), found)
            count += end - begin
            begin = end
            if count == 1 << len(marks):
                marks.append(found)
        return [count, found, marks]

    def is_same(self, other: Trail) -> bool:
        """Return whether one goes on where the other ended, as far as their common checksums tell."""
        if self.count == other.count:
            return self.sum == other.sum
        shared = min(len(self.marks), len(other.marks))
        return shared > 0 and self.marks[:shared] == other.marks[:shared]


def read_outcomes(correct: Any, number: int, wanted: np.ndarray) -> np.ndarray:
    """Return RIGHT, WRONG or MISSING of each input; those not wanted may be anything.

    Labels that are not there yet are nan or None.
    """
    if correct is None:
        return np.full(number, MISSING, np.int8)
    if isinstance(correct, list | tuple | np.ndarray):
        values = np.asarray(correct)
    else:
        from demur.core.arrays import as_array, to_numpy

        values = to_numpy(as_array(correct))
    if values.shape != (number,):
        raise ValueError(f"correct must have shape ({number},), one per score. Got {values.shape}.")
    if values.dtype.kind == "O":
        values = np.array([math.nan if each is None else each for each in values])
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"correct must be True, False or, where it is not known yet, nan. Got {values.dtype}."
        )
    numbers = values.astype(float)
    odd = wanted & ~(np.isnan(numbers) | (numbers == 0) | (numbers == 1))
    if odd.any():
        first = int(np.argmax(odd))
        raise ValueError(
            "correct must be True (or 1) where the prediction is right, False (or 0) where it is wrong, and "
            f"nan where that is not known yet. Got {numbers[first]:g} at input {first}."
        )
    return np.where(np.isnan(numbers), MISSING, np.where(numbers == 1, RIGHT, WRONG)).astype(np.int8)


def read_ids(ids: Any, number: int) -> list[str] | None:
    """Return ids as text, one per input."""
    if ids is None:
        return None
    listed = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(listed) != number:
        raise ValueError(f"ids must be one per score, {number}. Got {len(listed)}.")
    for index, each in enumerate(listed):
        if each == "" if isinstance(each, str) else str(each) in _NO_ID:
            raise ValueError(f"ids must not be empty. Got {each!r} at input {index}.")
    return [str(each) for each in listed]


def join_outcomes(ids: Sequence[str], outcomes: np.ndarray) -> np.ndarray:
    """Return the outcome of each input, which is known if any of the same id has a label."""
    known: dict[str, int] = {}
    for name, outcome in zip(ids, outcomes.tolist(), strict=True):
        if outcome != MISSING and known.setdefault(name, outcome) != outcome:
            raise ValueError(
                f"correct must be the same wherever an id comes again. Got right and wrong for {name!r}."
            )
    return np.array([known.get(name, MISSING) for name in ids], np.int8)


def find_new(ids: Sequence[str] | None, known: Mapping[str, Any], number: int) -> np.ndarray:
    """Return True for inputs whose id comes for the first time."""
    if ids is None:
        return np.ones(number, bool)
    new = np.zeros(number, bool)
    seen: set[str] = set()
    for index, name in enumerate(ids):
        new[index] = name not in known and name not in seen
        seen.add(name)
    return new
