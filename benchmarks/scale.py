"""What a job costs: rates of one worker, growth, Ray's own share, and a plan for any size from them.

python -m benchmarks.scale FOLDER --out build/bench [--quick] [--no-ray]
python -m benchmarks.scale --rates build/bench/scale.json --inputs 1e9 --members 100 --classes 1000

FOLDER holds ``efficientnet_lite0_features.npz``: features of ImageNet validation images, (inputs, 1280), and
the last layer. The members are MC dropout of that layer, rate 0.2. All figures are of one thread: the seconds
of the processor that a worker spends, so that other work on the machine matters little.

- network: the masks and the matrix products; this is the network's own time, whoever sums up afterwards
- sums: everything else: moments, three measures, columns
- Ray: the wall time of jobs in this process, on one worker and on two, without the start of Ray

The plan multiplies. It knows what the rates were measured with, and prints that it does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import demur
from demur.cluster import Cluster
from demur.cluster.blocks import Block
from demur.cluster.by_input import BlockJob
from demur.posteriors import LastLayer
from demur.scoring.job import make_job

RATE, BATCH = 0.2, 250
STATE_BYTES = 40
"""Bytes of the sums for each input and class: a, u, a u, phi and the reference in double precision."""


def load(folder: Path) -> tuple[torch.nn.Linear, np.ndarray, np.ndarray]:
    """Return the last layer, features and labels."""
    with np.load(folder / "efficientnet_lite0_features.npz") as file:
        weight, bias, features = (file[name].astype(np.float32) for name in ("fc_weight", "fc_bias", "val"))
        labels = file["val_label"].astype(np.int64)
    layer = torch.nn.Linear(*weight.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer, features, labels


def cut_layer(layer: torch.nn.Linear, classes: int) -> torch.nn.Linear:
    """Return the layer of the first classes."""
    found = torch.nn.Linear(layer.in_features, classes)
    with torch.no_grad():
        found.weight.copy_(layer.weight[:classes])
        found.bias.copy_(layer.bias[:classes])
    return found


def cut_batches(features: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of inputs and labels."""
    return [(features[k : k + BATCH], labels[k : k + BATCH]) for k in range(0, len(features), BATCH)]


@contextlib.contextmanager
def timed_predictions(spent: list[float]) -> Iterator[None]:
    """Add the processor's seconds that go into the predictions of last layers, while entered."""
    original = LastLayer._predict_features

    def timed(self: Any, *arguments: Any) -> Iterator[Any]:
        chunks = original(self, *arguments)
        while True:
            begin = time.process_time()
            chunk = next(chunks, None)
            spent.append(time.process_time() - begin)
            if chunk is None:
                return
            yield chunk

    LastLayer._predict_features = timed
    try:
        yield
    finally:
        LastLayer._predict_features = original


def time_block(layer: torch.nn.Linear, features: np.ndarray, labels: np.ndarray, members: int) -> Any:
    """Return the seconds of the network and of everything else, for a block as a worker scores it."""
    posterior = LastLayer(layer, dropout=RATE, samples=members)
    batches = list(cut_batches(features, labels))
    job = make_job(posterior, batches)
    job.check("batch")
    held = list(job.iterate_batches())
    import pickle

    block, packed = Block(0, 0, len(features), ("",)), pickle.dumps(held)
    work = BlockJob(job, {}, None, False, 1)
    spent: list[float] = []
    begin = time.process_time()
    with timed_predictions(spent):
        work.run(block, packed)
    whole = time.process_time() - begin
    return sum(spent), whole - sum(spent)


def measure_rates(layer: Any, features: np.ndarray, labels: np.ndarray, quick: bool) -> dict[str, Any]:
    """Return seconds for an input, member and class, from the least of several runs, and how they grow."""
    few = (250, 16, 250) if quick else (500, 32, 500)
    sizes = {
        "inputs": [(few[0] * k, few[1], few[2]) for k in (1, 2, 4)],
        "members": [(few[0], few[1] * k, few[2]) for k in (1, 2, 4)],
        "classes": [(few[0], few[1], few[2] * k // 2) for k in (1, 2, 4)],
    }
    layers = {c: cut_layer(layer, c) for c in {size[2] for each in sizes.values() for size in each}}
    asked = sorted({size for each in sizes.values() for size in each} | {(1000, 50, 1000)})
    time_block(layers[few[2]], features[:250], labels[:250], 8)  # compiled, and read from disk
    found: dict[tuple[int, int, int], tuple[float, float]] = {}
    for _ in range(2 if quick else 3):
        for size in asked:
            inputs, members, classes = size
            now = time_block(
                layers.get(classes) or cut_layer(layer, classes), features[:inputs], labels[:inputs], members
            )
            found[size] = now if size not in found or sum(now) < sum(found[size]) else found[size]
    growth = {
        name: {
            part: _fit_power(each, [found[size][k] for size in each], name)
            for k, part in enumerate(("network", "sums"))
        }
        for name, each in sizes.items()
    }
    largest = found[1000, 50, 1000]
    per = 1000 * 50 * 1000
    runs = [dict(zip(("inputs", "members", "classes"), size, strict=True)) for size in found]
    for run, (network, sums) in zip(runs, found.values(), strict=True):
        run |= {"network": network, "sums": sums}
    return {
        "network_seconds": largest[0] / per,
        "sums_seconds": largest[1] / per,
        "growth": growth,
        "runs": runs,
    }


def _fit_power(sizes: list[tuple[int, int, int]], seconds: list[float], name: str) -> float:
    """Return the power of a size that the seconds grow with: 1 is linear."""
    axis = ("inputs", "members", "classes").index(name)
    return float(np.polyfit(np.log([size[axis] for size in sizes]), np.log(seconds), 1)[0])


def measure_ray(layer: Any, features: np.ndarray, labels: np.ndarray, members: int) -> dict[str, Any]:
    """Return wall times and speeds of the same job in this process and on Ray, with one worker and two."""
    import ray

    folder = Path(tempfile.mkdtemp())
    batches = cut_batches(features, labels)

    def note(model: Any, inputs: Any) -> Any:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        with (folder / f"{os.getpid()}").open("a") as file:
            file.write(f"{time.monotonic()} {peak} {time.process_time()}\n")
        return model(inputs)

    posterior = LastLayer(layer, dropout=RATE, samples=members)
    noted = LastLayer(layer, dropout=RATE, samples=members, forward=note)
    demur.score(posterior, batches[:1], progress=False)
    found: dict[str, Any] = {"inputs": len(features), "members": members, "classes": layer.out_features}
    begin, busy = time.perf_counter(), time.process_time()
    one = demur.score(posterior, batches, progress=False)
    found["no_ray_seconds"] = time.perf_counter() - begin
    found["no_ray_processor_seconds_a_batch"] = (time.process_time() - busy) / len(batches)
    found["no_ray_batches_a_second"] = len(batches) / found["no_ray_seconds"]
    begin = time.perf_counter()
    options = {"include_dashboard": False, "object_store_memory": 300 << 20, "log_to_driver": False}
    ray.init(address="local", num_cpus=3, logging_level="ERROR", **options)
    found["start_of_ray"] = time.perf_counter() - begin
    try:
        for workers in (1, 2):
            for path in folder.iterdir():
                path.unlink()
            cluster = Cluster(workers=workers, rows=500)
            begin = time.perf_counter()
            many = demur.score(noted, batches, cluster=cluster, progress=False)
            whole = time.perf_counter() - begin
            assert all(many.columns[name].tobytes() == each.tobytes() for name, each in one.columns.items())
            found[f"workers_{workers}"] = {"whole_seconds": whole} | _read_notes(folder)
    finally:
        ray.shutdown()
    alone, both = (found[f"workers_{k}"]["batches_a_second"] for k in (1, 2))
    found["efficiency_of_two"] = both / (2 * alone)
    found["slower_than_no_ray"] = found["no_ray_batches_a_second"] / alone - 1
    return found


def _read_notes(folder: Path) -> dict[str, float]:
    """Return the speed while all workers were at work, and the most memory that one of them had."""
    notes = [
        [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
        for path in folder.iterdir()
    ]
    begin, end = max(each[0][0] for each in notes), min(each[-1][0] for each in notes)
    between = sum(begin < when <= end for each in notes for when, _, _ in each)
    busy = sum(each[-1][2] - each[0][2] for each in notes) / sum(len(each) - 1 for each in notes)
    return {
        "batches_a_second": between / (end - begin),
        "processor_seconds_a_batch": busy,
        "worker_peak_bytes": max(peak for each in notes for _, peak, _ in each),
    }


def make_plan(
    rates: dict[str, Any], inputs: float, members: float, classes: float, *, input_bytes: float = 2560,
    score_bytes: float = 100, model_bytes: float = 5.1e6, workers: int = 1000, parts: int = 1,
    pass_seconds: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """Return core-hours, bytes moved and memory of a worker for a job of any size.

    Parameters
    ----------
    rates
        As `measure_rates` returns them.
    input_bytes, score_bytes
        Of one input, as it is read, and of its row of scores.
    model_bytes
        Of all members.
    parts
        By members: in how many parts; each merger gets two sums, at most, from elsewhere. 1: by inputs.
    pass_seconds
        A processor's seconds for one pass of the network before its last layer, once for each input.
    """
    every = inputs * members * classes
    network, sums = rates["network_seconds"] * every, rates["sums_seconds"] * every
    passes = pass_seconds * inputs
    return {
        "network_core_hours": network / 3600,
        "sums_core_hours": sums / 3600,
        "passes_core_hours": passes / 3600,
        "hours": (network + sums + passes) / 3600 / workers,
        "bytes_read": inputs * input_bytes,
        "bytes_written": inputs * score_bytes,
        "bytes_of_models": model_bytes * workers,
        "bytes_of_sums": inputs * classes * STATE_BYTES * 2 * (parts - 1),
        "bytes_of_predictions": 4 * every,
        "worker_bytes": rates.get("worker_peak_bytes", np.nan) + model_bytes / parts,
    }


def format_plan(plan: dict[str, float], workers: int) -> str:
    """Return a plan as a table in Markdown."""
    rows = [
        ("the network's own arithmetic", f"{plan['network_core_hours']:,.0f} core-hours"),
        ("sums over members, measures, columns", f"{plan['sums_core_hours']:,.0f} core-hours"),
        (f"time on {workers:,} cores", f"{plan['hours']:.1f} hours"),
        ("read", _say_bytes(plan["bytes_read"])),
        ("written", _say_bytes(plan["bytes_written"])),
        ("models, to all workers", _say_bytes(plan["bytes_of_models"])),
        ("sums moved between workers, at most", _say_bytes(plan["bytes_of_sums"])),
        ("memory of a worker", _say_bytes(plan["worker_bytes"])),
        ("predictions, which are never stored", _say_bytes(plan["bytes_of_predictions"])),
    ]
    if np.isnan(plan["worker_bytes"]):  # measured with --no-ray
        rows = [row for row in rows if row[0] != "memory of a worker"]
    if plan["passes_core_hours"]:
        rows.insert(0, ("the network before its last layer", f"{plan['passes_core_hours']:,.0f} core-hours"))
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _say_bytes(count: float) -> str:
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def measure(folder: Path, quick: bool, use_ray: bool) -> dict[str, Any]:
    """Return everything that is measured."""
    torch.set_num_threads(1)
    os.environ["DEMUR_THREADS"] = "1"
    layer, features, labels = load(folder)
    found = {"machine": platform.processor() or platform.machine(), "batch": BATCH}
    found["rates"] = measure_rates(layer, features, labels, quick)
    if use_ray:
        count, times, members = (1000, 1, 20) if quick else (5000, 4, 50)
        # The same inputs several times: what a worker does once, at its start, is little of a job that long.
        longer = np.tile(features[:count], (times, 1)), np.tile(labels[:count], times)
        found["ray"] = measure_ray(layer, *longer, members)
        found["rates"]["worker_peak_bytes"] = found["ray"]["workers_2"]["worker_peak_bytes"]
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--rates", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-ray", action="store_true")
    for name, value in (
        ("inputs", 1e9),
        ("members", 100),
        ("classes", 1000),
        ("workers", 1000),
        ("parts", 1),
    ):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--pass-seconds", type=float, default=0.0)
    asked = parser.parse_args(arguments)
    if asked.rates:
        found = json.loads(asked.rates.read_text())
    elif asked.folder:
        found = measure(asked.folder, asked.quick, not asked.no_ray)
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "scale.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1))
    else:
        parser.error("give FOLDER to measure, or --rates of a run before")
    plan = make_plan(
        found["rates"], asked.inputs, asked.members, asked.classes, workers=int(asked.workers),
        parts=int(asked.parts), pass_seconds=asked.pass_seconds,
    )  # fmt: skip
    print(format_plan(plan, int(asked.workers)))


if __name__ == "__main__":
    main()
