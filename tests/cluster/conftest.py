"""Ray on this machine: one node, or two."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

STORE = 300 << 20
"""Bytes of Ray's store."""


@pytest.fixture(scope="module")
def ray() -> Iterator:
    """Ray with two processors, which ends with the module and leaves no process behind."""
    module = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    options = {"include_dashboard": False, "object_store_memory": STORE, "log_to_driver": False}
    module.init(address="local", num_cpus=2, logging_level="ERROR", **options)
    try:
        yield module
    finally:
        module.shutdown()
    assert_no_raylet()


@pytest.fixture(scope="module")
def two_nodes() -> Iterator:
    """Two nodes of Ray on this machine, of which the second may be killed."""
    module = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        module.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.add = lambda: cluster.add_node(**node)
        yield cluster
    finally:
        module.shutdown()
        cluster.shutdown()
    assert_no_raylet()


def assert_no_raylet() -> None:
    """Raise if a process of Ray that this one started is left."""
    for _ in range(50):
        left = subprocess.run(
            ["ps", "-o", "pid,comm", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
        ).stdout
        if "raylet" not in left and "gcs_server" not in left:
            return
        time.sleep(0.2)
    raise AssertionError(left)


@pytest.fixture
def workers(tmp_path) -> Path:
    """A folder in which processes that score leave their number."""
    folder = tmp_path / "workers"
    folder.mkdir()
    return folder
