"""Time and memory of `Laplace` on a last layer, beside laplace-torch where that is installed and finishes.

python -m benchmarks.laplace --out build/bench [--large]

Each contender runs in a process of its own: it fits Kronecker factors to the features of 2,000 inputs, and
then predicts others with 100 samples. laplace-torch samples heads (``pred_type="nn"``), as demur does, or
logits of each input (``"glm"``). Its time is that of the average prediction alone, while demur's includes all
measures.
``--large`` adds the sizes of ImageNet and of a product catalogue, for demur alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SMALL = ((64, 10), (128, 100))
LARGE = ((1280, 1000), (128, 3100))
CONTENDERS = ("demur", "demur, bfloat16", "laplace-torch nn", "laplace-torch glm")
FITTED, SCORED, SAMPLES = 2000, 256, 100
SECONDS = 300
"""A contender that takes longer is stopped, and has no row."""


def problem_of(features: int, classes: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a last layer, and features and labels that it fits about as well as a trained one."""
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Linear(features, classes)
    x = torch.rand(FITTED + SCORED, features) * 2
    with torch.no_grad():
        layer.weight.normal_(0, 3 / features**0.5)
        y = torch.distributions.Categorical(logits=layer(x)).sample()
    return layer, x.numpy(), y.numpy()


def run_demur(features: int, classes: int, products: str) -> dict[str, float]:
    """Fit and score by demur."""
    import demur
    from demur.posteriors import Features, Laplace

    layer, x, y = problem_of(features, classes)
    begin = time.perf_counter()
    posterior = Laplace.fit(
        layer, Features(x[:FITTED], y[:FITTED]), samples=SAMPLES, products=products, progress=False
    )
    fitted = time.perf_counter() - begin
    demur.score(posterior, [x[-SCORED:][:2]], progress=False)  # draws the heads
    drawn = time.perf_counter() - begin - fitted
    found = time_inputs(lambda: demur.score(posterior, [x[-SCORED:]], progress=False))
    # The products of heads and features, and nothing else, over the time of everything.
    rate = 2e-6 * features * classes * SAMPLES / found["processor_ms_per_input"]
    return {"fit": fitted, "draw": drawn, **found, "gflops": rate, "peak_gflops": measure_peak(products)}


def measure_peak(products: str) -> float:
    """Return GFLOP per second of the processor in a large matrix product: as many as there can be."""
    import torch

    size, best = 2048, 0.0
    kind = torch.bfloat16 if products == "bfloat16" else torch.float32
    a, b = (torch.randn(size, size).to(kind) for _ in range(2))
    for _ in range(5):
        begin = time.process_time()
        a @ b
        best = max(best, 2e-9 * size**3 / (time.process_time() - begin))
    return best


def run_theirs(features: int, classes: int, kind: str) -> dict[str, float]:
    """Fit and predict by laplace-torch."""
    import torch

    warnings.simplefilter("ignore")
    import laplace

    layer, x, y = problem_of(features, classes)
    model = torch.nn.Sequential(torch.nn.Identity(), layer)
    data = torch.utils.data.TensorDataset(torch.from_numpy(x[:FITTED]), torch.from_numpy(y[:FITTED]))
    begin = time.perf_counter()
    la = laplace.Laplace(model, "classification", "last_layer", "kron")
    la.fit(torch.utils.data.DataLoader(data, batch_size=256))
    la.optimize_prior_precision(method="marglik")
    fitted = time.perf_counter() - begin
    inputs, rows = torch.from_numpy(x[-SCORED:]), SCORED if kind == "nn" else 8  # glm: a Jacobian per input

    def predict() -> None:
        for start in range(0, SCORED, rows):
            la(inputs[start : start + rows], pred_type=kind, link_approx="mc", n_samples=SAMPLES)

    return {"fit": fitted} | time_inputs(predict)


def time_inputs(predict: Callable[[], Any]) -> dict[str, float]:
    """Return milliseconds per input, of the clock and of the processor: the best of a few rounds."""
    clock, processor = [], []
    begun = time.perf_counter()
    while len(clock) < 5 and (not clock or time.perf_counter() - begun < 20):
        wall, used = time.perf_counter(), time.process_time()
        predict()
        clock.append(time.perf_counter() - wall)
        processor.append(time.process_time() - used)
    return {
        "ms_per_input": min(clock) / SCORED * 1e3,
        "processor_ms_per_input": min(processor) / SCORED * 1e3,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run_one(contender: str, features: int, classes: int) -> dict[str, float]:
    """Run a contender in this process."""
    if contender.startswith("demur"):
        return run_demur(features, classes, "bfloat16" if "bfloat16" in contender else "exact")
    return run_theirs(features, classes, contender.split()[-1])


def run_alone(contender: str, features: int, classes: int) -> dict[str, Any] | None:
    """Run a contender in a process of its own; None where it fails or takes too long."""
    command = [sys.executable, "-m", "benchmarks.laplace", "--one", contender, str(features), str(classes)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return json.loads(done.stdout.splitlines()[-1])


def report(rows: list[dict[str, Any]]) -> str:
    """Return the table that is printed."""
    lines = [
        f"{'features':>8} {'classes':>7}  {'':<18} {'fit, s':>7} {'draw, s':>8} {'ms an input':>12} "
        f"{'of processor':>13} {'peak, MB':>9} {'GFLOP/s':>8} {'at best':>8}"
    ]
    for row in rows:
        head = f"{row['features']:>8} {row['classes']:>7}  {row['contender']:<18}"
        if row["found"] is None:
            lines.append(f"{head} failed, or took more than {SECONDS} s")
            continue
        found = row["found"]
        drawn = f"{found['draw']:8.2f}" if "draw" in found else " " * 8
        speed = f" {found['gflops']:8.0f} {found['peak_gflops']:8.0f}" if "gflops" in found else ""
        lines.append(
            f"{head} {found['fit']:7.2f} {drawn} {found['ms_per_input']:12.3f} "
            f"{found['processor_ms_per_input']:13.3f} {found['peak_megabytes']:9.0f}{speed}"
        )
    lines.append(
        f"({FITTED} inputs fitted, {SCORED} scored with {SAMPLES} samples; draw: the heads, once; peak, MB: "
        "of the whole process; GFLOP/s: of the products of heads and features, per second of the processor; "
        "at best: of a large product alone)"
    )
    return "\n".join(lines)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--large", action="store_true", help="1280 x 1000 and 128 x 3100, demur alone")
    parser.add_argument(
        "--one", nargs=3, metavar=("CONTENDER", "FEATURES", "CLASSES"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.one:
        contender, features, classes = arguments.one
        print(json.dumps(run_one(contender, int(features), int(classes))))
        return
    theirs = importlib.util.find_spec("laplace") is not None
    wanted = [(c, *size) for size in SMALL for c in CONTENDERS if theirs or c.startswith("demur")]
    wanted += [(c, *size) for size in LARGE * arguments.large for c in CONTENDERS[:2]]
    rows = [{"contender": c, "features": f, "classes": k, "found": run_alone(c, f, k)} for c, f, k in wanted]
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "laplace.json"
    machine = {"processor": platform.machine(), "cpus": os.cpu_count()}
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2))
    print(report(rows))
    if not theirs:
        print("laplace-torch is not installed: pip install laplace-torch for its rows.")
    print(f"Saved {path}.")


if __name__ == "__main__":
    main()
