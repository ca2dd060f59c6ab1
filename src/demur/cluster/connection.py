"""Joins a Ray cluster, or starts one here, and leaves it as it was found."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

from demur.cluster.settings import Cluster

_SECONDS_TO_ANSWER = 10.0


def import_ray() -> Any:
    """Return the package; raise where it is not installed."""
    try:
        import ray
    except ImportError:
        raise ImportError("cluster= needs Ray. Install it with: pip install 'demur[cluster]'") from None
    return ray


@contextlib.contextmanager
def join_cluster(cluster: Cluster) -> Iterator[Any]:
    """Yield the package, connected; a connection that was there before stays, others are closed."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    connect(ray, cluster)
    try:
        yield ray
    finally:
        ray.shutdown()


def connect(ray: Any, cluster: Cluster) -> None:
    """Start Ray here, or connect to a cluster; raise where there is none."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address == "local":
        options["include_dashboard"] = False
    try:
        _knock(cluster.address)
        ray.init(address=cluster.address, **options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ConnectionError(
            f"cluster must be the address of a Ray cluster that runs. Got {cluster.address!r}: {reason}. "
            "Start one with `ray start --head`, and with RAY_AUTH_MODE as it is here, or write 'local' for "
            "this machine alone."
        ) from None


def _knock(address: str) -> None:
    """Raise where nobody listens at a host and port: Ray itself would try again for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()


def refuse_client(ray: Any) -> None:
    """Raise where this process is a client of a cluster elsewhere, through which Ray reads no Dataset."""
    if ray.util.client.ray.is_connected():
        raise ValueError(
            "A ray.data.Dataset takes a process on a machine of the cluster. Got a client, by ray://, "
            "through which Ray reads none. Run this program there, with cluster='auto', or give batches."
        )


def count_workers(ray: Any, cluster: Cluster) -> int:
    """Return how many workers to start; raise where no machine can hold one."""
    nodes = list_machines(ray)
    for name, wanted in (("CPU", cluster.cpus), ("GPU", cluster.gpus)):
        most = max((node.get(name, 0.0) for node in nodes), default=0.0)
        if wanted > most:
            raise ValueError(
                f"{name.lower()}s must be what a machine of the cluster has for a worker. Got {wanted:g}, "
                f"and the largest machine has {most:g}."
            )
    if cluster.workers is not None:
        return cluster.workers
    processors = sum(node.get("CPU", 0.0) for node in nodes)
    fitting = [processors / max(1.0, cluster.cpus)]
    if cluster.gpus:
        fitting.append(sum(node.get("GPU", 0.0) for node in nodes) / cluster.gpus)
    return max(1, int(min(fitting)))


def measure_worker_memory(ray: Any, cluster: Cluster, workers: int) -> int:
    """Return the bytes that the members in a worker may take."""
    if cluster.memory is not None:
        return cluster.memory
    nodes = list_machines(ray)
    smallest = min(node.get("memory", 0.0) for node in nodes)
    return int(0.8 * smallest / -(-workers // len(nodes)))


def list_machines(ray: Any) -> list[dict[str, float]]:
    """Return the resources of each machine that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
