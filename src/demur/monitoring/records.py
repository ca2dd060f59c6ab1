"""The state of a monitor as JSON: written whole, checked when it is read."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from demur import atomic
from demur.deferral import Deferral
from demur.monitoring.stream import AuditedInput, ServerStream
from demur.policy_json import describe_policy, parse_policy
from demur.reading import read_json

if TYPE_CHECKING:
    from demur.monitoring.monitor import Monitor

_FORMAT = "demur monitor 1"


def dump(content: Any) -> str:
    """Return JSON on one line, the same for the same content."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def sum_text(text: str, before: str = "") -> str:
    """Return a checksum of text, and of what came before it."""
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:32]


def write_number(value: float) -> float | str | None:
    """Return a number as JSON can hold it: infinities as text, not-a-number as null."""
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else float(value)


def read_number(value: float | str | None) -> float:
    """Return the number that `write_number` wrote."""
    return math.nan if value is None else float(value)


def describe_stream(stream: ServerStream) -> dict[str, Any]:
    """Return a stream as JSON can hold it."""
    return {
        "seed": stream.seed,
        "observed": stream.observed,
        "drawn": stream.drawn,
        "kept": dict(stream.kept),
        "expected": stream.expected,
        "variance": stream.variance,
        "rows": {
            group: [
                [each.place, write_number(each.score), each.probability, each.outcome] for each in bets.inputs
            ]
            for group, bets in stream.bets.items()
        },
        "ids": {name: None if found is None else list(found) for name, found in stream.ids.items()},
        "trail": stream.trail.describe(),
    }


def parse_stream(content: Mapping[str, Any], limits: Mapping[str, float], least: float) -> ServerStream:
    """Return the stream that JSON describes, with its bets made again."""
    stream = ServerStream(content["seed"], limits, least)
    stream.observed, stream.drawn = content["observed"], content["drawn"]
    stream.kept = {name: content["kept"][name] for name in limits}
    stream.expected, stream.variance = content["expected"], content["variance"]
    for group, bets in stream.bets.items():
        for place, score, probability, outcome in content["rows"][group]:
            bets.add(AuditedInput(place, group, read_number(score), probability, outcome))
    stream.ids = {name: None if found is None else tuple(found) for name, found in content["ids"].items()}
    stream.trail.take(content["trail"])
    return stream


def describe_monitor(monitor: Monitor, log: int) -> dict[str, Any]:
    """Return a monitor as JSON can hold it; `log` is the number of the log that goes on from here."""
    plan = monitor.plan
    return {
        "policy": describe_policy(monitor.policy),
        "confidence": monitor.confidence,
        "audit": [[write_number(score), probability] for score, probability in plan.steps],
        "least": plan.least,
        "streams": [describe_stream(each) for each in monitor.streams],
        "alarms": dict(monitor.alarms),
        "alarm_at": monitor.alarm_at,
        "history": [[write_number(value) for value in point] for point in monitor.history.tolist()],
        "log": log,
    }


def save(monitor: Monitor, path: str | os.PathLike[str], log: int = 0) -> str:
    """Write a monitor, and return its checksum."""
    content = describe_monitor(monitor, log)
    checksum = sum_text(dump(content), _FORMAT)
    whole = {"format": _FORMAT, "checksum": checksum, "content": content}
    atomic.write_text(path, dump(whole) + "\n")
    return checksum


def load(kind: type[Monitor], path: str | os.PathLike[str]) -> tuple[Monitor, int, str]:
    """Return a monitor, the number of its log, and its checksum; any other file is a ValueError."""
    try:
        whole = read_json(path)
        if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
            raise ValueError("something else")
        content = whole["content"]
        checksum = sum_text(dump(content), _FORMAT)
        if whole["checksum"] != checksum:
            raise ValueError("one that was changed since")
        return _parse_monitor(kind, content), content["log"], checksum
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        why = str(error) if isinstance(error, ValueError) else "a damaged file"
        raise ValueError(
            f"{os.fspath(path)} must be written by Monitor.save. Got {why}. Take the last good copy."
        ) from error


def _parse_monitor(kind: type[Monitor], content: Mapping[str, Any]) -> Monitor:
    steps = [(read_number(score), probability) for score, probability in content["audit"]]
    monitor = kind(
        Deferral(**parse_policy(content["policy"])),
        confidence=content["confidence"],
        audit=steps,
        least=content["least"],
        seed=content["streams"][0]["seed"],
    )
    monitor.streams = [parse_stream(each, monitor.limits, content["least"]) for each in content["streams"]]
    monitor.alarms, monitor.alarm_at = dict(content["alarms"]), content["alarm_at"]
    monitor.course = [[read_number(value) for value in point] for point in content["history"]]
    return monitor


def check_same(monitor: Monitor, other: Monitor) -> None:
    """Raise a `ValueError` unless two monitors watch the same promise in the same way."""
    a, b = describe_monitor(monitor, 0), describe_monitor(other, 0)
    for name in ("policy", "confidence", "least"):
        if a[name] != b[name]:
            raise ValueError(
                "merge: expected a monitor of the same policy, confidence and least probability. Got another "
                f"{name}."
            )
