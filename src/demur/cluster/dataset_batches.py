"""Batches of a Dataset of Ray: the same ones whichever tables, and machines, its rows are in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from demur.cluster.deaths import is_of_death
from demur.scoring.batch_parts import ID_NAMES, LABEL_NAMES

_MOST_READS = 5
"""Times that reading a Dataset begins anew without any progress."""


class DatasetBatches:
    """The batches of a ``ray.data.Dataset``, as a loader: the same ones in one process and on a cluster.

    A batch is a table of pandas where each column of inputs has one number for an input, and a mapping from
    names to arrays else. The names ``labels``, ``ids`` and their like stand for just that.

    Parameters
    ----------
    dataset
        The Dataset; rows keep its order.
    batch
        Inputs of a batch.
    """

    def __init__(self, dataset: Any, batch: int) -> None:
        self.dataset, self.batch = dataset, batch
        self.row_bytes = 0  # of one input, by the first table

    def __iter__(self) -> Iterator[Any]:
        import ray

        for pieces in cut_batches(self.iterate_tables(), self.batch):
            yield join_rows([(ray.get(reference), cut) for reference, cut in pieces])

    def iterate_tables(self) -> Iterator[tuple[Any, tuple[int, int]]]:
        """Yield references to tables in order, each with its rows, (start, stop); nothing is fetched.

        Reading begins anew where a machine died that Ray cannot replace in the middle; rows that came before
        are left out then.
        """
        from ray.exceptions import RayError

        done = failures = 0
        while True:
            position = 0
            try:
                for reference, rows in self._iterate_whole_tables():
                    start = min(max(0, done - position), rows)
                    position += rows
                    if start < rows:
                        done, failures = position, 0
                        yield reference, (start, rows)
                return
            except RayError as error:
                failures += 1
                if failures == _MOST_READS or not is_of_death(error):
                    raise

    def _iterate_whole_tables(self) -> Iterator[tuple[Any, int]]:
        for bundle in self._iterate_bundles():
            for reference, facts in zip(bundle.block_refs, bundle.metadata, strict=True):
                if facts.num_rows:
                    self.row_bytes = self.row_bytes or (facts.size_bytes or 0) // facts.num_rows
                    yield reference, facts.num_rows

    def _iterate_bundles(self) -> Iterator[Any]:
        from ray.data import DataContext

        context = getattr(self.dataset, "context", None) or DataContext.get_current()
        options = context.execution_options
        before = options.preserve_order, context.enable_progress_bars
        options.preserve_order, context.enable_progress_bars = True, False
        try:
            yield from self.dataset.iter_internal_ref_bundles()
        finally:
            options.preserve_order, context.enable_progress_bars = before


def is_dataset(loader: Any) -> bool:
    """Tell whether this is a Dataset of Ray; Ray is not imported for the answer."""
    return any(kind.__module__.startswith("ray.data.") for kind in type(loader).__mro__)


def cut_batches(tables: Any, rows: int) -> Iterator[list[tuple[Any, tuple[int, int]]]]:
    """Yield parts of tables that have so many rows together; the last may have fewer.

    Examples
    --------
    >>> list(cut_batches([("a", (0, 3)), ("b", (0, 2))], 2))
    [[('a', (0, 2))], [('a', (2, 3)), ('b', (0, 1))], [('b', (1, 2))]]
    """
    found: list[tuple[Any, tuple[int, int]]] = []
    lacking = rows
    for table, (start, stop) in tables:
        while start < stop:
            end = min(stop, start + lacking)
            found.append((table, (start, end)))
            lacking -= end - start
            start = end
            if not lacking:
                yield found
                found, lacking = [], rows
    if found:
        yield found


def join_rows(pieces: list[tuple[Any, tuple[int, int]]]) -> Any:
    """Return rows of tables as one batch: a table of pandas, or a mapping of arrays."""
    from ray.data.block import BlockAccessor

    parts = [BlockAccessor.for_block(table).slice(start, stop) for table, (start, stop) in pieces]
    columns = [BlockAccessor.for_block(part).to_numpy() for part in parts]
    if not isinstance(columns[0], dict):
        raise ValueError("loader must be a Dataset of named columns. Got one without names.")
    joined = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    inputs = [values for name, values in joined.items() if name not in LABEL_NAMES + ID_NAMES]
    if len(inputs) > 1 and all(values.ndim == 1 and values.dtype.kind in "fiub" for values in inputs):
        import pandas

        return pandas.DataFrame({name: list(v) if v.ndim > 1 else v for name, v in joined.items()})
    return joined


@contextlib.contextmanager
def quiet_datasets() -> Iterator[None]:
    """Keep Ray's log of what a Dataset does off the terminal."""
    import logging

    logger = logging.getLogger("ray.data")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
