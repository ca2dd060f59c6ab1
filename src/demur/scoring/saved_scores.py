"""Scores from files, as `Scores.save` and `demur score --out` write them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from demur.measures import PARTS, name_unit
from demur.scoring.score_table import ScoreTable
from demur.stores import StoreError, read_columns, write_columns
from demur.stores.block_store import open_columns_of
from demur.stores.urls import fetch_file, find_url

_NATS = name_unit("log", None)


def write_scores(
    path: Path, columns: dict[str, np.ndarray], facts: dict[str, Any], *, force: bool = False
) -> None:
    """Write scores, with their number of members and unit: in .json by themselves, else in columns.

    Nats need no column. A column of the same name, such as one of the user's or the members that each input
    had, stays.
    """
    if path.suffix.lower() != ".json":
        columns = add_facts(columns, facts)
    write_columns(path, columns, facts=facts, force=force)


def add_facts(columns: dict[str, np.ndarray], facts: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return columns with those of the number of members and of the unit, where it is not nats."""
    number = len(next(iter(columns.values())))
    told = {name: facts[name] for name in ("members", "unit") if facts[name] and name not in columns}
    told = {name: value for name, value in told.items() if value != _NATS}
    return columns | {name: np.full(number, value) for name, value in told.items()}


def read_scores(path: Path) -> dict[str, Any]:
    """Return the arguments of `Scores` from a file of columns."""
    url = find_url(path)
    if url is not None and path.suffix.lower() == ".json":
        with fetch_file(url) as copy:
            return read_scores(copy)
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
    facts = _read_facts(path) if path.suffix.lower() == ".json" else _take_facts(columns)
    if path.suffix.lower() == ".zarr":
        facts |= open_columns_of(path, "scores")[1]
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


def _take_facts(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Remove and return the facts that `write_scores` has put in columns; others of that name stay."""
    facts: dict[str, Any] = {}
    members, unit = columns.get("members"), columns.get("unit")
    if members is not None and members.dtype.kind in "iu":
        facts["members"] = int(members.max())
        facts |= {"unit": _NATS, "rule": "log"} if unit is None else {}
        if (members == members[0]).all():
            del columns["members"]
    if unit is not None and (unit == unit[0]).all() and (rule := _tell_rule(str(unit[0]))):
        facts |= {"unit": str(unit[0]), "rule": rule}
        del columns["unit"]
    return facts


def _tell_rule(unit: str) -> str | None:
    """Return the rule whose losses have a unit as `name_unit` writes it; None for another text.

    Examples
    --------
    >>> _tell_rule("bits"), _tell_rule("brier loss"), _tell_rule("the unit of the numbers"), _tell_rule("kg")
    ('log', 'brier', 'energy', None)
    """
    if unit == name_unit("energy", None):
        return "energy"
    if unit == name_unit("log", None) or _parse_unit(unit) is not None:
        return "log"
    return unit.removesuffix(" loss") if unit.endswith(" loss") else None


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
