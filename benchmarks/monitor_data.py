"""`demur.Monitor` on real data (digits that turn, photographs with textures mixed in), and beside MAPIE.

python -m benchmarks.monitor_data DATA --out build/monitor

DATA has lenet_mnist/lenet_mnist_50.npz (published LeNets), mnist/t10k-*.gz, and
imagenet_features/efficientnet_lite0_features.npz (features of photographs and textures, with the last layer).
Without DATA only the comparison with MAPIE runs, by simulation; it needs `pip install mapie`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import demur

RUNS = 50


class Scored(NamedTuple):
    """Inputs of one kind: their scores, and whether the prediction is right."""

    scores: np.ndarray
    correct: np.ndarray


def score_digits(data: Path) -> dict[str, Scored]:
    """Score MNIST test digits as they are, turned and with noise, by ten published LeNets."""
    import torch
    from scipy import ndimage

    from demur.reproduce.networks.small import lenet

    images = _read_idx(data / "mnist" / "t10k-images-idx3-ubyte.gz").astype(np.float32) / 255
    labels = _read_idx(data / "mnist" / "t10k-labels-idx1-ubyte.gz")
    weights = np.load(data / "lenet_mnist" / "lenet_mnist_50.npz")
    names = [name for name in weights.files if name != "seeds"]
    networks = []
    for member in range(10):
        network = lenet()
        network.load_state_dict({name: torch.from_numpy(weights[name][0, member]) for name in names})
        networks.append(network.eval())
    rng = np.random.default_rng(0)
    kinds = {"as they are": images}
    for angle in (15, 30, 45):
        turned = ndimage.rotate(images, angle, axes=(1, 2), reshape=False, order=1)
        kinds[f"turned by {angle} degrees"] = turned.astype(np.float32)
    for spread in (0.2, 0.4):
        noisy = images + rng.normal(0, spread, images.shape)
        kinds[f"with noise of {spread}"] = noisy.clip(0, 1).astype(np.float32)
    found = {}
    for name, changed in kinds.items():
        with torch.no_grad():
            inputs = torch.from_numpy(changed)
            logits = torch.stack([network(inputs) for network in networks]).numpy()
        found[name] = _score(logits, labels)
        print(f"{name:25s} accuracy {found[name].correct.mean():.4f}", flush=True)
    return found


def score_photographs(data: Path) -> dict[str, Scored]:
    """Score ImageNet photographs, and textures, which have no right class, by the entropy of one network."""
    held = np.load(data / "imagenet_features" / "efficientnet_lite0_features.npz")
    weight, bias = held["fc_weight"].astype(np.float32), held["fc_bias"]
    found = {}
    for name, key in (("photographs", "val"), ("textures", "dtd")):
        logits = held[key].astype(np.float32) @ weight.T + bias
        label = held["val_label"] if key == "val" else np.full(len(logits), -1)
        found[name] = _score(logits[None], label)
    return found


def _score(logits: np.ndarray, labels: np.ndarray) -> Scored:
    total = demur.decompose(logits=logits, measure="average").total
    return Scored(total, logits.mean(axis=0).argmax(axis=-1) == labels)


def _read_idx(path: Path) -> np.ndarray:
    content = gzip.decompress(path.read_bytes())
    dims = content[3]
    shape = [int.from_bytes(content[4 + 4 * k : 8 + 4 * k], "big") for k in range(dims)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dims).reshape(shape)


def watch(
    name: str,
    before: Scored,
    changed: Scored,
    *,
    accuracy: float,
    audit: float,
    calm_share: float,
    share: float = 1,
) -> dict[str, Any]:
    """Fit on a third of the inputs, then watch a share as they are and the rest changed, many times over."""
    early, delays, drifts, right, kept_share = 0, [], [], [], []
    for run in range(RUNS):
        rng = np.random.default_rng(run)
        order = rng.permutation(len(before.scores))
        ends = (np.array([1 / 3, 1 / 3 + calm_share]) * len(order)).astype(int)
        fit, calm, late = np.split(order, ends)
        policy = demur.Deferral.fit(before.scores[fit], before.correct[fit], accuracy=accuracy)
        if len(changed.scores) == len(before.scores):
            after = Scored(changed.scores[late], changed.correct[late])
        else:  # others, mixed in
            mixed = rng.choice(len(changed.scores), int(share * len(late)))
            after = Scored(
                *(
                    np.concatenate([b[late][len(mixed) :], c[mixed]])
                    for b, c in zip(before, changed, strict=True)
                )
            )
            turn = rng.permutation(len(late))
            after = Scored(after.scores[turn], after.correct[turn])
        monitor, drift = (
            demur.Monitor(policy, audit=audit, seed=run),
            demur.Drift(before.scores[fit], seed=run),
        )
        for part in (Scored(before.scores[calm], before.correct[calm]), after):
            monitor.observe(part.scores, part.correct)
            drift.observe(part.scores)
        at, drifted = monitor.status.alarm_at, drift.status.columns["score"].alarm_at
        early += at is not None and at <= len(calm)
        delays.append(np.inf if at is None else at - len(calm))
        drifts.append(np.inf if drifted is None else drifted - len(calm))
        kept = ~policy.defer(after.scores)
        right.append(after.correct[kept].mean())
        kept_share.append(kept.mean())
    row = {
        "change": name,
        "accuracy_promised": accuracy,
        "inputs_before": len(calm),
        "inputs_after": len(late),
        "accuracy_of_kept_after": float(np.mean(right)),
        "kept_after": float(np.mean(kept_share)),
        "alarms_before": early / RUNS,
        "alarms_after": float(np.mean(np.isfinite(delays))),
        "median_delay": _write(np.median(delays)),
        "drift_seen": float(np.mean(np.isfinite(drifts))),
        "median_drift_delay": _write(np.median(drifts)),
    }
    print(json.dumps(row), flush=True)
    return row


def _write(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def compare_with_mapie(runs: int = 50) -> list[dict[str, Any]]:
    """Watch the same audited answers with demur and with MAPIE's RiskMonitoring, at the same limit and level.

    All kept inputs are audited, as MAPIE has no audits; both see 2,000 inputs, then 4,000 at more risk.
    MAPIE spends half of its level on reference data; with a threshold given there are none, so its level is
    doubled here to have 0.05 online.
    """
    from mapie.exchangeability_testing import RiskMonitoring
    from mapie.risk_control import BinaryRisk

    error = BinaryRisk(
        risk_occurrence=lambda y_true, y_pred: y_true != y_pred,
        risk_condition=lambda y_true, y_pred: np.ones(len(np.ravel(y_true)), bool),
        higher_is_better=False,
    )
    policy = demur.Deferral.fit(np.zeros(100), np.ones(100, bool), accuracy=0.95)
    rows = []
    for before, after in ((0.05, 0.1), (0.04, 0.1)):
        delays: dict[str, list[float]] = {"demur": [], "mapie": []}
        seconds = {"demur": 0.0, "mapie": 0.0}
        for run in range(runs):
            rng = np.random.default_rng(run)
            wrong = rng.uniform(size=6000) < np.where(np.arange(6000) < 2000, before, after)
            begin = time.perf_counter()
            monitor = demur.Monitor(policy, audit=1.0)
            monitor.observe(np.zeros(6000), ~wrong)
            at = monitor.status.alarm_at
            seconds["demur"] += time.perf_counter() - begin
            delays["demur"].append(np.inf if at is None else at)
            begin = time.perf_counter()
            other = RiskMonitoring(risk=error, test_level=0.1, threshold=0.05, warn=False)
            other.update(np.zeros(6000, int), wrong.astype(int))
            above = np.flatnonzero(other.online_risk_lower_bound_sequence_history > 0.05)
            seconds["mapie"] += time.perf_counter() - begin
            delays["mapie"].append(np.inf if not len(above) else above[0] + 1)
        for name, at in delays.items():
            found = np.array(at)
            row = {
                "who": name,
                "before": before,
                "after": after,
                "alarms_before": float(np.mean(found <= 2000)),
                "alarms": float(np.mean(np.isfinite(found))),
                "median_delay": _write(np.median(found) - 2000),
                "seconds": seconds[name] / runs,
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    """Run all, print as it goes, and save JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("build/monitor"))
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.data is not None:
        digits = score_digits(options.data)
        found["digits"] = [
            watch(name, digits["as they are"], changed, accuracy=0.99, audit=0.2, calm_share=1 / 3)
            for name, changed in digits.items()
        ]
        sets = score_photographs(options.data)
        found["photographs"] = [
            watch(
                f"textures, {share:.0%}",
                *sets.values(),
                accuracy=0.85,
                audit=1.0,
                calm_share=1 / 6,
                share=share,
            )
            for share in (0.0, 0.2, 0.4, 0.6)
        ]
    try:
        found["mapie"] = compare_with_mapie()
    except ImportError:
        print("MAPIE is not installed: pip install mapie")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "data.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
