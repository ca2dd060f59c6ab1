"""How many members does the order of inputs take: a fixed number for all, or as many as each needs?

python -m benchmarks.adaptive FOLDER --out build/bench [--every 1] [--seeds 10] [--members 2000]

FOLDER holds ``efficientnet_lite0_features.npz``: features of ImageNet validation images ``val``, (inputs,
1280), and the last layer ``fc_weight``, ``fc_bias``. MC dropout of the last layer, rate 0.2; scores are K.
The reference is K of ``--members`` members with a seed of its own. For each seed: the rank correlation with
the reference of each fixed number of members, of the same members' scores leaning on the known spread, of
scores with each tolerance, and the smallest fixed number that does as well, interpolated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import demur
from demur.posteriors import LastLayer
from demur.scoring.logit_spread import LogitSpread

RATE, GOAL = 0.2, 0.99
TOLERANCES = (0.06, 0.05, 0.04)
FIXED = range(8, 97, 4)
BATCH = 250
REFERENCE_SEED = 1_000_000


def load(folder: Path, every: int) -> tuple[torch.nn.Linear, list[torch.Tensor]]:
    """Return the last layer, and batches of features."""
    with np.load(folder / "efficientnet_lite0_features.npz") as file:
        features, weight, bias = (file[name].astype(np.float32) for name in ("val", "fc_weight", "fc_bias"))
    layer = torch.nn.Linear(*weight.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer, list(torch.from_numpy(features[::every]).split(BATCH))


def k_of(posterior: LastLayer, batches: list[torch.Tensor], **options: Any) -> demur.Scores:
    """Return scores by K alone."""
    return demur.score(posterior, batches, measures=["pairwise"], progress=False, **options)


def fixed_curves(layer: torch.nn.Linear, batches: list[torch.Tensor], seed: int) -> np.ndarray:
    """Return K of each fixed number of members, plain and leaning, (2, numbers, inputs); the same draws."""
    posterior = LastLayer(layer, dropout=RATE, samples=FIXED[-1], seed=seed)
    whole, position = [], 0
    for batch in batches:
        ask, moments, done, found = posterior.hold(batch, position=position), demur.Moments(), 0, []
        known, rows = posterior.spread(batch), np.arange(len(batch))
        assert known is not None
        spread = LogitSpread(posterior.deployed(batch), known, 1)
        for count in FIXED:
            for logits, _ in ask(range(done, count), None):
                moments.update(logits=logits.numpy())
                spread.update(logits.numpy(), done, rows)
            k = moments.decompose("pairwise", unbiased=True).epistemic
            found.append((k, k * spread.factors(rows)[0]))
            done = count
        whole.append(np.stack(found, axis=1))
        position += len(batch)
    return np.concatenate(whole, axis=2)


def correlation(scores: np.ndarray, reference: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return float(np.corrcoef(stats.rankdata(scores), stats.rankdata(reference))[0, 1])


def reached(numbers: np.ndarray, correlations: np.ndarray, goal: float) -> float:
    """Return the number of members at which a correlation is reached; NaN where none or all reach it.

    Interpolated, as 1 - rho falls about as 1 / members.
    """
    order = np.argsort(correlations)
    place, known = 1 / (1 - goal), 1 / (1 - correlations[order])
    return float(np.interp(place, known, numbers[order], left=np.nan, right=np.nan))


def one_seed(
    layer: torch.nn.Linear, batches: list[torch.Tensor], seed: int, reference: np.ndarray
) -> dict[str, Any]:
    """Return the correlations of fixed numbers and of tolerances, of one seed."""
    curves = fixed_curves(layer, batches, seed)
    curve, leaning = (np.array([correlation(k, reference) for k in each]) for each in curves)
    rows = []
    for tolerance in TOLERANCES:
        posterior = LastLayer(layer, dropout=RATE, samples=2000, seed=seed)
        scores = k_of(posterior, batches, tolerance=tolerance)
        found = correlation(scores["pairwise"].epistemic, reference)
        alike = reached(np.array(FIXED), curve, found)
        rows.append({
            "tolerance": tolerance, "members": float(scores.used.mean()), "correlation": found,
            "most": int(scores.used.max()), "fixed_that_does_as_well": alike,
            "bias": float(scores["pairwise"].epistemic.mean() / reference.mean() - 1),
        })  # fmt: skip
    members, correlations = (np.array([row[name] for row in rows]) for name in ("members", "correlation"))
    adaptive = reached(members, correlations, GOAL)
    fixed = reached(np.array(FIXED), curve, GOAL)
    return {
        "seed": seed,
        "fixed_curve": curve.tolist(),
        "tolerances": rows,
        "leaning_curve": leaning.tolist(),
        "fixed": fixed,
        "leaning": reached(np.array(FIXED), leaning, GOAL),
        "adaptive": adaptive,
    }


def interval(values: list[float]) -> str:
    """Return the mean over seeds and a 95 % interval, by t."""
    own = np.array(values)
    half = stats.t.ppf(0.975, len(own) - 1) * own.std(ddof=1) / np.sqrt(len(own))
    return f"{own.mean():.3f} [{own.mean() - half:.3f}, {own.mean() + half:.3f}]"


def report(results: dict[str, Any]) -> str:
    """Return the tables that are printed."""
    seeds = results["seeds"]
    curves = np.array([each["fixed_curve"] for each in seeds])
    lines = [f"{results['inputs']} inputs, reference of {results['members']} members, {len(seeds)} seeds", "",
             f"{'fixed':>9} {'rank correlation':>17} {'least':>8}"]  # fmt: skip
    lines += [
        f"{count:>9} {curves[:, i].mean():17.4f} {curves[:, i].min():8.4f}"
        for i, count in enumerate(FIXED)
        if abs(curves[:, i].mean() - GOAL) < 0.002
    ]
    titles = (
        "tolerance",
        "members",
        "rank correlation",
        "1 - 6 t^2",
        "least",
        "fixed alike",
        "saved",
        "bias of K",
    )
    lines += ["", " ".join(f"{title:>{max(9, len(title))}}" for title in titles)]
    for i, tolerance in enumerate(TOLERANCES):
        rows = [each["tolerances"][i] for each in seeds]
        mean = {name: np.mean([row[name] for row in rows]) for name in rows[0]}
        saved = np.mean([1 - row["members"] / row["fixed_that_does_as_well"] for row in rows])
        least = min(row["correlation"] for row in rows)
        lines.append(
            f"{tolerance:9.3f} {mean['members']:9.1f} {mean['correlation']:16.4f} "
            f"{1 - 6 * tolerance**2:9.4f} {least:9.4f} {mean['fixed_that_does_as_well']:11.1f} "
            f"{saved:9.1%} {mean['bias']:9.2%}"
        )
    saved = [1 - each["adaptive"] / each["fixed"] for each in seeds]
    times = [results["members"] / each["adaptive"] for each in seeds]
    lines += [
        "",
        f"at rank correlation {GOAL}, interpolated, paired by seed:",
        f"  fixed     {interval([each['fixed'] for each in seeds])} members",
        f"  leaning   {interval([each['leaning'] for each in seeds])} members, fixed",
        f"  adaptive  {interval([each['adaptive'] for each in seeds])} members",
        f"  saved     {interval(saved)} of the fixed number",
        f"  {results['members']} members are {interval(times)} times as many",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--every", type=int, default=1, help="take every so many-th input")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--members", type=int, default=2000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    layer, batches = load(arguments.folder, arguments.every)
    started = time.perf_counter()
    many = LastLayer(layer, dropout=RATE, samples=arguments.members, seed=REFERENCE_SEED)
    reference = k_of(many, batches, unbiased=True)["pairwise"].epistemic
    print(f"reference: {time.perf_counter() - started:.0f} s", flush=True)
    seeds = [one_seed(layer, batches, seed, reference) for seed in range(arguments.seeds)]
    results = {"inputs": len(reference), "members": arguments.members, "seeds": seeds}
    path = arguments.out / "adaptive.json"
    path.write_text(json.dumps(results, indent=2))
    print(report(results))
    print(f"Saved {path}.")


if __name__ == "__main__":
    main()
