"""What a deferral promises and keeps: fitted on questions drawn at random, judged on all there are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demur.deferral import Deferral
from demur.reproduce.records import Records
from demur.tasks.guarantees import NoGuarantee

VERSION = 1
"""Changes with any change of the code that changes the figures."""
DRAWS = 200
"""How often a policy is fitted, each time on half as many questions as there are, with replacement."""
CONFIDENCE = 0.95


def try_promises(
    scores: Mapping[str, np.ndarray], correct: np.ndarray, accuracies: list[float], seed: int
) -> Records:
    """Return how often a promise was made and broken, and how much was kept; a row for each.

    The questions stand for all that there are: those that a policy is fitted on are independent draws from
    them, and whether it keeps its promise is known exactly. ``promised`` and ``broken`` are shares of all
    draws; ``kept``, with its 5th and 95th percentile, and ``right`` are means over the promises.
    """
    found: Records = []
    for accuracy in accuracies:
        for name, values in scores.items():
            rng = np.random.default_rng([seed, 17])
            kept, right = [], []
            for _ in range(DRAWS):
                rows = rng.integers(len(correct), size=len(correct) // 2)
                try:
                    policy = Deferral.fit(
                        values[rows], correct[rows], accuracy=accuracy, confidence=CONFIDENCE
                    )
                except NoGuarantee:
                    continue
                keep = ~policy.defer(values)
                kept.append(keep.mean())
                right.append(correct[keep].mean())
            some = bool(kept)
            found.append({
                "accuracy": accuracy, "score": name, "promised": len(kept) / DRAWS,
                "broken": float(np.sum(np.array(right) < accuracy)) / DRAWS,
                "kept": float(np.mean(kept)) if some else 0.0,
                "kept_least": float(np.quantile(kept, 0.05)) if some else 0.0,
                "kept_most": float(np.quantile(kept, 0.95)) if some else 0.0,
                "right": float(np.mean(right)) if some else float("nan"),
            })  # fmt: skip
    return found
