"""Blocks: batches that are done together, or again; from any loader, or from a Dataset of Ray.

A block travels as references: the batches of a loader are put into Ray's store, those of a Dataset are there
already, and only the worker that scores them takes them out. Where a batch begins and ends does not depend on
the cluster, so that matrix products, and draws that belong to a place in the data set, are the same
everywhere.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demur.cluster.pool import is_of_death
from demur.posteriors.networks import copy_inputs
from demur.scoring.batch_parts import ID_NAMES, LABEL_NAMES, Unpack
from demur.scoring.batches import InputBatch, open_batch, preserve_generators
from demur.scoring.job import ScoringJob

_MOST_BYTES = 64 << 20
"""Bytes of inputs at which a block is closed: workers hold two blocks at a time."""

_MOST_READS = 5
"""Times that reading a Dataset begins anew without any progress."""


@dataclass(frozen=True)
class Block:
    """Some batches, as references.

    Attributes
    ----------
    number, position, size
        Which block it is, the number of its first input in the whole data set, and how many it has.
    references
        What Ray's store holds: batches as they are, or tables of a Dataset.
    cuts
        Of tables, which rows belong to the block, (start, stop) for each; None where batches are whole.
    batch
        Of tables, the inputs of a batch.
    """

    number: int
    position: int
    size: int
    references: tuple[Any, ...]
    cuts: tuple[tuple[int, int], ...] | None = None
    batch: int = 0

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"inputs {self.position} to {self.position + self.size - 1}"

    @property
    def bare(self) -> Block:
        """The same without its references, which travel as arguments."""
        return replace(self, references=())

    def open(self, held: tuple[Any, ...], unpack: Unpack | None) -> Iterator[InputBatch]:
        """Yield the batches, from what the references stand for."""
        if self.cuts is None:
            yield from pickle.loads(held[0])
            return
        position = self.position
        for pieces in _cut_batches(list(zip(held, self.cuts, strict=True)), self.batch):
            batch = open_batch(_join_rows(pieces), position, unpack=unpack, label_axes=2)
            yield batch
            position += batch.size


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

        for pieces in _cut_batches(self.iterate_tables(), self.batch):
            yield _join_rows([(ray.get(reference), cut) for reference, cut in pieces])

    def iterate_tables(self) -> Iterator[tuple[Any, tuple[int, int]]]:
        """Yield references to tables in order, each with its rows, (start, stop); nothing is fetched.

        Reading begins anew where a machine died that Ray cannot replace in the middle; rows that came before
        are left out then.
        """
        import ray

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
            except ray.exceptions.RayError as error:
                failures += 1
                if failures == _MOST_READS or not is_of_death(ray, error):
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


def iterate_blocks(ray: Any, job: ScoringJob, rows: int) -> Iterator[Block]:
    """Yield the blocks of a job, each of at least so many inputs, in whole batches."""
    whole = isinstance(job.loader, DatasetBatches)
    empty = True
    for block in _cut_dataset(job.loader, rows) if whole else _cut_loader(ray, job, rows):
        empty = False
        yield block
    if empty:
        raise ValueError("loader must have inputs. Got none.")


def renew_block(job: ScoringJob, rows: int, block: Block) -> Block:
    """Return a block whose references were lost, read again; what a loader brought is in this process."""
    if not isinstance(job.loader, DatasetBatches):
        return block
    return next(each for each in _cut_dataset(job.loader, rows) if each.number == block.number)


def _cut_loader(ray: Any, job: ScoringJob, rows: int) -> Iterator[Block]:
    """Cut the batches of a loader into blocks, and leave its random generators as they were."""
    with preserve_generators(job.loader):
        yield from _put_batches(ray, job.iterate_batches(), rows)


def _put_batches(ray: Any, batches: Iterator[InputBatch], rows: int) -> Iterator[Block]:
    """Put batches into Ray's store, block by block."""
    for number in itertools.count():
        held: list[InputBatch] = []
        while _wants_more(held, rows) and (batch := next(batches, None)) is not None:
            # A part of a tensor would take all of it along.
            held.append(replace(batch, inputs=copy_inputs(batch.inputs)))
        if not held:
            return
        size = sum(batch.size for batch in held)
        # As bytes: arrays in the store cannot be written to, and a model may change its inputs in place.
        yield Block(number, held[0].position, size, (ray.put(ray.cloudpickle.dumps(held)),))


def _wants_more(held: list[InputBatch], rows: int) -> bool:
    """Return whether a block has room for one more batch."""
    if sum(batch.size for batch in held) >= rows:
        return False
    return sum(_count_bytes(batch.inputs) for batch in held) < _MOST_BYTES


def _count_bytes(inputs: Any) -> int:
    """Return the bytes of the arrays in a batch, as far as they say."""
    held = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return sum(int(getattr(each, "nbytes", 0)) for each in held if not callable(getattr(each, "nbytes", 0)))


def _cut_dataset(loader: DatasetBatches, rows: int) -> Iterator[Block]:
    """Cut a Dataset into blocks of whole batches; only references pass through this process."""
    tables = loader.iterate_tables()
    first = next(tables, None)
    fitting = max(1, _MOST_BYTES // max(1, loader.row_bytes) // loader.batch)
    size = min(-(-rows // loader.batch), fitting) * loader.batch
    position = 0
    for number, pieces in enumerate(_cut_batches(itertools.chain([first] if first else [], tables), size)):
        inputs = sum(stop - start for _, (start, stop) in pieces)
        references, cuts = zip(*pieces, strict=True)
        yield Block(number, position, inputs, references, cuts, loader.batch)
        position += inputs


def _cut_batches(tables: Any, rows: int) -> Iterator[list[tuple[Any, tuple[int, int]]]]:
    """Yield parts of tables that have so many rows together; the last may have fewer.

    Examples
    --------
    >>> list(_cut_batches([("a", (0, 3)), ("b", (0, 2))], 2))
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


def _join_rows(pieces: list[tuple[Any, tuple[int, int]]]) -> Any:
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
