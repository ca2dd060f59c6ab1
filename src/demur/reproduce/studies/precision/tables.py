"""The tables of the study, from its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from demur.reproduce.records import Records
from demur.reproduce.studies.precision.formulas import EXACT, FORMULAS
from demur.reproduce.studies.precision.ranking import compute_placements, estimate_mean

_Scores = Mapping[tuple[str, float], Sequence[Mapping[str, np.ndarray]]]
"""Scores by posterior and level: columns of each draw."""
FLOAT64_LOGITS = "exact, float64 logits"
"""Scores from logits in float64, for the first draw: the effect of rounding the logits themselves."""


def build_tables(found: _Scores, positive: np.ndarray) -> tuple[Records, Records, Records, Records]:
    """Return AUROCs, gaps between K and I, the check against float64, and how well the members predict."""
    curves: Records = []
    gaps: Records = []
    checks: Records = []
    fits: Records = []
    for (posterior, level), draws in found.items():
        where = {"posterior": posterior, "level": level}
        places = {
            (name, measure): compute_placements(
                np.stack([each[f"{name}|{measure}"] for each in draws]), positive
            )
            for name, measure in _list_usable(draws)
        }
        curves += [where | row for row in _list_aurocs(draws, places, positive)]
        gaps += [where | row for row in _list_gaps(places, positive)]
        checks += [where | row for row in _list_checks(draws[0], positive)]
        known = ~positive
        fits.append(
            where
            | {
                "draws": len(draws),
                "accuracy": float(np.mean([each["right"][known] for each in draws])),
                "nll": float(np.mean([each["nll"][known] for each in draws])),
                "median_k": float(np.median([each[f"{EXACT.name}|K"] for each in draws])),
            }
        )
    return curves, gaps, checks, fits


def _list_usable(draws: Sequence[Mapping[str, np.ndarray]]) -> Iterator[tuple[str, str]]:
    """Yield the formulas and measures that are not NaN for any input."""
    for formula in FORMULAS:
        for measure in "IK":
            if not any(np.isnan(each[f"{formula.name}|{measure}"]).any() for each in draws):
                yield formula.name, measure


def _list_aurocs(
    draws: Sequence[Mapping[str, np.ndarray]],
    places: Mapping[tuple[str, str], np.ndarray],
    positive: np.ndarray,
) -> Iterator[dict[str, Any]]:
    """Yield the AUROC of each formula and measure; NaN if some scores are NaN."""
    for formula in FORMULAS:
        for measure in "IK":
            key = formula.name, measure
            scores = np.stack([each["|".join(key)] for each in draws])
            row = {
                "arithmetic": formula.name, "measure": measure, "auroc": np.nan, "low": np.nan,
                "high": np.nan, "not_a_number": float(np.isnan(scores).mean()),
                "below_zero": float((scores < 0).mean()),
            }  # fmt: skip
            if key in places:
                auroc = estimate_mean(places[key], positive)
                row |= {"auroc": auroc.value, "low": auroc.low, "high": auroc.high}
            yield row


def _list_gaps(
    places: Mapping[tuple[str, str], np.ndarray], positive: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield by how much the AUROC of K exceeds that of I, and how much of it remains without rounding."""
    mathematics = places[EXACT.name, "K"] - places[EXACT.name, "I"]
    for formula in FORMULAS:
        name = formula.name
        if (name, "K") in places and (name, "I") in places:
            gap = places[name, "K"] - places[name, "I"]
            row: dict[str, Any] = {"arithmetic": name}
            for part, values in (("gap", gap), ("mathematics", mathematics), ("rounding", gap - mathematics)):
                found = estimate_mean(values, positive)
                row |= {part: found.value, f"{part}_low": found.low, f"{part}_high": found.high}
            yield row


def _list_checks(draw: Mapping[str, np.ndarray], positive: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield how far scores from float32 logits are from those from float64 logits, for the first draw."""
    for measure in "IK":
        single, double = draw[f"{EXACT.name}|{measure}"], draw[f"{FLOAT64_LOGITS}|{measure}"]
        aurocs = [
            float(compute_placements(each[None], positive)[0, positive].mean()) for each in (single, double)
        ]
        yield {
            "measure": measure,
            "auroc_float32_logits": aurocs[0],
            "auroc_float64_logits": aurocs[1],
            "median_relative_difference": float(np.median(np.abs(single - double) / double)),
        }
