"""What a deferral promises and keeps: fitted on one half of the questions, tried on the other, many times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demur.deferral import Deferral
from demur.reproduce.records import Records
from demur.tasks.guarantees import NoGuarantee

HALVES = 100
"""Random divisions into halves."""
CONFIDENCE = 0.95


def try_promises(
    scores: Mapping[str, np.ndarray], correct: np.ndarray, accuracies: list[float], seed: int
) -> Records:
    """Return how often a promise was made, how much was kept, and how right that was; a row each.

    ``kept_least`` and ``kept_most`` are the 5th and 95th percentile over halves. ``broken`` is the share of
    promises whose other half was less accurate than promised; chance in that half breaks some that hold.
    """
    found: Records = []
    for accuracy in accuracies:
        for name, values in scores.items():
            rng = np.random.default_rng([seed, 17])
            kept, right = [], []
            for _ in range(HALVES):
                order = rng.permutation(len(correct))
                fitted, tried = order[: len(order) // 2], order[len(order) // 2 :]
                try:
                    policy = Deferral.fit(
                        values[fitted], correct[fitted], accuracy=accuracy, confidence=CONFIDENCE
                    )
                except NoGuarantee:
                    continue
                keep = ~policy.defer(values[tried])
                if keep.any():
                    kept.append(keep.mean())
                    right.append(correct[tried][keep].mean())
            found.append({
                "accuracy": accuracy, "score": name, "promised": len(kept) / HALVES,
                "kept": float(np.mean(kept)) if kept else 0.0,
                "kept_least": float(np.quantile(kept, 0.05)) if kept else 0.0,
                "kept_most": float(np.quantile(kept, 0.95)) if kept else 0.0,
                "right": float(np.mean(right)) if kept else float("nan"),
                "broken": float(np.mean(np.array(right) < accuracy)) if kept else 0.0,
            })  # fmt: skip
    return found
