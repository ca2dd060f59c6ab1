"""Scores from files, as `Scores.save` and `demur score --out` write them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from demur.scoring.score_table import PARTS, ScoreTable
from demur.stores import StoreError, read_columns


def read_scores(path: Path) -> dict[str, Any]:
    """Return the arguments of `Scores` from a file of columns."""
    columns = read_columns(path)
    count = len(next(iter(columns.values())))
    ids, deployed = columns.pop("id", None), columns.pop("deployed", None)
    labels, predictions = (_take_spread(columns, name) for name in ("label", "prediction"))
    measures = [name[: -len("_total")] for name in columns if name.endswith("_total")]
    measures = [name for name in measures if all(f"{name}_{part}" in columns for part in PARTS)]
    if not measures:
        raise StoreError(
            f"{path}: expected the columns of a measure, as pairwise_total, pairwise_aleatoric and "
            f"pairwise_epistemic, got {', '.join(columns) or 'none'}"
        )
    own: dict[str, np.ndarray] = {"input": columns.pop("input", np.arange(count))}
    own |= {} if predictions is None else {"prediction": predictions}
    facts = _read_facts(path) if path.suffix.lower() == ".json" else {}
    table = ScoreTable(
        own | columns, tuple(measures), _get_count(facts, "members"), _get_count(facts, "classes")
    )
    rule, unbiased = facts.get("rule"), facts.get("unbiased")
    return {
        "table": table,
        "labels": labels,
        "ids": ids,
        "deployed": deployed,
        "rule": rule if isinstance(rule, str) else None,
        "base": _parse_unit(facts.get("unit")),
        "unbiased": unbiased if isinstance(unbiased, bool) else None,
        "outcome": _tell_outcome(predictions, rule),
    }


def _take_spread(columns: dict[str, np.ndarray], name: str) -> np.ndarray | None:
    """Remove and return a column, or those that are numbered from 0, (inputs, entries)."""
    if name in columns:
        return columns.pop(name)
    numbered = []
    while f"{name}_{len(numbered)}" in columns:
        numbered.append(columns.pop(f"{name}_{len(numbered)}"))
    return np.stack(numbered, axis=1) if numbered else None


def _tell_outcome(predictions: np.ndarray | None, rule: Any) -> str:
    """Return what is predicted: numbers are floating, several labels are not."""
    if rule == "energy":
        return "points"
    if predictions is None or predictions.dtype.kind != "f":
        return "classes" if predictions is None or predictions.ndim == 1 else "multilabel"
    return "numbers"


def _read_facts(path: Path) -> dict[str, Any]:
    """Return what a JSON file says besides its columns, which were read and checked before."""
    held = json.loads(path.read_text("utf-8-sig"))
    return held if isinstance(held.get("scores"), dict) else {}


def _get_count(facts: dict[str, Any], name: str) -> int:
    """Return a number of members or classes; 0 where the file does not say."""
    found = facts.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _parse_unit(unit: Any) -> float | None:
    """Return the base of a unit as `name_unit` writes it; None for nats and losses."""
    if unit == "bits":
        return 2.0
    found = re.fullmatch(r"units of log ([0-9.e+]+)", unit) if isinstance(unit, str) else None
    return None if found is None else float(found[1])
