"""Watches the promise of a policy in service, from a few audited inputs, however often somebody looks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demur.deferral import Deferral
from demur.monitoring import advice, journal, records
from demur.monitoring.audits import AuditPlan, check_number_audited, toss_by_id, toss_by_place
from demur.monitoring.state import MonitorState
from demur.monitoring.stream import MISSING, find_new, join_outcomes, read_ids, read_outcomes
from demur.tasks.estimate import check_scores, check_share


class Monitor(MonitorState):
    """Watches whether a policy's promise still holds: of 20 monitors, at most one ever gives a false alarm.

    A known share of the kept inputs is audited: somebody finds out whether the prediction was right. On
    these, the monitor bets against the promise, and its capital grows only if the promise is broken. The
    promise, precisely: whatever happened before, the next kept input is wrong with probability at most one
    minus the accuracy promised. While it holds, it ever raises an alarm with probability at
    most ``1 - confidence``, however often you look, in whatever order the inputs come, and however they drift
    without harm. See the page "Watch a promise".

    Parameters
    ----------
    policy : Deferral
        A policy that promises an accuracy or a coverage.
    confidence : float
        The probability of an alarm while the promise holds is at most one minus this. With groups, each has
        an equal share of it.
    audit : float, or pairs of a score and a probability
        The probability that a kept input is audited; by pairs: inputs with scores up to the first score have
        the first probability, and so on, as ``[(0.2, 0.05), (inf, 0.5)]``.
    seed : int
        Seed of the audits. Give each server its own.
    least : float, optional
        The smallest probability of an audit that is ever used, where `to_audit` and `observe` are given
        probabilities. Default: the smallest of `audit`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.uniform(size=4000)
    >>> policy = demur.Deferral.fit(scores, rng.uniform(size=4000) > scores**2 / 3, accuracy=0.95)
    >>> monitor = demur.Monitor(policy, audit=0.1)
    >>> new = rng.uniform(size=20_000)
    >>> correct = rng.uniform(size=20_000) > new**2 / 3
    >>> monitor.observe(new, correct, audited=monitor.to_audit(new))
    >>> monitor.status.alarm, monitor.status.audited
    (False, 1280)
    >>> monitor.observe(new, correct & (rng.uniform(size=20_000) > 0.1), audited=monitor.to_audit(new))
    >>> monitor.status.alarm
    True
    """

    def __init__(
        self,
        policy: Deferral,
        *,
        confidence: float = 0.95,
        audit: float | Sequence[tuple[float, float]] = 0.1,
        seed: int = 0,
        least: float | None = None,
    ) -> None:
        check_share("confidence", confidence)
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed must be a whole number from 0 on. Got {seed!r}.")
        plan = AuditPlan.parse(audit, least)
        super().__init__(policy, float(confidence), plan, int(seed))
        self._journal: journal.Journal | None = None

    def to_audit(
        self, scores: Any, *, ids: Any = None, groups: Any = None, probability: Any = None
    ) -> np.ndarray:
        """Return True for the inputs to audit: of those kept, each with its probability.

        With `ids`, the answer depends on seed, id and probability alone, and asking again changes nothing.
        Without, inputs are counted in the order asked, so ask once for each.

        Parameters
        ----------
        scores : (inputs,) array
            Scores, as the policy takes them.
        ids : (inputs,) array, optional
            A name for each input that no other has.
        groups : (inputs,) array, optional
            Where the policy has groups.
        probability : float or (inputs,) array, optional
            Probability of each instead of that of ``audit=``; at least ``least=``. It may depend on anything
            known before, but not on whether this prediction is right.
        """
        values = check_scores("scores", scores)
        kept = ~self.policy.defer(values, groups)
        wanted = self.plan.probabilities(values, probability)
        names = read_ids(ids, len(values))
        own = self.streams[0]
        if names is None:
            tosses = toss_by_place(own.seed, own.drawn, len(values))
            self._do({"kind": "draw", "number": len(values)})
        else:
            tosses = toss_by_id(own.seed, names)
        return kept & (tosses < wanted)

    def observe(
        self,
        scores: Any,
        correct: Any = None,
        audited: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        probability: Any = None,
    ) -> None:
        """Take inputs in the order in which they came, deferred ones too.

        Parameters
        ----------
        scores : (inputs,) array
            Scores, as the policy takes them.
        correct : (inputs,) array of bool, optional
            Whether the prediction is right; nan or None where nobody knows yet. Only audited ones are read.
        audited : (inputs,) array of bool, optional
            What `to_audit` returned; what it returned with these ids (or places) if not given. An audit whose
            label is late, or never comes, is still an audit: leave it in, with nan for its label.
        ids : (inputs,) array, optional
            A name for each input that no other has. An input that comes again is not counted again; if its
            label was missing and comes now, it is taken.
        groups : (inputs,) array, optional
            Where the policy has groups.
        probability : float or (inputs,) array, optional
            What `to_audit` was given, or with what probability you drew each audit yourself.
        """
        values = check_scores("scores", scores)
        number, own = len(values), self.streams[0]
        kept = ~self.policy.defer(values, groups)
        wanted = self.plan.probabilities(values, probability)
        names = read_ids(ids, number)
        if audited is None:
            if names is None:
                tosses = toss_by_place(own.seed, own.observed, number)
            else:
                tosses = toss_by_id(own.seed, names)
            chosen = kept & (tosses < wanted)
        else:
            chosen = kept & _check_audited(audited, number)
        outcomes = read_outcomes(correct, number, chosen)
        if names is not None:
            outcomes = join_outcomes(names, np.where(chosen, outcomes, MISSING))
        new = find_new(names, own.ids, number)
        if names is not None and not new.all():
            self._label_again(names, outcomes, chosen & ~new)
        if not new.any():
            return
        values, kept, wanted, chosen, outcomes = (
            each[new] for each in (values, kept, wanted, chosen, outcomes)
        )
        where = _name_all(groups, number)[new]
        expected = own.expected + float(wanted[kept].sum())
        variance = own.variance + float((wanted * (1 - wanted))[kept].sum())
        count = own.audited + int(chosen.sum())
        check_number_audited(expected, variance, count, sum(own.kept.values()) + int(kept.sum()))
        rows = [
            [
                index,
                str(where[index]),
                records.write_number(score),
                float(wanted[index]),
                int(outcomes[index]),
            ]
            for index, score in ((int(each), float(values[each])) for each in np.flatnonzero(chosen))
        ]
        record: dict[str, Any] = {
            "kind": "observe",
            "number": len(values),
            "kept": {name: int((where[kept] == name).sum()) for name in self.limits},
            "expected": expected,
            "variance": variance,
            "rows": rows,
        }
        fresh = [] if names is None else [name for name, first in zip(names, new, strict=True) if first]
        record["trail"] = own.trail.extend(values, kept + 2.0 * chosen + 4.0 * chosen * outcomes, fresh)
        if names is not None:
            record["ids"] = fresh
        self._do(record)

    def label(self, ids: Any, correct: Any) -> None:
        """Take labels that come later, of audited inputs that were observed with these ids.

        Parameters
        ----------
        ids : (inputs,) array
            Ids that `observe` was given.
        correct : (inputs,) array of bool
            Whether the predictions are right.
        """
        names = read_ids(ids, np.size(ids))
        if names is None:
            raise ValueError("ids must be those of audited inputs. Got None.")
        outcomes = read_outcomes(correct, len(names), np.ones(len(names), bool))
        outcomes = join_outcomes(names, outcomes)
        own = self.streams[0]
        for name in names:
            if own.ids.get(name) is None:
                why = "was observed, but not audited" if name in own.ids else "was never observed"
                raise ValueError(f"ids must be those of audited inputs. Got {name!r}, which {why}.")
        self._label_again(names, outcomes, np.ones(len(names), bool))

    def _label_again(self, names: Sequence[str], outcomes: np.ndarray, which: np.ndarray) -> None:
        """Take the labels of inputs that were observed before, where they had none."""
        own, late = self.streams[0], dict[str, int]()
        for index in np.flatnonzero(which & (outcomes != MISSING)).tolist():
            found = own.ids.get(names[index])
            if found is None:  # Not audited then: a label that nobody drew proves nothing.
                continue
            before = own.bets[found[0]].inputs[found[1]].outcome
            if before not in (MISSING, outcomes[index]):
                raise ValueError(
                    f"correct must not change: the input {names[index]!r} was "
                    f"{'wrong' if before else 'right'} before. Got the opposite."
                )
            if before == MISSING:
                late[names[index]] = int(outcomes[index])
        if late:
            self._do({"kind": "label", "late": [list(each) for each in late.items()]})

    def audits(self) -> dict[str, np.ndarray]:
        """Return audited inputs as columns: stream, place, group, score, probability, correct (nan: unknown).

        For ``policy.refit(scores, correct, weights=1 / probability, weight_limit=1 / monitor.plan.least)``.
        """
        rows = [
            (number, each.place, each.group, each.score, each.probability, each.outcome)
            for number, stream in enumerate(self.streams)
            for bets in stream.bets.values()
            for each in bets.inputs
        ]
        columns = [np.array(column) for column in zip(*sorted(rows), strict=True)] or [np.empty(0)] * 6
        names = ("stream", "place", "group", "score", "probability", "correct")
        found: dict[str, np.ndarray] = dict(zip(names, columns, strict=True))
        found["correct"] = np.where(found["correct"] == MISSING, np.nan, 1.0 - found["correct"])
        return found

    def has_seen(self, name: str) -> bool:
        """Return whether an input with this id was observed here."""
        return name in self.streams[0].ids

    def is_audited(self, name: str) -> bool:
        """Return whether an input with this id was observed here and audited."""
        return self.streams[0].ids.get(name) is not None

    def list_missing(self) -> list[str]:
        """Return the ids of audited inputs that have no label yet."""
        own = self.streams[0]
        found = ((name, where) for name, where in own.ids.items() if where is not None)
        return [name for name, (group, k) in found if own.bets[group].inputs[k].outcome == MISSING]

    def recommend(self, *, since: int | None = None) -> advice.Recommendation:
        """Return what to do: keep the policy, a stricter threshold, or withdraw it (defer all).

        Without an alarm: keep. After one: the loosest of some thresholds, fixed by scores before, for which
        the audited inputs since the alarm prove the accuracy promised. That is a promise of its own, for
        inputs like those since then, with the monitor's confidence, and however often it is asked. Until they
        prove any: withdraw, and keep auditing what the policy would keep.

        Parameters
        ----------
        since : int, optional
            Use the audits from this input on instead of those since the alarm, also if there is no alarm. It
            must not be chosen by looking at labels: take the day of a deployment, or ``since`` of `Drift`.
            Each start is a test of its own, with the whole ``1 - confidence``.
        """
        if since is not None and (not isinstance(since, int | np.integer) or since < 0):
            raise ValueError(f"since must be the number of an input, from 0 on. Got {since!r}.")
        if self.alarm_at is None and since is None:
            return advice.keep(self.policy)
        (stream, *others) = self._counted()
        if others:
            raise ValueError(
                "recommend needs the monitor of one server. Got several, merged: ask each of them by itself."
            )
        if since is not None:
            starts = dict.fromkeys(self.limits, since)
        else:  # Each group from its own alarm, so that an alarm of another starts no second test of it.
            starts = self.alarms or dict.fromkeys(self.limits, self.alarm_at or 0)
        inputs = {name: stream.bets[name].inputs for name in starts}
        confidence = 1 - (1 - self.confidence) / len(self.limits)
        return advice.recommend(self.policy, inputs, self.plan.least, confidence, starts)

    def merge(self, other: Monitor) -> Monitor:
        """Take over what another server's monitor of the same policy saw, and return self.

        The capital of both is averaged, which keeps the promise of the merged monitor, for servers chosen
        beforehand: it alarms where the average does, from now on, whatever the parts said by themselves.
        Merging the same state again, or an older one, changes nothing; a newer one takes the older's place.
        """
        if not isinstance(other, Monitor):
            raise TypeError(f"merge: expected a Monitor. Got {type(other).__name__}.")
        records.check_same(self, other)
        self._refuse_common_inputs(other)
        self._do({"kind": "merge", "streams": [records.describe_stream(each) for each in other.streams]})
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all as JSON, whole or not at all."""
        records.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Monitor:
        """Read what `save` wrote; a damaged or edited file is a ValueError."""
        return records.load(cls, path)[0]

    @classmethod
    def open(
        cls,
        folder: str | Path,
        policy: Deferral | None = None,
        *,
        confidence: float = 0.95,
        audit: float | Sequence[tuple[float, float]] = 0.1,
        seed: int = 0,
        least: float | None = None,
    ) -> Monitor:
        """Return the monitor that lives in a folder, or start one there if `policy` is given.

        All that it observes is on disk when the call returns: a log that only grows, and now and then a
        snapshot. A process that is killed at any point loses nothing but the call it was in, and to repeat
        that call, with ids, counts nothing twice. One process at a time may have it open.
        """
        new = None
        if policy is not None:
            new = cls(policy, confidence=confidence, audit=audit, seed=seed, least=least)
        monitor, monitor._journal = journal.open_folder(cls, folder, new)
        return monitor

    def close(self) -> None:
        """Let another process open the folder."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self.status)

    def _repr_html_(self) -> str:
        return self.status._repr_html_()

    def _do(self, record: dict[str, Any]) -> None:
        """Change the state as a record says, once it is on disk where there is a folder."""
        if self._journal is not None:
            self._journal.append(record)
        self.apply(record)
        if self._journal is not None and self._journal.is_long():
            self._journal.snapshot(self)

    def _refuse_common_inputs(self, other: Monitor) -> None:
        """Raise a `ValueError` where different streams have an input in common."""
        for stream in other.streams:
            for mine in self.streams:
                if mine.trail.is_same(stream.trail):
                    continue
                for name in stream.ids:
                    if name in mine.ids:
                        raise ValueError(
                            f"merge: expected other inputs on each server. Got {name!r} on both, which "
                            "would count twice."
                        )


def _check_audited(audited: Any, number: int) -> np.ndarray:
    values = np.asarray(audited)
    if values.shape != (number,) or values.dtype.kind not in "b":
        raise ValueError(
            f"audited must be booleans of shape ({number},), as to_audit returns. Got {values.dtype} of "
            f"shape {values.shape}."
        )
    return values


def _name_all(groups: Any, number: int) -> np.ndarray:
    return np.full(number, "") if groups is None else np.asarray(groups).astype(str)
