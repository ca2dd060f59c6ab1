"""Time both credal sets on logits like a classifier's, print a table and save JSON.

python -m benchmarks.credal --out build/bench [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur import kernels

SHAPE = (50, 10_000, 1000)  # members, inputs, classes
NOISES = (0.3, 1.0, 3.0)  # standard deviation of a logit over members: agreement, an ensemble, confusion
ALIKE = (50, 100, 100)  # members, inputs and classes for the search among intervals that are all alike


def logits_of(shape: tuple[int, int, int], noise: float) -> np.ndarray:
    """Return float32 logits: a class that stands out by 0 to 14, and members that differ about it."""
    rng = np.random.default_rng(0)
    _, inputs, classes = shape
    common = 3 * rng.standard_normal((inputs, classes), dtype=np.float32)
    common[np.arange(inputs), rng.integers(0, classes, inputs)] += rng.uniform(0, 14, inputs)
    logits = rng.standard_normal(shape, dtype=np.float32)
    logits *= noise
    logits += common
    return logits


def alike() -> dict[str, Any]:
    """Search where it is hard: members from a Dirichlet distribution that is the same for all classes."""
    members = np.random.default_rng(0).dirichlet(np.full(ALIKE[2], 0.5), ALIKE[:2])
    return one("intervals", np.log(members), None)


def one(which: str, logits: np.ndarray, noise: float | None) -> dict[str, Any]:
    """Time one set, and read off how tight its certificate is."""
    demur.credal(logits=logits[:, :48], set=which)  # compiles
    load, begin, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
    found = demur.credal(logits=logits, set=which)
    return {
        "set": which,
        "shape": logits.shape,
        "noise": noise,
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": time.process_time() - cpu,
        "load_before": load,
        "difference": float(found.difference.mean()),
        "gap_median": float(np.median(found.gap)),
        "gap_max": float(found.gap.max()),
        "not_closed": int(np.sum(found.gap > 1e-6)),
    }


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--quick", action="store_true", help="200 inputs instead of 10,000")
    parser.add_argument("--noise", type=float, nargs="*", default=NOISES, help="spread of the members")
    arguments = parser.parse_args()
    shape = (SHAPE[0], 200, SHAPE[2]) if arguments.quick else SHAPE
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"{kernels.count_threads()} threads; noise None: all classes alike")
    titles = ("set", 10), ("size", 18), ("noise", 6), ("seconds", 8), ("cpu", 8), ("load", 6), ("gap", 8)
    print(" ".join(f"{title:>{width}}" for title, width in titles) + "  > 1e-6")
    rows = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print(
            f"{row['set']:>10} {row['shape']!s:>18} {row['noise']!s:>6} {row['seconds']:8.1f} "
            f"{row['cpu_seconds']:8.1f} {row['load_before']:6.2f} {row['gap_max']:8.1e} "
            f"{row['not_closed']:7d}",
            flush=True,
        )

    keep(alike())
    for noise in arguments.noise:
        logits = logits_of(shape, noise)
        for which in ("intervals", "hull"):
            keep(one(which, logits, noise))
    (arguments.out / "credal.json").write_text(json.dumps(rows, indent=2))
    print(f"Saved {arguments.out / 'credal.json'}.")


if __name__ == "__main__":
    main()
