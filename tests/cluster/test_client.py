"""A cluster elsewhere, through Ray's client: here a server in another process of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

pytestmark = pytest.mark.slow
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONWARNINGS": "ignore"}


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server(tmp_path_factory) -> Iterator[str]:
    """The address of a cluster that `ray start --head` has started, with two processors."""
    pytest.importorskip("ray")
    ports = find_port(), find_port()
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2",
        "--node-ip-address=127.0.0.1", f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}",
        "--min-worker-port=0", "--max-worker-port=0", "--include-dashboard=false", "--disable-usage-stats",
        f"--object-store-memory={300 << 20}", f"--temp-dir={tmp_path_factory.mktemp('ray')}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as head:
        try:
            for _ in range(120):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", ports[1])) == 0:
                        break
                assert head.poll() is None, "ray start ended"
                time.sleep(0.5)
            yield f"ray://127.0.0.1:{ports[1]}"
        finally:
            os.killpg(head.pid, signal.SIGTERM)
            head.wait(60)


SCORE = """
import sys
import numpy as np, torch, demur
torch.manual_seed(0)
posterior = demur.posteriors.LastLayer(torch.nn.Linear(16, 5), dropout=0.2, samples=20)
x = np.random.default_rng(0).normal(size=(400, 16)).astype(np.float32)
data = [x[k : k + 100] for k in range(0, 400, 100)]
one = demur.score(posterior, data, progress=False)
cluster = demur.cluster.Cluster(sys.argv[1], rows=200)
many = demur.score(posterior, data, cluster=cluster, progress=False)
print(all((many.columns[name] == values).all() for name, values in one.columns.items()))
"""


def test_files_and_posteriors_go_to_a_cluster_elsewhere(server, tmp_path) -> None:
    rng = np.random.default_rng(0)
    for member in range(4):
        np.save(tmp_path / f"m{member}.npy", rng.normal(size=(3000, 20)).astype(np.float32))
    score = [sys.executable, "-m", "demur.cli", "score", "m*.npy", "--logits"]
    for more in (["--out", "one.parquet"], ["--out", "many.parquet", "--cluster", server]):
        subprocess.run([*score, *more], cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "many.parquet").read_bytes()
    said = subprocess.check_output([sys.executable, "-c", SCORE, server], env=ENVIRONMENT, text=True)
    assert said.split()[-1] == "True"
