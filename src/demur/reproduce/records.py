"""Tables as lists of records, a dictionary for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Records = list[dict[str, Any]]


def select_records(records: Records, **facts: Any) -> Records:
    """Return the records with these values.

    Examples
    --------
    >>> select_records([{"data": "yacht", "mean": 0.1}, {"data": "wine", "mean": 0.2}], data="wine")
    [{'data': 'wine', 'mean': 0.2}]
    """
    return [row for row in records if all(row[name] == value for name, value in facts.items())]


def convert_to_columns(records: Records) -> dict[str, np.ndarray]:
    """Return records as columns by name."""
    return {name: np.array([row[name] for row in records]) for name in records[0]}


def convert_to_records(columns: Mapping[str, np.ndarray]) -> Records:
    """Return columns by name as records, with Python's own numbers and texts.

    Examples
    --------
    >>> convert_to_records({"data": np.array(["yacht", "wine"]), "mean": np.array([0.1, 0.2])})
    [{'data': 'yacht', 'mean': 0.1}, {'data': 'wine', 'mean': 0.2}]
    """
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def name_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
    """Return rows of values as columns by name."""
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
