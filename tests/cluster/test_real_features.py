"""The whole of it on real features: two machines, workers that are killed, the bytes of one process."""

import threading
import time

import numpy as np
import pytest
from reference.cluster import Killer, assert_same_bytes, note_process, wait_for_machines

import demur
from demur.cluster import Cluster
from demur.posteriors import LastLayer

pytestmark = pytest.mark.slow


def test_imagenet_with_dropout_heads_on_two_machines_while_workers_and_a_machine_are_killed(
    data_kit, two_nodes, workers, tmp_path
) -> None:
    import ray
    import torch

    with np.load(data_kit / "imagenet_features" / "efficientnet_lite0_features.npz") as file:
        weight, bias, features = (
            torch.from_numpy(file[name].astype(np.float32)) for name in ("fc_weight", "fc_bias", "val")
        )
        labels = file["val_label"].astype(np.int64)
    layer = torch.nn.Linear(*weight.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    ids = np.arange(100_000, 100_000 + len(features))
    data = [
        (features[k : k + 125], labels[k : k + 125], ids[k : k + 125]) for k in range(0, len(features), 125)
    ]
    one = demur.score(LastLayer(layer, dropout=0.2, samples=20), data, progress=False)
    node = two_nodes.add()
    slow = LastLayer(layer, dropout=0.2, samples=20, forward=note_process(workers, 0.8))
    seen = set()

    def lose() -> None:
        while len(list(workers.iterdir())) < 5:
            time.sleep(0.2)
        seen.update(each["NodeID"] for each in ray.nodes() if each["Alive"])
        two_nodes.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    with Killer(workers, 6, every=2.0) as killer:
        begin = time.monotonic()
        cluster = Cluster(workers=3, rows=125)
        many = demur.score(slow, data, cluster=cluster, checkpoint=tmp_path / "job", progress=False)
        seconds = time.monotonic() - begin
    thread.join(timeout=1)
    assert_same_bytes(many, one)
    assert len(killer.killed) == 6 and len(seen) == 2
    wait_for_machines(ray, 1)
    accuracy = float(many.correct.mean())
    assert 0.74 < accuracy < 0.77
    print(f"{len(many)} inputs, 6 workers and a machine killed: {seconds:.0f} s, accuracy {accuracy:.4f}")
