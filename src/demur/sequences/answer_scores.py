"""Scores of answers from records of services: a row per prompt and, if asked for, per token.

Prompts are taken a few at a time, so that memory holds their scores and the lists of a thousand tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.measures import canonical_name
from demur.scoring.score_table import PARTS
from demur.sequences.answer_records import ReadAnswer, Service, mend_text, read_answer
from demur.sequences.service_responses import count_compared
from demur.sequences.top_log_probs import Bounds, TopLogProbs, check_bound_options
from demur.stores import AnswerRecord, StoreError

_TOKENS_AT_ONCE = 1024
_PROMPTS_AT_ONCE = 256
UPPER = "_upper"
"""Ends the names of columns with upper limits."""
_OWN_COLUMNS = ("input", "id", "text", "members", "tokens", "perplexity", "status", "correct")
_READ_FIELDS = ("id", "member", "text", "logprobs", "response", "token_ids", "correct")
NO_TOKENS = "no tokens with log-probabilities"


@dataclass(frozen=True)
class AnswerScores:
    """Scores by column, (prompts,) and (tokens,); the latter None where they were not asked for."""

    columns: dict[str, np.ndarray]
    token_columns: dict[str, np.ndarray] | None


@dataclass(frozen=True)
class _Prompt:
    """What is kept of a prompt until its tokens are scored."""

    row: int
    place: str
    answers: list[ReadAnswer]
    length: int


def score_answers(
    prompts: Iterable[list[AnswerRecord]],
    service: Service,
    *,
    measures: Sequence[str] = ("pairwise", "average", "reverse"),
    vocabulary: int | None = None,
    base: float | None = None,
    rounding: float = 1e-6,
    keep: Sequence[str] = (),
    per_token: bool = False,
    progress: Callable[[int], object] = lambda done: None,
) -> AnswerScores:
    """Return scores of the answers to each prompt.

    Members are compared as long as their answers agree, and at the first token where they do not. Columns
    ``{measure}_{part}`` hold the lower limit of the exact value per token, and for the measure "average",
    which has upper limits, ``{measure}_{part}_upper`` these. Other columns are of the answer of the first
    member: its text, its perplexity, other fields of text, ``correct``, and what `keep` names.

    Parameters
    ----------
    prompts
        The records of each prompt, as ``AnswerFiles`` yields them.
    service
        Who returned the log-probabilities.
    measures, vocabulary, base, rounding
        As for ``TopLogProbs.bounds``.
    keep
        Fields of numbers that become columns.
    per_token
        Whether to keep the scores of each token.
    progress
        Called with the number of prompts done.
    """
    names = [canonical_name(each) for each in measures]
    scorer = _Scorer(names, {"vocabulary": vocabulary, "base": base, "rounding": rounding}, per_token)
    rows: list[dict[str, Any]] = []
    waiting: dict[int, list[_Prompt]] = {}
    for row, records in enumerate(prompts):
        answers = [read_answer(record, service, rounding) for record in records]
        length = count_compared([(answer.keys, answer.lists) for answer in answers])
        own_fields = _read_fields(records[0], keep)
        rows.append(
            {"input": row, "id": mend_text(records[0].id)}
            | own_fields
            | {"text": answers[0].text, "members": len(records), "tokens": length}
            | {"perplexity": _measure_perplexity(answers[0])}
        )
        if length:
            # Members count the same, so that those with as many are scored together.
            own = waiting.setdefault(len(records), [])
            own.append(_Prompt(row, records[0].place, answers, length))
            if len(own) >= _PROMPTS_AT_ONCE or sum(each.length for each in own) >= _TOKENS_AT_ONCE:
                scorer.score(waiting.pop(len(records)))
        progress(row + 1)
    for own in waiting.values():
        scorer.score(own)
    return scorer.finish(rows)


class _Scorer:
    """Scores prompts by all measures at once, and keeps their columns."""

    def __init__(self, names: list[str], options: dict[str, Any], per_token: bool) -> None:
        self.names, self.options, self.per_token = names, options, per_token
        _, self.scale = check_bound_options(names, **options)
        self.found: dict[int, dict[str, float]] = {}
        self.tokens: dict[int, dict[str, list[Any]]] = {}

    def score(self, prompts: list[_Prompt]) -> None:
        """Score prompts that have as many members."""
        lists = [
            [prompt.answers[m].lists[: prompt.length] for prompt in prompts]
            for m in range(len(prompts[0].answers))
        ]
        try:
            bounds = TopLogProbs(lists).bounds_of(self.names, **self.options)
        except ValueError as error:
            if len(prompts) > 1:  # which of them is it?
                for prompt in prompts:
                    self.score([prompt])
                return
            raise StoreError(f"{prompts[0].place}: {error}") from error
        ends = dict(zip(self.names, bounds, strict=True))
        per_token = {name: own.per_token for name, own in ends.items()}
        for n, prompt in enumerate(prompts):
            self.found[prompt.row] = _name_parts(per_token, n)
            if self.per_token:
                own = slice(0, prompt.length)
                first = prompt.answers[0]
                # Copies, which do not keep the arrays of all these prompts.
                parts = {name: part.copy() for name, part in _name_parts(ends, (n, own)).items()}
                self.tokens[prompt.row] = {
                    "id": [],
                    "input": [prompt.row] * prompt.length,
                    "position": list(range(prompt.length)),
                    "token": first.tokens[own],
                    "surprisal": [self.scale * each for each in first.surprisals[own]],
                    **parts,
                }

    def finish(self, rows: list[dict[str, Any]]) -> AnswerScores:
        """Return all columns."""
        count = len(rows)
        if not self.found:
            raise StoreError("answers: expected some tokens with log-probabilities, got none in any answer")
        table = _gather_columns(rows)
        if np.isnan(table["perplexity"][sorted(self.found)]).any():
            del table["perplexity"]  # a service may not say how likely a token was that came
        if len(self.found) < count:
            table["status"] = np.array(["ok" if row in self.found else NO_TOKENS for row in range(count)])
        for name in next(iter(self.found.values())):
            table[name] = np.array([self.found.get(row, {}).get(name, math.nan) for row in range(count)])
        if not self.per_token:
            return AnswerScores(table, None)
        whole: dict[str, np.ndarray] = {}
        ordered = [self.tokens[row] for row in sorted(self.tokens)]
        for name in ordered[0]:
            whole[name] = np.concatenate([np.asarray(own[name]) for own in ordered])
        whole["id"] = table["id"][whole["input"]]
        if np.isnan(whole["surprisal"]).any():
            del whole["surprisal"]
        return AnswerScores(table, whole)


def _gather_columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return columns of rows, in the order of the first; text that a row lacks is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    for row in rows:
        if ("correct" in names) != ("correct" in row):
            raise StoreError(f"id {row['id']!r}: expected correct in the records of all prompts, or of none")
    return {name: np.array([row.get(name, "") for row in rows]) for name in names}


def _name_parts(ends: dict[str, Bounds], place: Any) -> dict[str, Any]:
    """Return lower limits, and upper ones of measures that have them, at a place."""
    found = {}
    for name, own in ends.items():
        found |= {f"{name}_{part}": getattr(own.lower, part)[place] for part in PARTS}
        if name == "average":
            found |= {f"{name}_{part}{UPPER}": getattr(own.upper, part)[place] for part in PARTS}
    return found


def _measure_perplexity(answer: ReadAnswer) -> float:
    """Return the perplexity of an answer under who gave it, of the tokens whose probability is known."""
    known = [each for each in answer.surprisals if math.isfinite(each)]
    return math.exp(min(sum(known) / len(known), 700.0)) if known else math.nan


def _read_fields(record: AnswerRecord, keep: Sequence[str]) -> dict[str, Any]:
    """Return what a record says besides its answer: text, whether it is right, and what is to be kept."""
    found: dict[str, Any] = {}
    for name, value in record.content.items():
        if name in _READ_FIELDS or name in keep:
            continue
        if isinstance(value, str) or (name in ("label", "prediction") and type(value) is int):
            if name in _OWN_COLUMNS or name.endswith(tuple(f"_{part}" for part in PARTS)):
                raise StoreError(
                    f"{record.place}: expected another name for the field {name}, which scores have"
                )
            found[name] = mend_text(value) if isinstance(value, str) else value
    right = record.content.get("correct")
    if right is not None:
        if right not in (0, 1):
            raise StoreError(f"{record.place}: expected true or false as correct, got {str(right)[:40]!r}")
        found["correct"] = int(right)
    for name in keep:
        value = record.content.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise StoreError(f"{record.place}: expected a number as {name}, got {str(value)[:40]!r}")
        found[name] = value
    return found
