"""The tables of the study, from its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from demur.reproduce.precision.arithmetic import ARITHMETICS, EXACT
from demur.reproduce.precision.ranking import estimate, placements

Rows = list[dict[str, Any]]
_Found = Mapping[tuple[str, float], Sequence[Mapping[str, np.ndarray]]]
"""Scores by posterior and level: columns of each draw."""
CHECK = "exact, float64 logits"
"""Scores of logits in float64, of the first draw: what rounding of the logits themselves does."""


def all_of(found: _Found, positive: np.ndarray) -> tuple[Rows, Rows, Rows, Rows]:
    """Return AUROCs, gaps between K and I, the check against float64, and what is known of the members."""
    curves: Rows = []
    gaps: Rows = []
    checks: Rows = []
    fits: Rows = []
    for (posterior, level), draws in found.items():
        where = {"posterior": posterior, "level": level}
        places = {
            (name, measure): placements(np.stack([each[f"{name}|{measure}"] for each in draws]), positive)
            for name, measure in _usable(draws)
        }
        curves += [where | row for row in _curve_rows(draws, places, positive)]
        gaps += [where | row for row in _gap_rows(places, positive)]
        checks += [where | row for row in _check_rows(draws[0], positive)]
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


def _usable(draws: Sequence[Mapping[str, np.ndarray]]) -> Iterator[tuple[str, str]]:
    """Yield arithmetics and measures that gave every input a number."""
    for arithmetic in ARITHMETICS:
        for measure in "IK":
            if not any(np.isnan(each[f"{arithmetic.name}|{measure}"]).any() for each in draws):
                yield arithmetic.name, measure


def _curve_rows(
    draws: Sequence[Mapping[str, np.ndarray]],
    places: Mapping[tuple[str, str], np.ndarray],
    positive: np.ndarray,
) -> Iterator[dict[str, Any]]:
    """Yield the AUROC of each arithmetic and measure; NaN where some inputs got no number."""
    for arithmetic in ARITHMETICS:
        for measure in "IK":
            key = arithmetic.name, measure
            scores = np.stack([each["|".join(key)] for each in draws])
            row = {
                "arithmetic": arithmetic.name, "measure": measure, "auroc": np.nan, "low": np.nan,
                "high": np.nan, "not_a_number": float(np.isnan(scores).mean()),
                "below_zero": float((scores < 0).mean()),
            }  # fmt: skip
            if key in places:
                auroc = estimate(places[key], positive)
                row |= {"auroc": auroc.value, "low": auroc.low, "high": auroc.high}
            yield row


def _gap_rows(places: Mapping[tuple[str, str], np.ndarray], positive: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield by how much K's AUROC exceeds I's, and what of it is there without rounding."""
    mathematics = places[EXACT.name, "K"] - places[EXACT.name, "I"]
    for arithmetic in ARITHMETICS:
        name = arithmetic.name
        if (name, "K") in places and (name, "I") in places:
            gap = places[name, "K"] - places[name, "I"]
            row: dict[str, Any] = {"arithmetic": name}
            for part, values in (("gap", gap), ("mathematics", mathematics), ("rounding", gap - mathematics)):
                found = estimate(values, positive)
                row |= {part: found.value, f"{part}_low": found.low, f"{part}_high": found.high}
            yield row


def _check_rows(draw: Mapping[str, np.ndarray], positive: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield how far scores of float32 logits are from those of float64 logits, of the first draw."""
    for measure in "IK":
        single, double = draw[f"{EXACT.name}|{measure}"], draw[f"{CHECK}|{measure}"]
        aurocs = [float(placements(each[None], positive)[0, positive].mean()) for each in (single, double)]
        yield {
            "measure": measure,
            "auroc_float32_logits": aurocs[0],
            "auroc_float64_logits": aurocs[1],
            "median_relative_difference": float(np.median(np.abs(single - double) / double)),
        }


def columns(rows: Rows) -> dict[str, np.ndarray]:
    """Return rows as columns."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
