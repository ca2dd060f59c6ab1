"""The section of the results page: sentences around the numbers of a run."""

from __future__ import annotations

from demur.reproduce.records import Records
from demur.reproduce.studies.cifar10.methods import Schedules

VERSION = 1


def compose_section(rows: Records, schedules: Schedules, command: str) -> str:
    """Return the section."""
    return format_text(rows)


def format_text(rows: Records) -> str:
    """Return the figures for a terminal."""
    return "\n".join(f"{r['method']} {r['figure']} {r['value']:.4f}" for r in rows)
