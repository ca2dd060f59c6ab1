"""`Cluster`: where a job runs, with how many workers, and how it is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from demur.scoring.batches import ARRAY_BATCH_SIZE

_ADDRESSES = "'local', 'auto', 'ray://host:port' or 'host:port'"


@dataclass(frozen=True)
class Cluster:
    """Where ``demur.score(..., cluster=...)`` runs, and how its work is split.

    Parameters
    ----------
    address
        ``"local"`` starts Ray on this machine, and stops it at the end; ``"auto"`` is the cluster that this
        machine belongs to; ``"ray://host:port"`` is one elsewhere. A program that has called ``ray.init``
        itself stays with what it has.
    workers
        Processes that hold the models; None: one per processor of the cluster.
    cpus, gpus
        What each worker claims. Half a processor, the default, leaves room for the tasks that read data:
        workers that claimed everything would wait for them for ever. Whole numbers give a worker as many
        threads.
    memory
        Bytes that the members held by a worker may take; None: four fifths of its share of the smallest
        machine.
    by
        ``"inputs"``: each worker has all members, and takes block after block. ``"members"``: each worker has
        some of the members, and the sums of a block are merged. ``"memory"``: by inputs where all members fit
        in a worker, else by members.
    batch
        Inputs of a batch that is read from a ``ray.data.Dataset``; other loaders bring their own batches.
    rows
        Inputs of a block, which is done as a whole or again: batches are added up to this number, or until
        they hold 64 MB. By members, a block is one batch.

    Examples
    --------
    >>> from demur.cluster import Cluster
    >>> Cluster("ray://head:10001", workers=64, memory=8 << 30).by
    'memory'
    """

    address: str = "local"
    workers: int | None = None
    cpus: float = 0.5
    gpus: float = 0.0
    memory: int | None = None
    by: Literal["memory", "inputs", "members"] = "memory"
    batch: int = ARRAY_BATCH_SIZE
    rows: int = 4096

    def __post_init__(self) -> None:
        known = self.address in ("local", "auto") or ":" in str(self.address)
        if not isinstance(self.address, str) or not known:
            raise ValueError(
                f"cluster must be {_ADDRESSES}, or a demur.cluster.Cluster. Got {self.address!r}."
            )
        if self.by not in ("memory", "inputs", "members"):
            raise ValueError(f"by must be 'memory', 'inputs' or 'members'. Got {self.by!r}.")
        for name in ("workers", "memory", "batch", "rows"):
            value = getattr(self, name)
            if value is None and name in ("workers", "memory"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive integer. Got {value!r}.")
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number that is not negative. Got {value!r}.")


def as_cluster(given: Any) -> Cluster:
    """Return a cluster as it is, and one at an address."""
    return given if isinstance(given, Cluster) else Cluster(given)
