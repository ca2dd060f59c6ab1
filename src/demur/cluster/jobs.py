"""The two jobs on a cluster: scores as one process returns them, and tables of Parquet as a Dataset."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from demur.cluster.block_files import open_folder, read_manifest, remove_folder, write_manifest
from demur.cluster.blocks import Block, iterate_blocks, renew_block
from demur.cluster.by_input import BlockJob, Receipt, pass_on
from demur.cluster.by_member import FINISH, MERGE, SUM, MemberJob, MergeTree
from demur.cluster.connection import (
    count_workers,
    join_cluster,
    measure_worker_memory,
    refuse_client,
)
from demur.cluster.dataset_batches import DatasetBatches, is_dataset, quiet_datasets
from demur.cluster.member_parts import MemberSplit, choose_split, measure_members, store_models
from demur.cluster.pool import LOST, Piece, Pool
from demur.cluster.settings import Cluster, as_cluster
from demur.scoring.job import ScoringJob
from demur.scoring.scores_so_far import ScoresSoFar

_OPEN_BLOCKS = 16
"""Blocks whose members are being summed at a time: workers that take turns with parts load them once for so
many."""


def prepare_loader(loader: Any, cluster: Any) -> Any:
    """Return a loader as it is, and the batches of a Dataset."""
    return DatasetBatches(loader, as_cluster(cluster).batch) if is_dataset(loader) else loader


def score_on_cluster(
    job: ScoringJob,
    cluster: Any,
    *,
    order: str = "batch",
    checkpoint: str | os.PathLike[str] | None = None,
    advance: Callable[[], None],
    say: bool = True,
) -> ScoresSoFar:
    """Score a data set on a cluster; ``advance`` is called for each batch.

    Parameters
    ----------
    job
        What was asked for, checked.
    cluster
        A `Cluster`, or an address.
    order
        "member": by members, whatever fits.
    checkpoint
        A folder that all machines see, for finished blocks; it is removed at the end.
    say
        Whether to say how the work is split.
    """
    folder = None if checkpoint is None else Path(checkpoint).absolute()
    found: dict[int, dict[str, Any]] = {}
    for block, receipt in _run(job, as_cluster(cluster), order, folder, tables=False, say=say):
        found[block.number] = receipt["arrays"]
        pass_on(receipt["rounded"])
        for _ in receipt["arrays"]["marks"]:
            advance()
    so_far = ScoresSoFar(found.pop(0))
    for number in sorted(found):
        so_far.extend(ScoresSoFar(found.pop(number)))
    if folder is not None:
        remove_folder(folder)
    return so_far


def write_tables(
    job: ScoringJob, cluster: Cluster, folder: Path, *, advance: Callable[[], None], say: bool
) -> None:
    """Score a data set on a cluster into a folder of Parquet files, one per block, and a manifest."""
    files: dict[int, Receipt] = {}
    for block, receipt in _run(job, cluster, "batch", folder, tables=True, say=say):
        files[block.number] = receipt
        for _ in range(-(-block.size // cluster.batch)):
            advance()
    write_manifest(folder, {files[number]["file"]: files[number]["inputs"] for number in sorted(files)})


def open_tables(ray: Any, folder: Path) -> Any:
    """Return the Dataset of a finished job, in the order of its inputs."""
    found = ray.data.read_parquet([str(path) for path in read_manifest(folder)])
    found.context.execution_options.preserve_order = True
    return found


def _run(
    job: ScoringJob, cluster: Cluster, order: str, folder: Path | None, *, tables: bool, say: bool
) -> Iterator[tuple[Block, Receipt]]:
    """Yield blocks with their receipts, as they are done."""
    _check(job)
    with join_cluster(cluster) as ray, quiet_datasets():
        if tables or isinstance(job.loader, DatasetBatches):
            refuse_client(ray)
        workers = count_workers(ray, cluster)
        memory = measure_worker_memory(ray, cluster, workers)
        by = "members" if order == "member" else cluster.by
        options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus}
        sizes = measure_members(ray, job.posterior, options)
        split = choose_split(job.posterior, sizes, memory, workers, by)
        if split.by_member:
            _check_by_member(job)
        if say and sys.stderr is not None:
            print(split.why, file=sys.stderr)
        settings: dict[str, Any] = {}
        if folder is not None:
            settings = job.settings("inputs") | {"tables": tables, "parts": _list_parts(split)}
            open_folder(folder, settings)
        sent = copy.copy(job)
        sent.loader, references = None, ()
        if split.by_member:
            sent.posterior, references = store_models(ray, job.posterior)
        given = (sent, settings, folder, tables, cluster.cpus)
        rows = 1 if split.by_member else cluster.rows
        blocks = iterate_blocks(ray, job, rows)

        def renew(block: Block) -> Block:
            return renew_block(job, rows, block)

        if split.by_member:
            member_job = MemberJob(*given, parts=tuple(part for part in split.parts if part is not None))
            with Pool(ray, member_job, workers, options, references) as pool:
                yield from _run_by_member(pool, blocks, renew, len(split.parts))
        else:
            with Pool(ray, BlockJob(*given), workers, options) as pool:
                yield from _run_by_input(pool, blocks, renew)


def _run_by_input(
    pool: Pool, blocks: Iterator[Block], renew: Callable[[Block], Block]
) -> Iterator[tuple[Block, Receipt]]:
    """Give each block to a worker."""

    def add(block: Block) -> None:
        pool.add(Piece(block.name, block.bare, block.references, part=0, renewable=True))

    there_is_more = True
    while True:
        while there_is_more and pool.hungry:
            block = next(blocks, None)
            there_is_more = block is not None
            if block is not None:
                add(block)
        if pool.idle:
            return
        piece, receipt, _ = pool.wait()
        if receipt is LOST:
            add(renew(replace(piece.task, references=piece.references)))
        else:
            yield piece.task, receipt


def _run_by_member(
    pool: Pool, blocks: Iterator[Block], renew: Callable[[Block], Block], parts: int
) -> Iterator[tuple[Block, Receipt]]:
    """Give each block to a worker of each part, and the sums to any worker, two at a time."""
    trees: dict[int, MergeTree] = {}
    there_is_more = True
    while True:
        while there_is_more and len(trees) < _OPEN_BLOCKS:
            block = next(blocks, None)
            there_is_more = block is not None
            if block is not None:
                trees[block.number] = _plant(pool, block, parts)
        if not trees:
            return
        piece, receipt, result = pool.wait()
        kind, block, *place = piece.task
        tree = trees.get(block.number)
        if tree is None or tree is not piece.tag:  # of a block that began anew, or was found finished
            continue
        if receipt is LOST:
            trees[block.number] = _plant(pool, renew(tree.block) if kind == SUM else tree.block, parts)
        elif kind == FINISH or "finished" in receipt:
            del trees[block.number]
            yield block, receipt.get("finished", receipt)
        else:
            following = tree.add(place[0], result) if kind == SUM else tree.add_merged(place[0], result)
            if following is not None:
                place, sums = following
                task = (FINISH, block) if len(sums) == 1 else (MERGE, block, place)
                pool.add(Piece(block.name, task, sums, tag=tree, renewable=True))


def _plant(pool: Pool, block: Block, parts: int) -> MergeTree:
    """Let the members of all parts be summed for a block."""
    tree = MergeTree(block, parts)
    for part in range(parts):
        task = SUM, block.bare, part
        pool.add(Piece(block.name, task, block.references, part=part, tag=tree, renewable=True))
    return tree


def _list_parts(split: MemberSplit) -> list[list[int]] | None:
    """Return the members of each part, which the last bits of results depend on."""
    return [[part.start, part.stop] for part in split.parts if part is not None] or None


def _check(job: ScoringJob) -> None:
    """Raise where what is asked for takes the inputs one after the other."""
    if job.dense is not None:
        raise ValueError("class_axis= scores pixels in one process. Got cluster= too. Leave one of them out.")
    if job.tolerance is not None:
        raise ValueError(
            "tolerance compares inputs with those before, and cluster= scores them at the same time. Leave "
            "one of them out."
        )


def _check_by_member(job: ScoringJob) -> None:
    """Raise where members cannot be summed apart from each other."""
    if job.posterior.members is None:
        raise ValueError("by='members' must know how many members there are. Give Samples(..., members=...).")
    if job.rounding is not None:
        raise ValueError(
            "rounding needs all members of an input at once, and by='members' adds them up as they come. "
            "Leave out rounding, or let the posterior return logits."
        )
