"""Work by inputs: a worker has all members, and takes block after block; nothing is to be merged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.cluster.block_files import name_block, read_block, write_block
from demur.cluster.blocks import Block
from demur.core.rounding import hold_warnings, warn_of
from demur.posteriors.networks import preserve_random_state
from demur.scoring.by_batch import add_batch
from demur.scoring.job import ScoringJob
from demur.scoring.scores_so_far import ScoresSoFar

Receipt = dict[str, Any]
"""What comes back of a block: its arrays, or the name of its file and its inputs."""


@dataclass
class BlockJob:
    """What all workers get: the job without its data, and where finished blocks go.

    Attributes
    ----------
    job
        What was asked for, checked.
    settings
        What the names of finished blocks depend on.
    folder
        Where finished blocks go; None: nowhere.
    tables
        Whether blocks are written as tables of Parquet, which do not travel back.
    cpus
        What a worker claims.
    """

    job: ScoringJob
    settings: dict[str, Any]
    folder: Path | None
    tables: bool
    cpus: float

    def start(self) -> None:
        """Load all members, once."""
        limit_threads(self.cpus)
        self.job.posterior = self.job.posterior.keep_loaded(None)

    def run(self, task: Any, *held: Any) -> tuple[Receipt, Any]:
        """Score a block, unless that was done before."""
        block: Block = task
        batches = list(block.open(held, self.job.unpack))
        name = name_block(block.number, self.settings, batches) if self.folder else ""
        receipt = self.find(name)
        if receipt is None:
            so_far = ScoresSoFar({})
            with preserve_random_state(), hold_warnings() as rounded:
                for batch in batches:
                    add_batch(self.job, batch, so_far)
            receipt = self.finish(name, block.position, so_far, rounded.any)
        return receipt, None

    def find(self, name: str) -> Receipt | None:
        """Return the receipt of a block that was finished before; None where it was not."""
        if self.folder is None:
            return None
        if self.tables:
            return describe_table(self.folder / f"{name}.parquet")
        found = read_block(self.folder / f"{name}.npz")
        return None if found is None else {"arrays": found, "rounded": bool(found.pop("rounded"))}

    def finish(self, name: str, position: int, so_far: ScoresSoFar, rounded: bool) -> Receipt:
        """Write the scores of a block, where that is wanted, and return its receipt."""
        if self.folder is not None and self.tables:
            path = self.folder / f"{name}.parquet"
            _write_table(path, self.job, so_far, position)
            return describe_table(path) or {}
        arrays = so_far.to_arrays()
        if self.folder is not None:
            write_block(self.folder / f"{name}.npz", arrays | {"rounded": np.array(rounded)})
        return {"arrays": arrays, "rounded": rounded}


def _write_table(path: Path, job: ScoringJob, so_far: ScoresSoFar, position: int) -> None:
    """Write the scores of a block as ``Scores.save`` does, with the numbers of its inputs in the data set."""
    scores = so_far.finish(job.measures, rule=job.rule, base=job.base, unbiased=job.unbiased)
    scores.table.columns["input"] = position + np.arange(so_far.inputs)
    scores.save(path, force=True)


def describe_table(path: Path) -> Receipt | None:
    """Return the receipt of a table in a file; None where there is no whole one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        return None
    try:
        rows = pq.read_table(path, page_checksum_verification=True).num_rows
    except (pa.ArrowException, OSError):
        return None
    return {"file": path.name, "inputs": rows}


def limit_threads(cpus: float) -> None:
    """Give this process the threads that it claims, and no more."""
    os.environ.setdefault("DEMUR_THREADS", str(max(1, int(cpus))))


def pass_on(rounded: bool) -> None:
    """Note in this process that a worker held back a warning about rounded probabilities."""
    if rounded:
        warn_of(1, 1)
