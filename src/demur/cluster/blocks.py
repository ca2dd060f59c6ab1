"""Blocks: batches that are done together, or again; from any loader, or from a Dataset of Ray.

A block travels as references: the batches of a loader are put into Ray's store, those of a Dataset are there
already, and only the worker that scores them takes them out. Where a batch begins and ends does not depend on
the cluster, so that matrix products, and draws that belong to a place in the data set, are the same
everywhere.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from demur.cluster.dataset_batches import DatasetBatches, cut_batches, join_rows
from demur.cluster.pool import pack
from demur.posteriors.networks import copy_inputs
from demur.scoring.batch_parts import Unpack
from demur.scoring.batches import InputBatch, open_batch, preserve_generators
from demur.scoring.job import ScoringJob

_MOST_BYTES = 64 << 20
"""Bytes of inputs at which a block is closed: workers hold two blocks at a time."""


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
        for pieces in cut_batches(list(zip(held, self.cuts, strict=True)), self.batch):
            batch = open_batch(join_rows(pieces), position, unpack=unpack, label_axes=2)
            yield batch
            position += batch.size


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
        yield Block(number, held[0].position, size, (ray.put(pack(ray, held)),))


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
    for number, pieces in enumerate(cut_batches(itertools.chain([first] if first else [], tables), size)):
        inputs = sum(stop - start for _, (start, stop) in pieces)
        references, cuts = zip(*pieces, strict=True)
        yield Block(number, position, inputs, references, cuts, loader.batch)
        position += inputs
