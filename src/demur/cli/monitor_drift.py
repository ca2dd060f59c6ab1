"""Drift in the folder of a monitor: in step with it, wherever a process is killed.

A file is named after how many inputs the monitor has observed, and written before the monitor records the
last of them. So the one to use is the one with the monitor's own number, and every input counts once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from demur.monitoring import Drift


def load_drift(folder: Path, observed: int) -> Drift | None:
    """Return drift as it was when the monitor had observed so many inputs; None if it is not watched."""
    from demur.monitoring import Drift

    numbers = [number for number in _list_numbers(folder) if number <= observed]
    return Drift.load(_name_file(folder, max(numbers))) if numbers else None


def save_drift(folder: Path, drift: Drift, observed: int) -> None:
    """Write drift as it is once the monitor will have observed so many inputs."""
    drift.save(_name_file(folder, observed))


def remove_other_drift(folder: Path, observed: int) -> None:
    """Remove the files of other moments, if there is one of this moment."""
    numbers = _list_numbers(folder)
    for number in numbers:
        if number > observed or (observed in numbers and number < observed):
            _name_file(folder, number).unlink(missing_ok=True)


def _list_numbers(folder: Path) -> list[int]:
    stems = [path.stem.removeprefix("drift-") for path in folder.glob("drift-*.json")]
    return [int(stem) for stem in stems if stem.isdecimal()]


def _name_file(folder: Path, observed: int) -> Path:
    return folder / f"drift-{observed}.json"
