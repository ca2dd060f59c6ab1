"""How often `demur.Monitor` alarms without reason, and how soon with one, by simulation.

python -m benchmarks.monitor --out build/monitor [--streams 10000] [--quick]

The loop below is that of `demur.tasks.betting.Bettors`, compiled; `check_loop` compares both.
"""

# ruff: noqa: NPY002 (compiled loops have no other random numbers that can be seeded inside them)

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.stats import binom

import demur
from demur.tasks import betting

LIMIT, CONFIDENCE, AUDIT = 0.05, 0.95, 0.1
INPUTS = 100_000
HARMS = (0.005, 0.01, 0.02, 0.05)
CHANGE = 20_000
NULLS = {
    "constant, at the limit": 0,
    "drifting, never above the limit": 1,
    "risk chosen after each look at the capital": 2,
    "scores without information, audits by score": 3,
    "all errors where audits are frequent": 4,
    "audits ten times as frequent once the capital is 2": 5,
    "one error in every 20 kept, the same place": 6,
    "scores tell the truth, errors audited 100 times as often": 7,
    "scores tell the truth, errors audited 100 times as rarely": 8,
}
"""Courses of the risk for which the promise holds; in number 6, on average over any 20 in a row."""


class Found(NamedTuple):
    """What happened in each stream: kept inputs at the alarm (-1: none), and audits until then."""

    alarm: np.ndarray
    audits: np.ndarray


@numba.njit(cache=False)
def follow(kind, streams, inputs, change, before, after, audit, limit, stakes, norm, needed, seed):
    alarm, audits = np.full(streams, -1), np.zeros(streams, np.int64)
    number = len(stakes)
    for stream in range(streams):
        np.random.seed(seed + stream)
        capital, cash, total, count = np.zeros(number), 1.0, 1.0, 0
        for t in range(inputs):
            risk, chance, least = (before if t < change else after), audit, audit
            if kind == 1:
                risk = limit * (0.5 + 0.5 * math.sin(2 * math.pi * t / 30_000))
            elif kind == 2:  # quiet while it has lost, at the limit while it is ahead
                risk = limit if total >= 0.9 or t % 5_000 < 2_500 else 0.0
            elif kind == 3:
                least = 0.05
                chance = 0.5 if np.random.random() < 0.5 else 0.05
            elif kind == 4:
                least = 0.05
                hard = np.random.random() < 0.5
                chance, risk = (0.5, 2 * limit) if hard else (0.05, 0.0)
            elif kind == 5:
                least = 0.05
                chance = 0.5 if total >= 2 else 0.05
            elif kind == 6:
                risk = 1.0 if t % 20 == 0 else 0.0
            elif kind >= 7:
                least = 0.005
                risk = 1.0 if np.random.random() < limit else 0.0
                chance = 0.5 if (risk == 1.0) == (kind == 7) else 0.005
            if np.random.random() >= chance:
                continue
            wrong = np.random.random() < risk
            count += 1
            fresh = 1 / (count * norm)
            cash -= fresh
            total = cash
            for j in range(number):
                share = stakes[j] * least / chance
                factor = 1 + share * (1 - limit) / limit if wrong else 1 - share
                capital[j] = min((capital[j] + fresh / number) * factor, 1e300)
                total += capital[j]
            if total >= needed:
                alarm[stream] = t + 1
                break
        audits[stream] = count
    return alarm, audits


def simulate(kind: int, streams: int, inputs: int, **options: Any) -> Found:
    """Follow many streams until their alarm, or their end."""
    chosen: dict[str, Any] = {
        "change": inputs,
        "before": LIMIT,
        "after": LIMIT,
        "audit": AUDIT,
        "limit": LIMIT,
    }
    chosen |= {"seed": 1_000_000 * (kind + 1)} | options
    norm, needed = 1 / betting.start_capital(1), 1 / (1 - CONFIDENCE)
    names = ("change", "before", "after", "audit", "limit")
    args = [chosen[name] for name in names]
    return Found(*follow(kind, streams, inputs, *args, betting.list_stakes(), norm, needed, chosen["seed"]))


def check_loop() -> None:
    """Raise unless the compiled loop alarms where `demur.Monitor` does, on the same audits."""
    policy = demur.Deferral.fit(np.zeros(100), np.ones(100, bool), accuracy=1 - LIMIT)
    found = simulate(0, 20, 40_000, change=1000, before=0.03, after=0.09)
    for stream, (alarm, audits) in enumerate(zip(*found, strict=True)):
        assert alarm > 0
        chosen, wrong = _replay(1_000_000 + stream, alarm, 1000, 0.03, 0.09)
        monitor = demur.Monitor(policy, confidence=CONFIDENCE, audit=AUDIT)
        monitor.observe(np.zeros(alarm), ~wrong, chosen)
        assert monitor.status.alarm_at == alarm and monitor.status.audited == audits, stream


@numba.njit(cache=False)
def _replay(seed, end, change, before, after):
    """Return which inputs of a stream that `follow` made were audited, and which of these were wrong."""
    np.random.seed(seed)
    chosen, wrong = np.zeros(end, np.bool_), np.zeros(end, np.bool_)
    for t in range(end):
        if np.random.random() < AUDIT:
            chosen[t], wrong[t] = True, np.random.random() < (before if t < change else after)
    return chosen, wrong


def count_false_alarms(streams: int) -> list[dict[str, Any]]:
    """Simulate each course of the risk under which the promise holds."""
    rows = []
    for name, kind in NULLS.items():
        begin = time.perf_counter()
        found = simulate(kind, streams, INPUTS)
        share = float(np.mean(found.alarm >= 0))
        error = math.sqrt(share * (1 - share) / streams)
        rows.append({"course": name, "alarms": share, "standard_error": error, "streams": streams})
        print(
            f"{name:55s} {100 * share:5.2f} % +- {100 * error:.2f}   {time.perf_counter() - begin:.0f} s",
            flush=True,
        )
    return rows


def measure_delays(streams: int) -> list[dict[str, Any]]:
    """Simulate harm of several sizes, after 20,000 kept inputs at the limit or below it."""
    rows = []
    for before in (LIMIT, 0.8 * LIMIT):
        for harm in HARMS:
            found = simulate(
                0, streams, CHANGE + 2_000_000, change=CHANGE, before=before, after=LIMIT + harm, seed=77
            )
            late = found.alarm[(found.alarm < 0) | (found.alarm > CHANGE)] - CHANGE
            late = np.where(late < 0, np.inf, late)
            fixed = [find_fixed_size(harm, power) for power in (0.5, 0.9)]
            row = {
                "before": before,
                "harm": harm,
                "before_change": float(np.mean((found.alarm >= 0) & (found.alarm <= CHANGE))),
                "median": float(np.median(late)),
                "of_90_percent": float(np.quantile(late, 0.9, method="higher")),
                "fixed_50": fixed[0] / AUDIT,
                "fixed_90": fixed[1] / AUDIT,
            }
            rows.append(row)
            print(
                f"risk {before:.3f} -> {LIMIT + harm:.3f}: half after {row['median']:8.0f}, 90 % after "
                f"{row['of_90_percent']:8.0f}; fixed test {row['fixed_50']:8.0f}, {row['fixed_90']:8.0f}",
                flush=True,
            )
    return rows


def find_fixed_size(harm: float, power: float) -> int:
    """Return how many audits the exact binomial test needs that knows when the change came and looks once."""

    def reach(number: int) -> float:
        critical = binom.isf(1 - CONFIDENCE, number, LIMIT)  # rejects above it
        return float(binom.sf(critical, number, LIMIT + harm))

    low, high = 1, 1_000_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reach(middle) >= power else (middle, high)
    return high


def main() -> None:
    """Run all, print as it goes, and save JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/monitor"))
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="100 streams")
    options = parser.parse_args()
    streams = 100 if options.quick else options.streams
    check_loop()
    found = {"false_alarms": count_false_alarms(streams), "delays": measure_delays(max(100, streams // 10))}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "simulation.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
