"""`score_dataset`: a Dataset of Ray in, a Dataset of scores out, through Parquet files that stay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from demur.cluster.connection import connect, import_ray
from demur.cluster.jobs import open_tables, prepare_loader, write_tables
from demur.cluster.settings import Cluster, as_cluster
from demur.progress import progress_bar
from demur.scoring.job import make_job


def score_dataset(
    posterior: Any,
    dataset: Any,
    folder: str | os.PathLike[str],
    *,
    cluster: str | Cluster = "local",
    progress: bool = True,
    **options: Any,
) -> Any:
    """Score a data set that no machine holds, into Parquet files that no machine holds together.

    Workers write one file for each block, whole or not at all, and the scores never pass through this
    process. After an interruption, the same call does the blocks that are missing; once all are there,
    ``manifest.json`` lists them.

    Parameters
    ----------
    posterior
        As for ``demur.score``.
    dataset
        A ``ray.data.Dataset``, or any loader of ``demur.score``. The columns ``label`` and ``id``, or their
        like, go to the scores.
    folder
        Where the files go: a folder that all machines see.
    cluster
        Where to run, as for ``demur.score``. The connection stays open, for the result.
    progress
        Say how the work is split, and show a progress bar, on a terminal.
    options
        ``measures``, ``rule``, ``base``, ``unbiased``, ``stderr``, ``rounding``, ``unpack``, ``classes`` and
        ``columns`` of ``demur.score``.

    Returns
    -------
    ray.data.Dataset
        The columns that ``demur score --out`` writes, in the order of the inputs. ``demur.Scores.load`` reads
        single files.
    """
    cluster = as_cluster(cluster)
    job = make_job(posterior, prepare_loader(dataset, cluster), **options)
    job.check("batch")
    ray = import_ray()
    if not ray.is_initialized():
        connect(ray, cluster)
    done = 0
    path = Path(folder).absolute()
    with progress_bar(None, "batches", hidden=not progress) as show:

        def advance() -> None:
            nonlocal done
            done += 1
            show(done)

        write_tables(job, cluster, path, advance=advance, say=progress)
    return open_tables(ray, path)
