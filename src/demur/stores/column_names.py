"""Names of columns: those of a table that holds no predictions, and names in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from demur.stores.errors import StoreError

_NOT_CLASSES = ("id", "index", "input", "label", "labels")
"""Names of columns that stand beside predictions, in lower case."""


def refuse_scores(path: Path, names: Iterable[str]) -> None:
    """Raise a `StoreError` where columns are those that `demur score` writes: scores are no predictions."""
    scores = [name for name in names if name.rpartition("_")[2] in ("total", "aleatoric", "epistemic")]
    if scores:
        raise StoreError(
            f"{path}: expected predictions, one column per class, got scores, as {scores[0]}: they are "
            "what demur score writes, for demur evaluate and demur report"
        )


def refuse_labels(path: Path, names: Iterable[str]) -> None:
    """Raise a `StoreError` where a column names or labels inputs: it must not count as a class."""
    for name in names:
        if name.lower() in _NOT_CLASSES:
            raise StoreError(
                f"{path}: expected one column per class, got the column {name!r}, whose name is not "
                "that of a class: leave it out"
            )


def list_names(names: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the first twelve names for a message."""
    known = list(names)
    return ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
