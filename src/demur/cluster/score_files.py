"""`demur score --cluster`: predictions in files, of which each worker scores some tiles."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.cluster.by_input import limit_threads, pass_on
from demur.cluster.connection import count_workers, join_cluster
from demur.cluster.deaths import WorkersDied
from demur.cluster.pool import Piece, Pool
from demur.cluster.settings import as_cluster
from demur.core.rounding import hold_warnings
from demur.scoring.file_tiles import Tiles
from demur.stores import StoreError, open_predictions

Columns = Iterator[tuple[slice, Iterator[tuple[str, np.ndarray]]]]

_TILES_TOGETHER = 4
"""Tiles of one piece of work: a worker that dies loses little, and asking for work costs little."""


@dataclass
class FileJob:
    """What all workers get: which files to open, and how tiles of them are scored.

    Attributes
    ----------
    files, layout
        Arguments of `open_predictions`.
    folder
        The folder that names of files refer to.
    tiles
        How to read and add up: without the open files.
    measures, figures
        What to compute.
    cpus
        What a worker claims.
    """

    files: list[str]
    layout: dict[str, Any]
    folder: Path
    tiles: Tiles
    measures: dict[str, str]
    figures: dict[str, Any]
    cpus: float

    def start(self) -> None:
        """Open the files, once."""
        limit_threads(self.cpus)
        if not self.folder.is_dir():
            raise FileNotFoundError(
                "cluster: expected files that all machines see by the same names, got no "
                f"{str(self.folder)!r}: put them into a folder that is shared"
            )
        os.chdir(self.folder)
        self.tiles.predictions = open_predictions(self.files, **self.layout)

    def run(self, tiles: list[slice]) -> tuple[dict[str, Any], None]:
        """Return the columns of some tiles, and which of their inputs have no prediction, and why."""
        found: list[dict[str, np.ndarray]] = []
        with hold_warnings() as rounded:
            for inputs in tiles:
                found.append(dict(self.tiles.score(inputs, self.measures, self.figures)))
        whole = slice(tiles[0].start, tiles[-1].stop)
        reasons = {k: why for k, why in self.tiles.reasons.items() if whole.start <= k < whole.stop}
        return {
            "columns": {name: np.concatenate([each[name] for each in found]) for name in found[0]},
            "failed": self.tiles.failed[whole],
            "reasons": reasons,
            "rounded": rounded.any,
        }, None


def check_output_of(out: Path | None) -> None:
    """Raise where scores would be written block by block, which one process does."""
    if out is not None and out.suffix.lower() == ".zarr":
        raise StoreError(
            f"{out}: expected .parquet, .csv, .npz or .json with --cluster, which collects the scores: "
            "choose another name, or leave out --cluster"
        )


@contextlib.contextmanager
def _in_a_line() -> Iterator[None]:
    """Raise as an error of the input what the command line is to say in a line."""
    try:
        yield
    except (ImportError, WorkersDied) as error:
        raise StoreError(str(error)) from error


def spread_tiles(
    cluster: Any, files: list[str], layout: dict[str, Any]
) -> Callable[[Tiles, dict[str, str], dict[str, Any], Callable[[int], object] | None], Columns]:
    """Return what iterates over tiles as `Tiles.iterate` does, with their scores computed on a cluster."""
    cluster = as_cluster(cluster)

    def iterate(
        tiles: Tiles,
        measures: dict[str, str],
        figures: dict[str, Any],
        progress: Callable[[int], object] | None,
    ) -> Columns:
        sent = copy.copy(tiles)
        sent.predictions = None  # pyright: ignore[reportAttributeAccessIssue]
        job = FileJob(files, layout, Path.cwd(), sent, measures, figures, cluster.cpus)
        every = list(tiles.split())
        done = 0
        with _in_a_line(), join_cluster(cluster) as ray:
            options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus}
            pieces = [every[k : k + _TILES_TOGETHER] for k in range(0, len(every), _TILES_TOGETHER)]
            workers = min(count_workers(ray, cluster), len(pieces))
            with Pool(ray, job, workers, options) as pool:
                for piece in pieces:
                    pool.add(Piece(f"inputs {piece[0].start} to {piece[-1].stop - 1}", piece, part=0))
                while not pool.idle:
                    piece, found, _ = pool.wait()
                    inputs = slice(piece.task[0].start, piece.task[-1].stop)
                    tiles.failed[inputs] = found["failed"]
                    tiles.reasons |= found["reasons"]
                    pass_on(found["rounded"])
                    yield inputs, iter(found["columns"].items())
                    done += inputs.stop - inputs.start
                    if progress is not None:
                        progress(done)

    return iterate
