"""Tables of several members side by side: columns matched by name, and rows by their index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TableLabels:
    """Names of the columns and of the rows of a table; None where it has none, as polars has no rows'."""

    columns: list[Any] | None
    index: Any


def is_table(argument: object) -> bool:
    """Tell whether this is a table or column of pandas or polars."""
    named = hasattr(argument, "columns") or hasattr(argument, "loc")
    return named and hasattr(argument, "to_numpy")


def align_tables(given: Any, labels: TableLabels | None = None) -> tuple[Any, TableLabels | None]:
    """Return a table, or a list with tables, in the order of earlier ones, and the labels to follow.

    Other arguments are returned as they are. Members whose labels are not the same are a ValueError.

    Parameters
    ----------
    given
        What the user gave: a table, a list with one per member, or anything else.
    labels
        Of the tables before; None: the first one sets them.
    """
    if is_table(given):
        return _align(given, labels, "")
    if not isinstance(given, (list, tuple)) or not any(map(is_table, given)):
        return given, labels
    aligned = []
    for place, item in enumerate(given):
        if is_table(item):
            item, labels = _align(item, labels, f", at {place}")
        aligned.append(item)
    return aligned, labels


def join_labels(one: TableLabels | None, other: TableLabels | None) -> TableLabels | None:
    """Return the labels of sums over two sets of tables; those in another order are a ValueError."""
    if one is None or other is None:
        return one or other
    same = one.columns is None or other.columns is None or one.columns == other.columns
    if not same or not (one.index is None or other.index is None or one.index.equals(other.index)):
        raise ValueError(
            "Expected Moments of tables with the same columns and rows in the same order. "
            f"Got {one.columns} and {other.columns}, or rows in another order. Sort the tables alike."
        )
    return one


def _align(table: Any, labels: TableLabels | None, where: str) -> tuple[Any, TableLabels]:
    """Return a table in the order of labels; it sets them where there are none."""
    own = TableLabels(
        list(table.columns) if hasattr(table, "columns") else None,
        table.index if hasattr(table, "loc") else None,
    )
    if labels is None:
        return table, own
    if own.columns is not None and labels.columns is not None and own.columns != labels.columns:
        if not _have_the_same(own.columns, labels.columns):
            if len(own.columns) != len(labels.columns):
                return table, labels  # of another shape, which is refused with more to say
            raise ValueError(
                "Expected tables with the same columns, one table per member. "
                f"Got {labels.columns} and{where and f'{where},'} {own.columns}. "
                "Rename them, or give table.to_numpy() where the order is right."
            )
        table = table[labels.columns]
    if own.index is not None and labels.index is not None and not own.index.equals(labels.index):
        if len(own.index) != len(labels.index):
            return table, labels
        unique = own.index.is_unique and labels.index.is_unique
        if not (unique and own.index.isin(labels.index).all()):
            strange = own.index[~own.index.isin(labels.index)]
            came = f"{strange[0]!r}, which is not in the first" if len(strange) else "a row twice"
            raise ValueError(
                f"Expected tables with the same index, one row per input. Got{where and f'{where},'} {came}. "
                "Give the same inputs, or table.reset_index(drop=True) where the order is right."
            )
        table = table.loc[labels.index]
    return table, labels


def _have_the_same(one: list[Any], other: list[Any]) -> bool:
    """Tell whether two lists of names hold the same ones, each once."""
    return len(one) == len(other) == len(set(one)) and set(one) == set(other)
