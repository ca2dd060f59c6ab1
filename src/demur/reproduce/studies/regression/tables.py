"""Means over splits, with intervals, and which of two scores ranks errors better."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from demur.reproduce.data.uci import UciDataset
from demur.reproduce.records import Records
from demur.reproduce.studies.regression.ranking import SCORES
from demur.tasks import Estimate, holm

Splits = dict[tuple[str, str], dict[str, np.ndarray]]
"""Columns of figures, a row per split, by data set and method."""
PAIRS = (("k", "i"), ("k", "epistemic-variance"), ("k-total", "i-total"), ("k-total", "total-variance"))
"""The scores that are compared, the first minus the second."""
_RANKING_FIGURES = ("spearman", "ause")


def build_tables(splits: Splits, sets: Mapping[str, UciDataset]) -> dict[str, Records]:
    """Return the tables: fits, how each score ranks errors, and differences between scores."""
    fits: Records = []
    scores: Records = []
    for (name, method), columns in splits.items():
        where, rows = {"data": name, "method": method}, sets[name]
        for figure in ("rmse", "nll"):
            known = rows.published.get(figure)
            fits.append(
                where | {"figure": figure} | _to_record(average_splits(columns[figure], rows)[0])
                | {"published": math.nan if known is None else float(known.mean())}
            )  # fmt: skip
        for score in SCORES:
            for figure in _RANKING_FIGURES:
                found = average_splits(columns[f"{score}|{figure}"], rows)[0]
                scores.append(where | {"score": score, "figure": figure} | _to_record(found))
    return {"fits": fits, "scores": scores, "differences": _compare_scores(splits, sets)}


def _compare_scores(splits: Splits, sets: Mapping[str, UciDataset]) -> Records:
    """Return paired differences over the splits, corrected for all data sets of a question."""
    found: Records = []
    for method in dict.fromkeys(method for _, method in splits):
        for first, second in PAIRS:
            for figure in _RANKING_FIGURES:
                family = []
                for (name, own), columns in splits.items():
                    if own == method:
                        values = columns[f"{first}|{figure}"] - columns[f"{second}|{figure}"]
                        estimate, p_value = average_splits(values, sets[name])
                        row = {"data": name, "method": method, "first": first, "second": second}
                        family.append(row | {"figure": figure} | _to_record(estimate) | {"p_value": p_value})
                for row, adjusted in zip(family, holm([row["p_value"] for row in family]), strict=True):
                    found.append(row | {"adjusted": float(adjusted)})
    return found


def average_splits(values: np.ndarray, rows: UciDataset, confidence: float = 0.95) -> tuple[Estimate, float]:
    """Return the mean over splits with its interval, and the p-value of a mean of 0.

    Splits of one data set share most of their training rows, so that their figures are not independent. The
    variance is that of Nadeau and Bengio (2003), 1 / splits + test rows / training rows times the variance
    over splits, which is an approximation.
    """
    from scipy.special import stdtr, stdtrit

    number, test = len(values), rows.test.shape[1]
    mean = float(values.mean())
    error = math.sqrt((1 / number + test / (len(rows.y) - test)) * float(values.var(ddof=1)))
    half = float(stdtrit(number - 1, (1 + confidence) / 2)) * error
    if error == 0:
        p_value = 1.0 if mean == 0 else 0.0
    else:
        p_value = 2 * float(stdtr(number - 1, -abs(mean) / error))
    return Estimate(mean, mean - half, mean + half, confidence, "splits"), p_value


def _to_record(estimate: Estimate) -> dict[str, float]:
    """Return mean, low and high."""
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high}


def join_columns(parts: Splits) -> dict[str, np.ndarray]:
    """Return the columns of all data sets and methods, one after the other."""
    lengths = [len(next(iter(part.values()))) for part in parts.values()]
    names = [np.repeat([key[k] for key in parts], lengths) for k in range(2)]
    rest = {
        name: np.concatenate([part[name] for part in parts.values()]) for name in next(iter(parts.values()))
    }
    return {"data": names[0], "method": names[1], **rest}
