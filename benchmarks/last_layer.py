"""Time last-layer scoring beside the loop one would write, and against the speed of a matrix product.

python -m benchmarks.last_layer --out build/bench [--quick]

A last layer of 1280 features and 1000 classes, for batches of 64 to 1024 inputs. Everything is included:
masks, products, and the sums, measures and average prediction that `demur.score` returns. The loop is
dropout (or the next head), linear, softmax, stack, reduce. Shares of the peak are of the operations a
second of a large square product in single precision, timed in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import demur
from benchmarks.timing import interleaved, ratio
from demur import kernels
from demur.posteriors import LastLayer

FEATURES, CLASSES, RATE = 1280, 1000, 0.2
SQUARE = 2048
INPUTS = (64, 256, 1024)
MEMBERS = 100


def layer_of() -> torch.nn.Linear:
    """Return a last layer whose logits spread like a trained one's."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        layer.weight.normal_(0, 0.1)
    return layer.requires_grad_(False)


def reduced(probabilities: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Stack the members' probabilities, and return total, aleatoric and epistemic part and the prediction."""
    p = torch.stack(probabilities)
    log_p, average = p.log(), p.mean(0)
    aleatoric = -(p * log_p).sum(-1).mean(0)
    total = -(average * log_p.mean(0)).sum(-1)
    mutual = -(average * average.log()).sum(-1) - aleatoric
    return total, aleatoric, total - aleatoric, mutual, average.argmax(-1)


def loop_of_dropout(layer: torch.nn.Linear, features: torch.Tensor, members: int) -> Any:
    """Draw one mask after the other."""
    drawn = (functional.dropout(features, RATE) for _ in range(members))
    return reduced([torch.softmax(layer(rows), -1) for rows in drawn])


def loop_of_heads(weight: torch.Tensor, bias: torch.Tensor, features: torch.Tensor) -> Any:
    """Apply one head after the other."""
    pairs = zip(weight, bias, strict=True)
    return reduced([torch.softmax(functional.linear(features, w, b), -1) for w, b in pairs])


def one_size(
    inputs: int, heads: tuple[torch.Tensor, torch.Tensor], rounds: int, budget: float
) -> dict[str, Any]:
    """Time all contenders on batches of one size, as many members as make about the same work."""
    layer = layer_of()
    features = torch.rand(inputs, FEATURES) * 2
    square = torch.rand(SQUARE, SQUARE)
    dropout = LastLayer(layer, dropout=RATE, samples=MEMBERS)
    sampled = LastLayer(layer, heads)
    contenders: dict[str, Callable[[], Any]] = {
        "square product": lambda: square @ square,
        "masks": lambda: demur.score(dropout, [features], progress=False),
        "heads": lambda: demur.score(sampled, [features], progress=False),
        "loop of masks": lambda: loop_of_dropout(layer, features, MEMBERS),
        "loop of heads": lambda: loop_of_heads(*heads, features),
    }
    with torch.no_grad():
        seconds = interleaved(contenders, rounds, budget)
    work = 2 * inputs * FEATURES * CLASSES * MEMBERS
    peak = [2 * SQUARE**3 / each for each in seconds["square product"]]
    speed = {name: [work / each for each in times] for name, times in seconds.items() if "square" not in name}
    return {
        "inputs": inputs,
        "members": MEMBERS,
        "peak_gigaflops": max(peak) / 1e9,
        "milliseconds": {name: min(times) * 1e3 for name, times in seconds.items()},
        # Of the best round, and of the median round against the product of that round.
        "share_of_peak": {name: max(own) / max(peak) for name, own in speed.items()},
        "median_share_of_peak": {name: ratio(own, peak) for name, own in speed.items()},
        "times_the_loop": {n: ratio(seconds[f"loop of {n}"], seconds[n]) for n in ("masks", "heads")},
    }


def memory() -> list[dict[str, Any]]:
    """Return the peak of what scoring allocates through NumPy beside PyTorch's logits, as members grow."""
    layer, features = layer_of(), torch.rand(64, FEATURES)
    rows = []
    for members in (64, 256, 1024):
        posterior = LastLayer(layer, dropout=RATE, samples=members)
        demur.score(posterior, [features[:2]], progress=False)
        tracemalloc.start()
        demur.score(posterior, [features], progress=False)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        chunk = max(c.numel() * c.element_size() for c, _ in posterior.predict(features))
        rows.append({"members": members, "numpy_bytes": peak, "chunk_bytes": chunk})
    return rows


def report(results: dict[str, Any]) -> str:
    """Return the table that is printed."""
    lines = [f"{'inputs':>7} {'':>6} {'ms':>8} {'of peak':>8} {'median':>7} {'loop, ms':>9} {'x':>5}"]
    for row in results["sizes"]:
        for name in ("heads", "masks"):
            ms = row["milliseconds"]
            lines.append(
                f"{row['inputs']:>7} {name:>6} {ms[name]:8.0f} {row['share_of_peak'][name]:8.0%} "
                f"{row['median_share_of_peak'][name]:7.0%} {ms[f'loop of {name}']:9.0f} "
                f"{row['times_the_loop'][name]:5.1f}"
            )
    peak = max(row["peak_gigaflops"] for row in results["sizes"])
    sizes = {r["members"]: (r["numpy_bytes"] + r["chunk_bytes"]) / 2**20 for r in results["memory"]}
    lines += [
        f"({MEMBERS} members; ms: best round; of peak: of the best square product, {peak:.0f} GFLOP/s;",
        "median: over rounds, against the product of the same round; x: median over rounds, loop over demur)",
        "memory with masks, 64 inputs: " + ", ".join(f"{s:.0f} MiB at {m}" for m, s in sizes.items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    rounds, budget = (3, 5.0) if arguments.quick else (15, 30.0)
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    heads = torch.randn(MEMBERS, CLASSES, FEATURES) * 0.1, torch.randn(MEMBERS, CLASSES)
    results = {
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count(),
                    "threads": kernels.count_threads(), "torch_threads": torch.get_num_threads(),
                    "torch": torch.__version__},
        "sizes": [one_size(inputs, heads, rounds, budget) for inputs in INPUTS],
        "memory": memory(),
    }  # fmt: skip
    path = arguments.out / "last_layer.json"
    path.write_text(json.dumps(results, indent=2))
    print(report(results))
    print(f"Saved {path}.")


if __name__ == "__main__":
    main()
