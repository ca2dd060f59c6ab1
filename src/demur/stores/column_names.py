"""Names of columns: those of a table that holds no predictions, and names in messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from demur.stores.errors import StoreError

ID_NAMES = ("id", "ids", "index", "input")
"""Names of columns that name inputs, in lower case."""

LABEL_NAMES = ("label", "labels")
"""Names of columns that hold true classes, in lower case."""


def refuse_scores(path: Path, names: Iterable[str]) -> None:
    """Raise a `StoreError` where columns are those that `demur score` writes: scores are no predictions."""
    scores = [name for name in names if name.rpartition("_")[2] in ("total", "aleatoric", "epistemic")]
    if scores:
        raise StoreError(
            f"{path}: expected predictions, one column per class, got scores, as {scores[0]}: they are "
            "what demur score writes, for demur evaluate and demur report"
        )


def list_names(names: Sequence[str] | Mapping[str, Any]) -> str:
    """Return the first twelve names for a message."""
    known = list(names)
    return ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
