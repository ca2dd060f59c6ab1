"""Which columns of a table are predictions, and which stand beside them: ids, labels, text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demur.stores.column_names import ID_NAMES, LABEL_NAMES, list_names, refuse_scores
from demur.stores.errors import StoreError


class TableColumns:
    """Sorts the columns of one table, and collects those that are no predictions.

    A column stands beside the predictions if its cells are text, if it is called ``id``, ``ids``, ``index``,
    ``input``, ``label`` or ``labels``, or if it is named here. All others are predictions.

    Parameters
    ----------
    beside
        Names of more columns that are no predictions, though they hold numbers.
    wanted
        Names of the only columns that are predictions; none: all that are not beside them.
    order
        Names of the predictions in another table, whose order is to be followed.
    source
        What messages call that other table.
    single_cells
        Whether a cell may be empty though others of its row are not, since each is a prediction of its own.

    Attributes
    ----------
    names
        Names of the predictions, in the order in which they are read; None where the table has no names.
    columns
        The columns beside them, (inputs,) each.
    """

    def __init__(
        self,
        beside: Collection[str] = (),
        *,
        wanted: Sequence[str] = (),
        order: Sequence[str] | None = None,
        source: str = "",
        single_cells: bool = False,
    ) -> None:
        self._named_beside = frozenset(beside)
        self._wanted, self._order, self._source = tuple(wanted), order, source
        self.single_cells = single_cells
        self.names: tuple[str, ...] | None = None
        self._cells: dict[str, list[Any]] = {}

    def is_beside(self, name: str) -> bool:
        """Tell whether a column stands beside the predictions because of its name."""
        return name in self._named_beside or name.lower() in (*ID_NAMES, *LABEL_NAMES)

    def choose(self, path: Path, names: Sequence[str], texts: Sequence[bool]) -> list[int]:
        """Return the places of the predictions; `texts` says which columns hold text."""
        if len(set(names)) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise StoreError(f"{path}: expected a different name for each column, got {twice!r} twice")
        places = {
            name: place
            for place, (name, text) in enumerate(zip(names, texts, strict=True))
            if not (text or self.is_beside(name))
        }
        refuse_scores(path, places)
        if self._wanted:
            missing = [name for name in self._wanted if name not in places]
            if missing:
                squares = (
                    "; a variance is the square of a standard deviation" if "variance" in missing else ""
                )
                raise StoreError(
                    f"{path}: expected columns {' and '.join(self._wanted)} of numbers, got "
                    f"{list_names(names)}: rename them{squares}"
                )
            places = {name: places[name] for name in self._wanted}
        if self._order is not None and set(places) != set(self._order):
            odd = next(iter(set(places) ^ set(self._order)))
            raise StoreError(
                f"{path}: expected the columns {list_names(self._order)}, as in {self._source}, got "
                f"{list_names(list(places)) or 'none'} ({odd!r} is only in one of them): name them alike"
            )
        self.names = tuple(places if self._order is None else self._order)
        self._cells = {name: [] for place, name in enumerate(names) if place not in places.values()}
        return [places[name] for name in self.names]

    def add(self, name: str, cells: Sequence[Any] | np.ndarray) -> None:
        """Collect the next cells of a column beside the predictions."""
        self._cells[name].append(np.asarray(cells))

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """What was collected; a column that is text in one block is text in all."""
        found = {}
        for name, parts in self._cells.items():
            if not parts:
                continue
            texts = any(part.dtype.kind == "U" for part in parts)
            found[name] = np.concatenate([part.astype(str) for part in parts] if texts else parts)
        return found
