"""What names the rows of a table of scores: numbers of inputs, pixels and tasks, ids, and columns kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from demur.stores.column_names import ID_NAMES, LABEL_NAMES, list_names
from demur.stores.errors import StoreError

PLACE_NAMES = ("input", "row", "column", "position")
"""Columns that count inputs, and the pixels or positions of each."""

_OWN_NAMES = (*PLACE_NAMES, "task", "prediction", "prediction_name", "status")
"""Columns of scores that no column of predictions may replace."""


def merge_columns(
    tables: Sequence[tuple[str, Mapping[str, np.ndarray]]], id_column: str | None, keep: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return what all tables have beside their predictions, as the columns of scores are named.

    Parameters
    ----------
    tables
        What messages call each file, and its columns.
    id_column
        The column that names inputs; None: the first of id, ids, index and input.
    keep
        Columns that must be there.

    Returns
    -------
    dict
        The names of inputs as ``id``, true classes as ``label``, others as they are called. Ids and labels
        must agree in all tables. Other columns that do not, as the name of a member, are left out.
    """
    for name in (*keep, *([] if id_column is None else [id_column])):
        if not any(name in columns for _, columns in tables):
            known = list(dict.fromkeys(each for _, columns in tables for each in columns))
            raise StoreError(
                f"{tables[0][0]}: expected a column {name} beside the predictions, got "
                f"{list_names(known) or 'none'}: only .csv and .parquet have any"
            )
    found: dict[str, np.ndarray] = {}
    origin: dict[str, str] = {}
    differing: set[str] = set()
    for label, columns in tables:
        for name, values in _rename(columns, id_column).items():
            if name in _OWN_NAMES:
                raise StoreError(f"{label}: expected another name for the column {name}, which scores have")
            if name not in found:
                found[name], origin[name] = values, label
            elif not np.array_equal(found[name], values):
                if name in ("id", "label"):
                    row = int((found[name] != values).argmax()) if len(values) == len(found[name]) else 0
                    raise StoreError(
                        f"{label}: expected the same inputs in the same order as in {origin[name]}, got "
                        f"another {name} at input {row}: sort both files alike"
                    )
                differing.add(name)
    return {name: values for name, values in found.items() if name not in differing}


def _rename(columns: Mapping[str, np.ndarray], id_column: str | None) -> dict[str, np.ndarray]:
    """Return columns of one table under the names that they have beside scores."""
    lower = {name.lower(): name for name in reversed(list(columns))}
    ids = id_column or next((lower[each] for each in ID_NAMES if each in lower), None)
    label = next((lower[each] for each in LABEL_NAMES if each in lower), None)
    names = {ids: "id", label: "label"}
    found = {names.get(name, name): values for name, values in columns.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: name != "id")}


def name_rows(
    batch: Sequence[int],
    tasks: Sequence[str] | None,
    columns: Mapping[str, np.ndarray],
    *,
    first: int = 0,
) -> dict[str, np.ndarray]:
    """Return the columns that say which prediction a row of scores is about.

    Parameters
    ----------
    batch
        How many inputs there are, then how many pixels or tasks each has; rows count them in C order.
    tasks
        Names of the tasks, if the second axis is theirs.
    columns
        Of the inputs, repeated for each of their rows.
    first
        The number of the first input.

    Examples
    --------
    >>> found = name_rows((2, 2), ["toxic", "soluble"], {"id": np.array(["x", "y"])})
    >>> {name: values.tolist() for name, values in found.items()}
    {'input': [0, 0, 1, 1], 'task': ['toxic', 'soluble', 'toxic', 'soluble'], 'id': ['x', 'x', 'y', 'y']}
    """
    rows = int(np.prod(batch))
    indices = np.unravel_index(np.arange(rows), tuple(batch))
    found = {"input": indices[0] + first}
    inner = {2: ["position"], 3: ["row", "column"]}.get(
        len(batch), [f"axis_{k}" for k in range(1, len(batch))]
    )
    for name, index in zip(inner, indices[1:], strict=True):
        found |= {name: index} if tasks is None else {"task": np.array(tasks)[index]}
    return found | {name: values[indices[0]] for name, values in columns.items()}


def describe_row(rows: Mapping[str, np.ndarray], row: int) -> str:
    """Return what messages call a row of scores.

    Examples
    --------
    >>> describe_row({"input": np.array([0, 0]), "task": np.array(["toxic", "soluble"])}, 1)
    'input 0, task soluble'
    """
    places = [name for name in rows if name in (*PLACE_NAMES, "task") or name.startswith("axis_")]
    return ", ".join(f"{name} {rows[name][row]}" for name in places)
