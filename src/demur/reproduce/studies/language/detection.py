"""How well the scores of tokens tell texts of the training kind from others: by text, and by single token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from demur.reproduce.records import Records
from demur.reproduce.studies.language.token_scores import average_prefix
from demur.tasks import compare, detection, holm

PAIRS = (
    ("step|k", "step|i"), ("step|total", "step|entropy"), ("step|k", "step|m"), ("step|k", "step|entropy"),
    ("step|k", "step|nll"), ("step|k", "alone|entropy"), ("step|k", "sequence|k"),
    ("step|entropy", "sequence|entropy"), ("step|nll", "sequence|nll"), ("step|nll", "alone|nll"),
)  # fmt: skip
"""The scores that are compared, the first minus the second."""
TOKEN = "token"
"""The unit of single tokens, beside those of texts, which are called by the length of the prefix."""
Scores = Mapping[str, np.ndarray]


def list_units(prefixes: list[int]) -> list[str]:
    """Return the units that are told apart: prefixes of texts, and single tokens."""
    return [*map(str, prefixes), TOKEN]


def take_unit(scores: Scores, unit: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the scores of the inputs of a unit, and the number of each one's text."""
    texts, positions = next(iter(scores.values())).shape
    if unit == TOKEN:
        return {name: each.ravel() for name, each in scores.items()}, np.repeat(np.arange(texts), positions)
    return average_prefix(scores, int(unit)), np.arange(texts)


def detect_set(known: Scores, other: Scores, units: list[str]) -> tuple[Records, Records]:
    """Return AUROCs of all scores, and paired differences, with intervals over draws of texts.

    P-values are not yet corrected: see `adjust_differences`.
    """
    found: Records = []
    differences: Records = []
    for unit in units:
        sides = [take_unit(each, unit) for each in (known, other)]
        clusters = None
        if unit == TOKEN:
            # No text is in both sets.
            clusters = sides[0][1], sides[1][1] + sides[0][1].max() + 1
        pairs = {name: (sides[0][0][name], sides[1][0][name]) for name in known}
        for name, pair in pairs.items():
            area = detection(*pair, interval="asymptotic", clusters=clusters).auroc
            found.append({
                "unit": unit, "score": name, "auroc": area.value, "low": area.low, "high": area.high,
                "mean_known": float(pair[0].mean()), "mean_other": float(pair[1].mean()),
            })  # fmt: skip
        for first, second in PAIRS:
            gap = compare(pairs[first], pairs[second], "detection", clusters=clusters)
            difference = gap.difference
            differences.append({
                "unit": unit, "first": first, "second": second, "difference": difference.value,
                "low": difference.low, "high": difference.high, "p_value": gap.p_value,
            })  # fmt: skip
    return found, differences


def adjust_differences(rows: Records) -> Records:
    """Return differences with p-values that hold for all of them at once (Holm)."""
    adjusted = holm([row["p_value"] for row in rows])
    return [row | {"adjusted": float(p)} for row, p in zip(rows, adjusted, strict=True)]


def judge_difference(row: Mapping[str, Any], level: float = 0.05) -> str:
    """Return "ahead", "even" or "behind", for the first of two scores."""
    if row["adjusted"] > level:
        return "even"
    return "ahead" if row["difference"] > 0 else "behind"
