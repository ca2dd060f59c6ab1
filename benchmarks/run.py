"""Time demur beside what a user would run instead, print a table, save JSON and a figure.

python -m benchmarks.run --out build/bench [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import timeit
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import demur
from benchmarks import baselines
from benchmarks.timing import interleaved, memory_beyond_input, ratio
from demur import kernels

os.environ["DEMUR_COMPILE"] = "always"  # also for the processes that each size runs in

SIZES = [
    (100, 256, 1000),
    (100, 2000, 10),
    (100, 1000, 32),
    (1000, 1000, 2),
    (100, 10000, 10),
    (100, 10000, 32),
    (10, 10000, 1000),
    (8, 64, 128000),
]
OF_PROBABILITIES = [
    (10, 10000, 10),
    (1000, 1000, 2),
    (100, 10000, 10),
    (100, 256, 1000),
    (10, 10000, 1000),
    (8, 64, 128000),
]
GROWING = {
    "members": [(n, 256, 100) for n in (5, 10, 30, 100, 300, 1000)],
    "inputs": [(20, b, 100) for b in (16, 64, 256, 1024, 4096, 16384)],
    "classes": [(20, 256, c) for c in (2, 10, 32, 100, 320, 1000, 3200, 10000)],
}


def logits_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 logits with the spread of a trained classifier's."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * 3


def without_numba(logits: np.ndarray) -> Any:
    """Decompose by plain array functions, as where no loop has been compiled."""
    os.environ["DEMUR_COMPILE"] = "never"
    try:
        return demur.decompose(logits=logits)
    finally:
        os.environ["DEMUR_COMPILE"] = "always"


def alone(function: Any, *args: Any, **options: Any) -> Any:
    """Call a function in a process of its own.

    What ran before would otherwise decide how fast PyTorch is: memory that the C library has not given back
    saves it half of its time on sizes of a few megabytes.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *args, **options).result()


def one_size(shape: tuple[int, ...], rounds: int, budget: float, *, everything: bool) -> dict[str, Any]:
    """Time all contenders on one size."""
    logits = logits_of(shape)
    tensor = torch.from_numpy(logits)
    members_last = np.ascontiguousarray(logits.transpose(1, 0, 2)).transpose(1, 0, 2)
    contenders = {
        "demur": lambda: demur.decompose(logits=logits),
        "eager torch": lambda: baselines.eager_torch(tensor),
        "read memory": lambda: baselines.read_memory(tensor),
    }
    if everything:
        contenders |= {
            "demur, inputs first": lambda: demur.decompose(logits=members_last),
            "demur, no numba": lambda: without_numba(logits),
            "NumPy + SciPy": lambda: baselines.numpy_scipy(logits),
            "NumPy + SciPy, as read": lambda: baselines.numpy_scipy_as_read(logits),
        }
    seconds = interleaved(contenders, rounds, budget)
    own = seconds["demur"]
    return {
        "shape": shape,
        "ns_per_logit": {name: min(times) / logits.size * 1e9 for name, times in seconds.items()},
        "times_slower_than_demur": {n: ratio(t, own) for n, t in seconds.items() if n != "demur"},
    }


def from_probabilities(shape: tuple[int, ...], rounds: int, budget: float) -> dict[str, Any]:
    """Time what takes probabilities, beside logits of the same size."""
    logits = logits_of(shape)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs = odds / odds.sum(axis=-1, keepdims=True)
    tensor = torch.from_numpy(probs)
    contenders = {
        "demur, logits": lambda: demur.decompose(logits=logits),
        "demur, probs": lambda: demur.decompose(probs),
        "as bayesian-torch": lambda: baselines.probabilities_as_bayesian_torch(probs),
        "as torch-uncertainty": lambda: baselines.probabilities_as_torch_uncertainty(tensor),
        "demur, brier": lambda: demur.decompose(probs, rule="brier"),
        "brier as probly": lambda: baselines.brier_as_probly(probs),
        "demur, zero_one": lambda: demur.decompose(probs, rule="zero_one"),
        "zero_one as probly": lambda: baselines.zero_one_as_probly(probs),
    }
    seconds = interleaved(contenders, rounds, budget)
    return {
        "shape": shape,
        "ns_per_number": {name: min(times) / probs.size * 1e9 for name, times in seconds.items()},
    }


def pairs(budget: float) -> dict[str, Any]:
    """Time the loop over pairs at 100 members."""
    logits = logits_of((100, 256, 1000))
    tensor = torch.from_numpy(logits)
    seconds = interleaved(
        {
            "demur": lambda: demur.decompose(logits=logits),
            "loop over pairs": lambda: baselines.pairs_torch(tensor),
            "loop over kl_div": lambda: baselines.pairs_of_kl_div(tensor),
            "loop over distributions": lambda: baselines.pairs_of_distributions(tensor),
        },
        3,
        budget,
    )
    return {
        "shape": logits.shape,
        "times_slower_than_demur": {
            n: ratio(t, seconds["demur"]) for n, t in seconds.items() if n != "demur"
        },
    }


def smallest_call() -> float:
    """Return the microseconds of a call on (10, 1, 10) after warm-up."""
    logits = np.random.default_rng(0).normal(size=(10, 1, 10))
    times = timeit.repeat(lambda: demur.decompose(logits=logits), number=200, repeat=15)
    return min(times) / 200 * 1e6


def memory() -> list[dict[str, Any]]:
    """Return memory beyond the input, over inputs x classes x 8 bytes, as members grow."""
    rows = []
    for members in (10, 100, 400):
        logits = logits_of((members, 64, 1000))
        peak = memory_beyond_input(lambda logits=logits: demur.decompose(logits=logits))
        rows.append({"members": members, "bytes": peak, "times_inputs_x_classes_x_8": peak / (64 * 1000 * 8)})
    return rows


def import_seconds() -> dict[str, Any]:
    """Return the seconds that importing demur adds to importing NumPy, and what it must not import."""
    code = (
        "import time, numpy; b = time.perf_counter(); import demur; t = time.perf_counter() - b; import sys; "
        "heavy = [m for m in ('torch', 'numba', 'jax', 'pandas', 'matplotlib') if m in sys.modules]; "
        "print(t, heavy)"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True).split(" ", 1) for _ in range(5)]
    return {"seconds": min(float(t) for t, _ in runs), "heavy": runs[0][1].strip()}


def report(results: dict[str, Any]) -> str:
    """Return the table that is printed."""
    titles = (
        ("demur", 8), ("torch", 8), ("x", 6), ("SciPy", 8), ("x", 6), ("as read", 8), ("x", 6),
        ("no numba", 9), ("x torch", 8),
    )  # fmt: skip
    lines = [f"{'size':>20} " + " ".join(f"{title:>{width}}" for title, width in titles)]
    for row in results["sizes"]:
        ns, slower = row["ns_per_logit"], row["times_slower_than_demur"]
        generic = slower["eager torch"] / slower["demur, no numba"]
        lines.append(
            f"{row['shape']!s:>20} {ns['demur']:8.2f} {ns['eager torch']:8.2f} {slower['eager torch']:6.1f} "
            f"{ns['NumPy + SciPy']:8.2f} {slower['NumPy + SciPy']:6.1f} "
            f"{ns['NumPy + SciPy, as read']:8.2f} {slower['NumPy + SciPy, as read']:6.1f} "
            f"{ns['demur, no numba']:9.2f} {generic:8.2f}"
        )
    lines += ["", "From float32 probabilities, ns a number:"]
    for row in results["probabilities"]:
        figures = ", ".join(f"{name} {ns:.2f}" for name, ns in row["ns_per_number"].items())
        lines.append(f"{row['shape']!s:>20} {figures}")
    first = results["sizes"][0]["ns_per_logit"]
    lines += [
        "",
        "(ns a logit, best round; x: median over rounds of the ratio to demur; x torch: eager over no numba;",
        "SciPy: one log-softmax, the fastest way to write it; as read: softmax, log_softmax and entr)",
        *(
            f"{n}, 100 members: {x:.0f} x demur"
            for n, x in results["pairs"]["times_slower_than_demur"].items()
        ),
        f"share of the read bandwidth: {first['read memory'] / first['demur']:.0%}",
        f"inputs first in memory: {first['demur, inputs first']:.2f} ns a logit",
        f"call on (10, 1, 10): {results['smallest_call_us']:.0f} us",
        "memory beyond the input over inputs x classes x 8 bytes: "
        + ", ".join(
            f"{r['times_inputs_x_classes_x_8']:.2f} at {r['members']} members" for r in results["memory"]
        ),
        f"import beyond NumPy: {results['import']['seconds']:.2f} s; heavy: {results['import']['heavy']}",
    ]
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw ns a logit as members, inputs and classes grow."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
    colours = {"demur": "#0072B2", "eager torch": "#D55E00", "read memory": "#777777"}
    for axis, (what, rows), which in zip(axes, results["growing"].items(), (0, 1, 2), strict=True):
        for name, colour in colours.items():
            x = [row["shape"][which] for row in rows]
            y = [row["ns_per_logit"][name] for row in rows]
            style = "--" if name == "read memory" else "-"
            axis.loglog(x, y, style, color=colour, marker="o", markersize=4, label=name)
        fixed = [str(n) if i != which else what[0].upper() for i, n in enumerate(rows[0]["shape"])]
        axis.set_xlabel(f"{what}, size ({', '.join(fixed)})")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("nanoseconds a logit")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    rounds, budget = (3, 5.0) if arguments.quick else (15, 20.0)
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {
        "machine": {"processor": platform.machine(), "threads": kernels.count_threads(),
                    "torch": torch.__version__, "numpy": np.__version__, "cpus": os.cpu_count()},
        "sizes": [alone(one_size, shape, rounds, budget, everything=True) for shape in SIZES],
        "probabilities": [alone(from_probabilities, shape, rounds, budget) for shape in OF_PROBABILITIES],
        "pairs": alone(pairs, budget),
        "smallest_call_us": smallest_call(),
        "memory": memory(),
        "import": import_seconds(),
        "growing": {
            what: [alone(one_size, shape, rounds, budget / 5, everything=False) for shape in shapes]
            for what, shapes in GROWING.items()
        },
    }  # fmt: skip
    (arguments.out / "bench.json").write_text(json.dumps(results, indent=2))
    draw(results, arguments.out / "bench.png")
    print(report(results))
    print(f"Saved {arguments.out / 'bench.json'} and {arguments.out / 'bench.png'}.")


if __name__ == "__main__":
    main()
