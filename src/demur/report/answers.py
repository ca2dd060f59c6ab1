"""Answers of language models on a page: their text, and how doubtful each token is.

DIR/METHOD/tokens-SET.csv     a row per token, as demur score --tokens writes it; also .parquet, .npz, .json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.report.page_json import shorten_all
from demur.stores import COLUMN_SUFFIXES, StoreError, pick_column, pick_numbers, read_columns

_DOUBTFUL_SHARE = 0.95  # of the tokens of a set that are not marked
_LONGEST_ANSWER = 600  # tokens of an answer that are shown
_LONGEST_REST = 2000  # letters of what nobody scored
SURPRISAL = "surprisal"


@dataclass(frozen=True)
class AnswerTokens:
    """The tokens of the answers of a set, in the order of the answers.

    Attributes
    ----------
    texts
        (tokens,) what each token says.
    scores
        By column, (tokens,) each.
    begins
        (answers + 1,) where the tokens of each answer begin; of answers without, where the next ones do.
    limits
        Scores are lower limits, from lists of the likeliest tokens.
    """

    texts: np.ndarray
    scores: dict[str, np.ndarray]
    begins: np.ndarray
    limits: bool

    def describe_scales(self, names: Sequence[str]) -> list[list[Any]]:
        """Return by column from which score on a token is marked, and the score of the deepest shade."""
        finite = [values[np.isfinite(values)] for values in (self.scores[name] for name in names)]
        return [
            shorten_all(np.quantile(own, [_DOUBTFUL_SHARE, 0.995]), 4) if len(own) else [0, 0]
            for own in finite
        ]

    def describe_answer(self, row: int, text: str, names: Sequence[str]) -> dict[str, Any]:
        """Return what a page shows of an answer: its tokens with their scores, and what follows them."""
        begin, end = (int(place) for place in self.begins[row : row + 2])
        own = slice(begin, min(end, begin + _LONGEST_ANSWER))
        texts = self.texts[own].tolist()
        whole, rest = "".join(texts), ""
        if text.startswith(whole):
            rest = text[len(whole) :]
        cut = rest[:_LONGEST_REST] + ("…" if len(rest) > _LONGEST_REST else "")
        return {
            "tokens": texts,
            "values": [shorten_all(self.scores[name][own], 4) for name in names],
            "rest": cut,
        }


def read_tokens(folder: Path, name: str, rows: int) -> AnswerTokens | None:
    """Return the tokens of a set of so many answers; None where there is no file of them."""
    files = [folder / f"tokens-{name}{suffix}" for suffix in COLUMN_SUFFIXES]
    found = [file for file in files if file.exists()]
    if not found:
        return None
    path = found[0]
    if len(found) > 1:
        other = found[1].name
        raise StoreError(f"{path}: expected one file of tokens for a set, got {other} too: remove one")
    columns = read_columns(path)
    inputs, position = (pick_numbers(columns, each, path) for each in ("input", "position"))
    texts = pick_column(columns, "token", path).astype(str)
    if inputs.dtype.kind not in "iu" or (inputs < 0).any() or (inputs >= rows).any():
        raise StoreError(f"{path}: expected rows of {name} as input, from 0 to {rows - 1}: score both again")
    order = np.lexsort((position, inputs))
    scores = {}
    for column, values in columns.items():
        if values.dtype.kind == "f" and not column.endswith("_upper"):
            missing = np.isnan(values)
            if missing.any():
                raise StoreError(f"{path}: expected numbers in {column}, got NaN in row {missing.argmax()}")
            scores[column] = values[order]
    if not scores:
        raise StoreError(f"{path}: expected columns of scores, as pairwise_epistemic, got none")
    limits = any(column.endswith("_upper") for column in columns)
    return AnswerTokens(texts[order], scores, np.searchsorted(inputs[order], np.arange(rows + 1)), limits)
