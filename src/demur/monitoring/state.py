"""What a monitor knows, and how records change it: the same records give the same state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from demur.deferral import Deferral
from demur.monitoring import records
from demur.monitoring.audits import AuditPlan
from demur.monitoring.running_risk import enclose_risk
from demur.monitoring.status import GroupStatus, Status
from demur.monitoring.stream import MISSING, AuditedInput, ServerStream
from demur.tasks.estimate import Estimate

_HISTORY_STEP = 1.01
"""A point of the course is kept once this many times as many inputs were observed as at the last."""


class MonitorState:
    """Streams, alarms and the course so far, under fixed settings.

    Parameters
    ----------
    policy, confidence, plan, seed
        As `Monitor` was given them.

    Attributes
    ----------
    limits
        The largest probability of an error that is promised, by group.
    streams
        What each server saw; the first is the own one.
    alarms, alarm_at
        How many inputs had been observed when the alarm of a group, and the first of all, came.
    course
        Points of `history`.
    """

    def __init__(self, policy: Deferral, confidence: float, plan: AuditPlan, seed: int) -> None:
        self.policy, self.confidence, self.plan = policy, confidence, plan
        self.limits = _list_limits(policy)
        self.streams = [ServerStream(seed, self.limits, plan.least)]
        self.alarms: dict[str, int] = {}
        self.alarm_at: int | None = None
        self.course: list[list[float]] = []

    @property
    def seed(self) -> int:
        """Seed of the audits."""
        return self.streams[0].seed

    @property
    def history(self) -> np.ndarray:
        """The course so far, (points, 6): inputs observed, audited, capital, risk, its low and its high."""
        return np.array(self.course, dtype=float).reshape(-1, 6)

    @property
    def status(self) -> Status:
        """What was found so far."""
        groups = {name: self._group_status(name) for name in self.limits}
        return Status(
            alarm=self.alarm_at is not None,
            risk=self._risk(list(self.limits), self.confidence),
            observed=sum(stream.observed for stream in self.streams),
            kept=sum(group.kept for group in groups.values()),
            audited=sum(group.audited for group in groups.values()),
            missing=sum(group.missing for group in groups.values()),
            capital=self._capital(),
            alarm_at=self.alarm_at,
            since=None if self.alarm_at is None else self._guess_change(),
            confidence=self.confidence,
            groups=groups,
        )

    def apply(self, record: dict[str, Any]) -> None:
        """Change the state as a record says: the same records give the same state."""
        own = self.streams[0]
        if record["kind"] == "draw":
            own.drawn += record["number"]
        elif record["kind"] == "merge":
            least = self.plan.least
            self._take_streams([records.parse_stream(each, self.limits, least) for each in record["streams"]])
        elif record["kind"] == "label":
            late: dict[str, list[tuple[int, int]]] = {}
            for name, outcome in record["late"]:
                where = own.ids[name]
                assert where is not None
                group, index = where
                late.setdefault(group, []).append((index, outcome))
            for group, labels in late.items():
                capital = own.bets[group].resolve(labels)
                # An earlier capital must not be averaged with what others have now.
                if len(self.streams) == 1:
                    self._look(group, capital, own.observed)
        else:
            self._apply_observed(record)
        self._look_at_all()
        self._remember_course()

    def _apply_observed(self, record: dict[str, Any]) -> None:
        own, ids = self.streams[0], record.get("ids")
        start = own.observed
        for name in ids or ():
            own.ids[name] = None
        for index, group, score, probability, outcome in record["rows"]:
            bets = own.bets[group]
            if ids is not None:
                own.ids[ids[index]] = (group, len(bets.inputs))
            capital = bets.add(
                AuditedInput(start + index, group, records.read_number(score), probability, outcome)
            )
            self._look(group, capital, start + index + 1)
        own.observed += record["number"]
        own.drawn = max(own.drawn, own.observed)
        for name, number in record["kept"].items():
            own.kept[name] += number
        own.expected, own.variance = record["expected"], record["variance"]
        own.trail.take(record["trail"])

    def _take_streams(self, streams: list[ServerStream]) -> None:
        """Add streams of others, or replace older states of theirs; from now on the average counts."""
        for stream in streams:
            for index, mine in enumerate(self.streams):
                if mine.trail.is_same(stream.trail):
                    if (stream.observed, stream.known) > (mine.observed, mine.known):
                        self.streams[index] = stream
                    break
            else:
                self.streams.append(stream)
                self.alarms, self.alarm_at = {}, None

    def _counted(self) -> list[ServerStream]:
        """Return the streams over which capital is averaged: one that only collects others is none."""
        others = self.streams[1:]
        return others if others and not self.streams[0].observed else self.streams

    def _look(self, group: str, capital: float, place: int) -> None:
        """Raise the alarm of a group where its capital, averaged over streams, is large enough."""
        others = [stream.bets[group].current.total for stream in self.streams[1:]]
        if (capital + sum(others)) / (1 + len(others)) >= self._needed():
            self._raise(group, place)

    def _raise(self, group: str, place: int) -> None:
        """Raise the alarm of a group, unless it was raised before."""
        self.alarms.setdefault(group, place)
        if self.alarm_at is None:
            self.alarm_at = place

    def _look_at_all(self) -> None:
        observed = sum(stream.observed for stream in self.streams)
        for name in self.limits:
            if self._group_capital(name) >= self._needed():
                self._raise(name, observed)
        if self.alarm_at is None and self._capital() >= 1 / (1 - self.confidence):
            self.alarm_at = observed

    def _needed(self) -> float:
        """Return the capital that the alarm of a group takes."""
        return len(self.limits) / (1 - self.confidence)

    def _group_capital(self, name: str) -> float:
        return float(np.mean([stream.bets[name].current.total for stream in self._counted()]))

    def _capital(self) -> float:
        """Return the capital averaged over groups and streams."""
        return float(np.mean([self._group_capital(name) for name in self.limits]))

    def _group_status(self, name: str) -> GroupStatus:
        bets = [stream.bets[name] for stream in self.streams]
        return GroupStatus(
            accuracy=1 - self.limits[name],
            alarm=name in self.alarms,
            capital=self._group_capital(name),
            needed=self._needed(),
            risk=self._risk([name], 1 - (1 - self.confidence) / len(self.limits)),
            kept=sum(stream.kept[name] for stream in self.streams),
            audited=sum(len(each.inputs) for each in bets),
            missing=sum(each.counts_of(MISSING) for each in bets),
        )

    def _risk(self, names: Sequence[str], confidence: float) -> Estimate:
        """Return the mean risk of the kept inputs of some groups, of all streams."""
        counts: dict[float, tuple[int, int, int]] = {}
        for stream in self.streams:
            for name in names:
                for probability, (right, wrong, missing) in stream.bets[name].counts.items():
                    a, b, c = counts.get(probability, (0, 0, 0))
                    counts[probability] = (a + right, b + wrong, c + missing)
        kept = sum(stream.kept[name] for stream in self.streams for name in names)
        return enclose_risk(counts, kept, self.plan.least, confidence)

    def _guess_change(self) -> int | None:
        """Return where the bets started that had won the most at the first alarm.

        Places of merged streams are not those of the alarm, so there all of the largest capital count.
        """
        name = min(
            self.alarms, key=self.alarms.__getitem__, default=max(self.limits, key=self._group_capital)
        )
        stream = max(self.streams, key=lambda each: each.bets[name].current.total)
        return stream.bets[name].locate_start(np.inf if len(self._counted()) > 1 else self.alarm_at or np.inf)

    def _remember_course(self) -> None:
        observed = sum(stream.observed for stream in self.streams)
        if observed and (not self.course or observed >= _HISTORY_STEP * self.course[-1][0]):
            risk = self._risk(list(self.limits), self.confidence)
            audited = sum(stream.audited for stream in self.streams)
            self.course.append([observed, audited, self._capital(), risk.value, risk.low, risk.high])


def _list_limits(policy: Deferral) -> dict[str, float]:
    """Return the largest probability of an error that is promised for each group that keeps anything."""
    if not isinstance(policy, Deferral):
        raise TypeError(
            f"policy must be a Deferral; of several, take one by its name. Got {type(policy).__name__}."
        )
    if policy.goal not in ("accuracy", "coverage"):
        why = "promises nothing" if policy.goal == "cost" else "promises an expectation over policies"
        raise ValueError(
            "policy must promise the accuracy of what it keeps: fit it with accuracy= or coverage=. Got one "
            f"for {policy.goal}, which {why}."
        )
    limits = {
        name: 1 - threshold.promise
        for name, threshold in policy.thresholds.items()
        if threshold.value is not None and threshold.promise is not None
    }
    if not limits:
        raise ValueError("policy must keep something. Got one that defers all: there is nothing to watch.")
    return limits
