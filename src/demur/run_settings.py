"""Settings of a long run, compared with those of the run that it would resume."""

from __future__ import annotations

from typing import Any


def list_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the names of the settings that changed."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return a text that says which settings changed, and how; empty where none did."""
    names = list_changes(before, now)
    # Long values are fingerprints, which mean nothing to a reader.
    short = [name for name in names if max(len(repr(s.get(name))) for s in (before, now)) <= 32]
    said = [f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in short]
    return ", ".join([*(f"{name} changed" for name in names if name not in short), *said])
