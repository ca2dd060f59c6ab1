"""Whether columns of numbers still look like those of the calibration inputs; no labels are needed.

Drift is not harm: inputs may change and be predicted as well as ever, or stay and be predicted worse.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import atomic
from demur.monitoring import records
from demur.monitoring.audits import TIES, toss_by_place
from demur.reading import read_json
from demur.tasks.betting import Bettors, locate_start
from demur.tasks.detection import detection
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import Estimate, check_scores, check_share

_FORMAT = "demur drift 1"
_SHAPES = [
    (0.5, 1),
    (0.75, 1),
    (2, 1),
    (4, 1),
    (1, 0.5),
    (1, 0.75),
    (1, 2),
    (1, 4),
    (0.5, 0.5),
    (2, 2),
    (4, 4),
]
"""Beta densities that bettors bet on: larger or smaller values, both ends, the middle."""
_BLOCK = 1024
"""Values ranked at a time: what that takes grows with the square of the block."""


@dataclass(frozen=True)
class ColumnDrift:
    """One column.

    Parameters
    ----------
    alarm : bool
        Whether its values stopped looking like those of the calibration inputs, and earlier ones.
    alarm_at : int or None
        How many inputs had been observed then.
    since : int or None
        After an alarm: the input from which on the bets won the most.
    capital, needed : float
        What the bets have made of 1, and what an alarm takes.
    auroc : Estimate or None
        Probability that a new value is larger than a calibration one; the interval is for one look.
    distance : float
        Largest difference of both distribution functions (Kolmogorov and Smirnov).
    """

    alarm: bool
    alarm_at: int | None
    since: int | None
    capital: float
    needed: float
    auroc: Estimate | None
    distance: float


@dataclass(frozen=True, repr=False)
class DriftStatus(Displayed):
    """Which columns drift, and since when.

    Parameters
    ----------
    observed : int
        Inputs observed.
    confidence : float
        While nothing drifts, any column ever raises an alarm with probability at most one minus this.
    columns : dict
        The `ColumnDrift` of each.
    """

    observed: int
    confidence: float
    columns: dict[str, ColumnDrift]

    @property
    def alarm(self) -> bool:
        """Whether any column drifts."""
        return any(column.alarm for column in self.columns.values())

    def _display(self) -> tuple[str, Rows, list[str]]:
        rows = [["column", "drift", "since", "larger than before", "distance", "evidence"]]
        for name, c in self.columns.items():
            drift = f"after {c.alarm_at:,}" if c.alarm else "not seen"
            since = "" if c.since is None else f"{c.since:,}"
            auroc = "" if c.auroc is None else str(c.auroc)
            capital = f"{c.capital:.3g} of {c.needed:g}"
            rows.append([name, drift, since, auroc, f"{c.distance:.3f}", capital])
        note = "Drift is not harm: whether errors are more frequent, only audited labels can tell (Monitor)."
        return f"Drift over {self.observed:,} inputs", rows, [note]


class _Column:
    """Values of one column, in order, and the bets on their ranks."""

    def __init__(self, calibration: np.ndarray) -> None:
        self.calibration = np.sort(calibration)
        self.seen = self.calibration
        self.parts: list[np.ndarray] = []
        self.bettors = Bettors(np.zeros(len(_SHAPES)))
        self.factors: list[np.ndarray] = []
        self.alarm_at: int | None = None

    def observe(self, values: np.ndarray, tosses: np.ndarray, needed: float) -> None:
        """Rank each value among all before it, and bet."""
        for begin in range(0, len(values), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            self._observe_block(values[block], tosses[block], needed)

    def _observe_block(self, values: np.ndarray, tosses: np.ndarray, needed: float) -> None:
        factors = _bet_factors(_rank_each(self.seen, values, tosses))
        for factor in factors:
            if self.bettors.bet(factor) >= needed and self.alarm_at is None:
                self.alarm_at = self.bettors.count
        ordered = np.sort(values)
        self.seen = np.insert(self.seen, np.searchsorted(self.seen, ordered), ordered)
        self.parts.append(values)
        self.factors.append(factors)

    @property
    def values(self) -> np.ndarray:
        """New values, in their order."""
        return np.concatenate([np.empty(0), *self.parts])

    def trace(self, points: int) -> np.ndarray:
        """Return inputs observed and capital, at so many times."""
        bettors = Bettors(np.zeros(len(_SHAPES)))
        path = np.array([bettors.bet(factor) for part in self.factors for factor in part])
        places = np.unique(np.linspace(1, len(path), min(points, len(path))).astype(int))
        return np.column_stack([places, path[places - 1]]) if len(path) else np.empty((0, 2))

    def describe(self, needed: float, confidence: float) -> ColumnDrift:
        """Return what was found."""
        new = np.sort(self.values)
        return ColumnDrift(
            alarm=self.alarm_at is not None,
            alarm_at=self.alarm_at,
            since=None if self.alarm_at is None else locate_start(np.vstack(self.factors)),
            capital=self.bettors.total,
            needed=needed,
            auroc=_compare(self.calibration, new, confidence),
            distance=_measure_distance(self.calibration, new),
        )


class Drift:
    """Watches numbers without labels: scores, features, sizes, anything that calibration inputs have too.

    Each new value is ranked among the calibration values and the new ones before it. While all are
    exchangeable (as independent draws from one source are), these ranks are uniform and independent, and bets
    on anything else win nothing: a conformal test martingale (Vovk, Gammerman and Shafer, 2022, "Algorithmic
    Learning in a Random World", chapter 8). So the probability that it ever raises an alarm is at
    most ``1 - confidence``, however often you look; the columns share it equally.

    Drift is not harm. It tells that inputs changed, not that predictions became worse; for that, audit
    (`Monitor`).

    Parameters
    ----------
    calibration : (inputs,) array, or a mapping of names to such arrays
        Values of the inputs that the policy was fitted on; several columns by name, in a mapping or a table.
    confidence : float
        While nothing drifts, the probability of any alarm is at most one minus this.
    seed : int
        Seed of the random order of ties.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> drift = demur.Drift(rng.normal(size=1000))
    >>> drift.observe(rng.normal(size=2000))
    >>> drift.status.alarm
    False
    >>> drift.observe(rng.normal(0.3, 1, size=2000))
    >>> drift.status.alarm, drift.status.columns["score"].since
    (True, 1904)
    """

    def __init__(self, calibration: Any, *, confidence: float = 0.95, seed: int = 0) -> None:
        check_share("confidence", confidence)
        self.confidence, self.seed = float(confidence), int(seed)
        self.observed = 0
        self._columns = {name: _Column(values) for name, values in _check_columns(calibration, None).items()}

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self._columns)

    @property
    def needed(self) -> float:
        """The capital that the alarm of a column takes."""
        return len(self._columns) / (1 - self.confidence)

    def observe(self, values: Any) -> None:
        """Take the values of new inputs, in the order in which they came; columns as in ``calibration``."""
        found = _check_columns(values, list(self._columns))
        number = len(next(iter(found.values())))
        for index, (name, column) in enumerate(self._columns.items()):
            tosses = toss_by_place(self.seed * 1009 + index, self.observed, number, purpose=TIES)
            column.observe(found[name], tosses, self.needed)
        self.observed += number

    @property
    def status(self) -> DriftStatus:
        """Which columns drift, and since when; and one comparison of all new values with the calibration."""
        columns = {
            name: column.describe(self.needed, self.confidence) for name, column in self._columns.items()
        }
        return DriftStatus(self.observed, self.confidence, columns)

    def trace(self, points: int = 300) -> dict[str, np.ndarray]:
        """Return the course of the capital of each column, (points, 2): inputs observed, capital then."""
        return {name: column.trace(points) for name, column in self._columns.items()}

    def __repr__(self) -> str:
        return repr(self.status)

    def _repr_html_(self) -> str:
        return self.status._repr_html_()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all as JSON, whole or not at all."""
        content = {
            "confidence": self.confidence,
            "seed": self.seed,
            "columns": {
                name: [[records.write_number(each) for each in part] for part in (c.calibration, c.values)]
                for name, c in self._columns.items()
            },
        }
        whole = {
            "format": _FORMAT,
            "checksum": records.sum_text(records.dump(content), _FORMAT),
            "content": content,
        }
        atomic.write_text(path, records.dump(whole) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Drift:
        """Read what `save` wrote; a damaged or edited file is a ValueError."""
        try:
            whole = read_json(path)
            if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
                raise ValueError("something else")
            content = whole["content"]
            if whole["checksum"] != records.sum_text(records.dump(content), _FORMAT):
                raise ValueError("one that was changed since")
            columns = {
                name: [np.array([records.read_number(each) for each in part]) for part in parts]
                for name, parts in content["columns"].items()
            }
            found = cls(
                {name: parts[0] for name, parts in columns.items()},
                confidence=content["confidence"],
                seed=content["seed"],
            )
            new = {name: parts[1] for name, parts in columns.items()}
            if len(next(iter(new.values()))):
                found.observe(new)
            return found
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            why = str(error) if isinstance(error, ValueError) else "a damaged file"
            raise ValueError(
                f"{os.fspath(path)} must be written by Drift.save. Got {why}. Take the last good copy."
            ) from error


def _check_columns(values: Any, names: list[str] | None) -> dict[str, np.ndarray]:
    """Return columns by name; an array alone is called score."""
    if hasattr(values, "columns"):  # a table of pandas or polars
        values = {name: values[name] for name in values.columns}
    columns = dict(values) if isinstance(values, Mapping) else {"score": values}
    if not columns or (names is not None and sorted(map(str, columns)) != sorted(names)):
        raise ValueError(
            f"values must have the columns {', '.join(names or ['of the calibration'])}. "
            f"Got {', '.join(map(str, columns)) or 'none'}."
        )
    found = {str(name): check_scores(str(name), column) for name, column in columns.items()}
    lengths = {name: len(column) for name, column in found.items()}
    if len(set(lengths.values())) > 1 and names is not None:
        raise ValueError(f"values must be columns of one length. Got {lengths}.")
    return found


def _rank_each(seen: np.ndarray, values: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """Return the share of earlier values, and of itself, that each is below: in random order among ties.

    Parameters
    ----------
    seen : (earlier,) array
        Earlier values, sorted.
    values, tosses : (inputs,) arrays
        New values, and a uniform number for each.
    """
    above = len(seen) - np.searchsorted(seen, values, side="right")
    level = np.searchsorted(seen, values, side="right") - np.searchsorted(seen, values, side="left")
    own_above, own_level = _rank_among_earlier(values)
    tied = level + own_level + 1
    number = len(seen) + 1 + np.arange(len(values))
    return (above + own_above + np.clip(tosses, 2.0**-53, 1 - 2.0**-53) * tied) / number


def _rank_among_earlier(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many of the values before each are larger, and how many are the same."""
    import bisect

    ordered: list[float] = []
    above, level = np.zeros(len(values)), np.zeros(len(values))
    for index, value in enumerate(values.tolist()):
        right = bisect.bisect_right(ordered, value)
        above[index] = len(ordered) - right
        level[index] = right - bisect.bisect_left(ordered, value, 0, right)
        ordered.insert(right, value)
    return above, level


def _bet_factors(ranks: np.ndarray) -> np.ndarray:
    """Return the density of each rank under each bettor's distribution, (inputs, bettors)."""
    found = np.empty((len(ranks), len(_SHAPES)))
    for index, (a, b) in enumerate(_SHAPES):
        norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        found[:, index] = np.exp(norm + (a - 1) * np.log(ranks) + (b - 1) * np.log1p(-ranks))
    return found


def _compare(before: np.ndarray, new: np.ndarray, confidence: float) -> Estimate | None:
    """Return the probability that a new value is larger; None of fewer than two."""
    if min(len(before), len(new)) < 2:
        return None
    return detection(before, new, confidence=confidence, interval="asymptotic").auroc


def _measure_distance(before: np.ndarray, new: np.ndarray) -> float:
    """Return the largest difference of two distribution functions, of sorted values."""
    if not len(new):
        return 0.0
    places = np.concatenate([before, new])
    shares = [np.searchsorted(each, places, side="right") / len(each) for each in (before, new)]
    return float(np.max(np.abs(shares[0] - shares[1])))
