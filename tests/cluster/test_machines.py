"""A machine killed in the middle, and a driver: the same bytes, nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from reference.cluster import (
    assert_same_bytes,
    batches,
    heads_with_dropout,
    note_process,
    wait_for_machines,
)

import demur
from demur.cluster import Cluster
from demur.cluster.dataset_batches import DatasetBatches

pytestmark = pytest.mark.slow


def test_a_machine_may_be_lost_with_its_workers_and_the_data_it_held(two_nodes, workers, tmp_path) -> None:
    import ray.data

    held = [np.concatenate(each) for each in zip(*batches(2000), strict=True)]
    ray.data.from_items([
        {"features": x, "label": int(y), "id": str(i)} for x, y, i in zip(*held, strict=True)
    ]).repartition(20).write_parquet(str(tmp_path / "data"))  # fmt: skip
    dataset = ray.data.read_parquet(str(tmp_path / "data"))
    posterior = heads_with_dropout(note_process(workers, 0.3))
    node = two_nodes.add()
    machines = set()

    def lose() -> None:
        deadline = time.monotonic() + 600
        while len(list(workers.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        machines.update(each["NodeID"] for each in ray.nodes() if each["Alive"])
        two_nodes.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    many = demur.score(posterior, dataset, cluster=Cluster(batch=50, rows=50), progress=False)
    thread.join()
    assert len(machines) == 2
    wait_for_machines(ray, 1)
    one = demur.score(heads_with_dropout(), DatasetBatches(dataset, 50), progress=False)
    assert_same_bytes(many, one)
    assert len(set(many.ids)) == 2000


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from reference.cluster import batches, heads_with_dropout, note_process
from demur.cluster import Cluster, score_dataset
folder = Path({folder!r})
posterior = heads_with_dropout(note_process(folder / "workers", 0.3))
score_dataset(posterior, batches(2000), folder / "out", cluster=Cluster(workers=2, rows=100), progress=False)
"""


def test_a_killed_driver_goes_on_from_finished_blocks(workers, tmp_path) -> None:
    pytest.importorskip("ray")
    script = DRIVER.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path))
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as driver:
        deadline = time.monotonic() + 600
        while len(list(out.glob("*.parquet"))) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(driver.pid, signal.SIGKILL)
    finished = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert 5 <= len(finished) < 20 and not (out / "manifest.json").exists()
    for path in workers.iterdir():
        _wait_for_the_end(int(path.name))
        path.unlink()
    subprocess.run([sys.executable, "-c", script], check=True)
    assert len(list(out.glob("*.parquet"))) == 20
    assert {path: path.stat().st_mtime_ns for path in finished} == finished  # not done again
    scores = [demur.Scores.load(path) for path in sorted(out.glob("*.parquet"))]
    one = demur.score(heads_with_dropout(), batches(2000), progress=False)
    for name in ("input", "id", "label", "pairwise_epistemic", "average_total", "prediction"):
        found = np.concatenate([each.columns[name] for each in scores])
        assert found.tobytes() == one.columns[name].astype(found.dtype).tobytes(), name


def _wait_for_the_end(pid: int) -> None:
    """Wait until a process is gone: Ray ends those of a driver that died."""
    for _ in range(300):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} is still there")
