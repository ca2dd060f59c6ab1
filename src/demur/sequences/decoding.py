"""Which token comes next: the likeliest, a draw, or the beginnings of several answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logsumexp


@dataclass(frozen=True)
class Decoding:
    """How answers are written; checked.

    Attributes
    ----------
    decode
        ``"average"``, or the number of the member that writes.
    sample, temperature
        Draw tokens, at this temperature.
    beams
        Answers that are followed at a time.
    most
        Tokens of an answer, at most.
    members
        How many members there are.
    """

    decode: Any
    sample: bool
    temperature: float
    beams: int
    most: int
    members: int

    def __post_init__(self) -> None:
        known = isinstance(self.decode, int) and 0 <= self.decode < self.members
        if self.decode != "average" and not known:
            raise ValueError(
                f"decode must be 'average' or the number of a member, 0 to {self.members - 1}. "
                f"Got {self.decode!r}."
            )
        if not np.isfinite(self.temperature) or self.temperature <= 0:
            raise ValueError(f"temperature must be a number above 0. Got {self.temperature!r}.")
        for name, value in (("num_beams", self.beams), ("max_new_tokens", self.most)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer. Got {value!r}.")
        if self.beams > 1 and self.sample:
            raise ValueError("num_beams and do_sample do not go together. Leave one of them out.")

    @property
    def writer(self) -> int | None:
        """The member that writes; None: all of them."""
        return None if self.decode == "average" else self.decode


def average_next(
    logits: np.ndarray,
    normalisers: np.ndarray,
    seen: np.ndarray,
    prior: np.ndarray,
    average: str,
    writer: int | None,
) -> np.ndarray:
    """Return probabilities of the next token under who writes, float32 (inputs, vocabulary).

    Parameters
    ----------
    logits
        Shape (members, inputs, vocabulary).
    normalisers
        The log of the sum of their exponentials, (members, inputs).
    seen
        Log-likelihood of the tokens so far, (members, inputs), for the average by sequence.
    prior
        Weights of members, (members,) or (members, inputs).
    average
        ``"step"`` or ``"sequence"``.
    writer
        A member that writes alone; None: the average does.
    """
    if writer is not None:
        own = slice(writer, writer + 1)
        logits, normalisers, seen, prior = logits[own], normalisers[own], seen[own], np.ones(1)
    with np.errstate(divide="ignore"):
        logs = np.log(prior).reshape((len(logits), -1)) + (seen if average == "sequence" else 0.0)
    # Members that weigh less than float32 can tell add nothing.
    shift = logs - np.asarray(logsumexp(logs, axis=0)) - normalisers
    found = np.empty(logits.shape[1:], np.float32)
    term = np.empty(logits.shape[2], np.float32)
    for n, row in enumerate(found):
        row[:] = 0.0
        for own, by in zip(logits[:, n], shift[:, n], strict=True):
            np.exp(np.add(own, np.float32(by), out=term), out=term)
            row += term
    return found


def choose_tokens(probs: np.ndarray, decoding: Decoding, rng: np.random.Generator) -> np.ndarray:
    """Return the next token of each input."""
    if not decoding.sample:
        return probs.argmax(axis=-1)
    uniform, found = rng.random(len(probs)), np.empty(len(probs), np.int64)
    for n, row in enumerate(probs):
        if decoding.temperature != 1:
            row = (row / row.max()) ** (1 / decoding.temperature)
        sums = np.cumsum(row, dtype=np.float64)
        # The first token at which the sum exceeds the draw; one of probability 0 never is.
        found[n] = np.searchsorted(sums, uniform[n] * sums[-1], side="right")
    return found


@dataclass
class Beams:
    """The beginnings of several answers to one prompt, the likeliest of their length.

    Attributes
    ----------
    width
        How many are followed.
    ends
        Tokens that end an answer.
    """

    width: int
    ends: list[int]
    _open: list[tuple[float, list[int]]] = field(default_factory=lambda: [(0.0, [])])
    _done: list[tuple[float, list[int]]] = field(default_factory=list)

    def extend(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Extend every answer by a token; return which rows go on, in order, and by which tokens.

        ``logs`` are log-probabilities of the next token, (rows, vocabulary), in the order of the rows that
        were returned last. Answers that end are set aside. None go on once no open answer can become
        likelier than the best one that has ended.
        """
        totals = np.array([log for log, _ in self._open])[:, None] + logs
        most = min(totals.size, self.width * (1 + len(self.ends)))
        best = np.argpartition(-totals, most - 1, axis=None)[:most]
        best = best[np.argsort(-totals.reshape(-1)[best], kind="stable")]
        grown: list[tuple[float, list[int]]] = []
        rows: list[int] = []
        for place in best:
            row, token = divmod(int(place), logs.shape[1])
            answer = float(totals[row, token]), [*self._open[row][1], token]
            if token in self.ends:
                self._done.append(answer)
            elif len(grown) < self.width:
                grown.append(answer)
                rows.append(row)
        self._open = grown
        # A longer answer is never likelier than its beginning.
        finished = self._done and grown and max(self._done)[0] >= grown[0][0]
        if finished or not grown:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.array(rows), np.array([answer[-1] for _, answer in grown])

    def best(self) -> list[int]:
        """Return the likeliest answer."""
        return max([*self._done, *self._open], key=lambda answer: answer[0])[1]
