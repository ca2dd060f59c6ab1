"""A monitor's folder: a snapshot and a log that only grows, so that a kill at any point loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from demur.monitoring import records
from demur.reading import open_regular

if TYPE_CHECKING:
    from demur.monitoring.monitor import Monitor

_SNAPSHOT = "monitor.json"
_SHORTEST_LOG = 1 << 20
"""Bytes that a log may have before it is folded into a snapshot."""


class Journal:
    """The log of a monitor, open for writing. Each line is a checksum, of all lines so far, and a record.

    Parameters
    ----------
    folder : Path
        Where `monitor.json` and `log-N.txt` are. N is the number that the snapshot tells.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _take_lock(folder)
        self._log: IO[bytes] | None = None
        self._number, self._chain, self._size, self._snapshot_size = 0, "", 0, 0

    def load(self, kind: type[Monitor]) -> Monitor:
        """Return the monitor as the last complete record left it; what a kill cut off is removed."""
        monitor, self._number, self._chain = records.load(kind, self.folder / _SNAPSHOT)
        self._snapshot_size = (self.folder / _SNAPSHOT).stat().st_size
        path = self._path(self._number)
        if not path.exists():
            raise ValueError(
                f"{path} must be there: the snapshot beside it names it. Got none. Go back to the last good "
                "copy of the folder."
            )
        with open_regular(path) as file:
            content = file.read()
        lines = content.split(b"\n")[:-1]  # A last line without its end was never acknowledged.
        for number, line in enumerate(lines, 1):
            monitor.apply(self._read(path, number, line))
        self._open(sum(len(line) + 1 for line in lines))
        for old in self.folder.glob("log-*.txt"):
            if old != path:
                old.unlink()
        return monitor

    def start(self, monitor: Monitor) -> None:
        """Begin with a monitor that has no folder yet."""
        self.snapshot(monitor)

    def append(self, record: dict[str, Any]) -> None:
        """Write a record; it is on disk when this returns, and not at all if it raises."""
        assert self._log is not None
        text = records.dump(record)
        chain = records.sum_text(text, self._chain)
        line = f"{chain} {text}\n".encode()
        try:
            rest = line
            while rest:  # A disk that is nearly full takes a part, and raises only then.
                rest = rest[self._log.write(rest) :]
            os.fsync(self._log.fileno())
        except BaseException:
            self._log.truncate(self._size)
            raise
        self._chain, self._size = chain, self._size + len(line)

    def is_long(self) -> bool:
        """Return whether to fold the log into a snapshot."""
        return self._size > max(_SHORTEST_LOG, self._snapshot_size)

    def snapshot(self, monitor: Monitor) -> None:
        """Begin an empty log, and write the whole state.

        The snapshot names its log, so there is no moment at which a record counts twice or not at all. The
        log is there first: where one is missing later, no kill took it.
        """
        before, new = self._path(self._number), self._path(self._number + 1)
        new.write_bytes(b"")
        _sync_folder(self.folder)
        self._chain = records.save(monitor, self.folder / _SNAPSHOT, self._number + 1)
        self._snapshot_size = (self.folder / _SNAPSHOT).stat().st_size
        self._number += 1
        self._open(0)
        before.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the log, and let others open the folder."""
        if self._log is not None:
            self._log.close()
        self._lock.close()

    def _path(self, number: int) -> Path:
        return self.folder / f"log-{number}.txt"

    def _open(self, size: int) -> None:
        """Open the log to go on after so many bytes."""
        if self._log is not None:
            self._log.close()
        self._log = open(self._path(self._number), "ab", buffering=0)  # noqa: SIM115
        self._log.truncate(size)
        self._size = size
        _sync_folder(self.folder)

    def _read(self, path: Path, number: int, line: bytes) -> dict[str, Any]:
        """Return the record of a line, whose checksum must go on from the line before."""
        chain, _, text = line.decode("utf-8", "replace").partition(" ")
        if chain != records.sum_text(text, self._chain):
            raise ValueError(
                f"{path} must be as a monitor wrote it. Line {number} was changed or does not follow the one "
                "before. Go back to the last good copy of the folder."
            )
        self._chain = chain
        return json.loads(text)


def open_folder(kind: type[Monitor], folder: str | Path, new: Monitor | None) -> tuple[Monitor, Journal]:
    """Return the monitor that lives in a folder, and its journal; `new` starts there if none does."""
    path = Path(folder)
    if new is not None:
        path.mkdir(parents=True, exist_ok=True)
    elif not (path / _SNAPSHOT).exists():
        raise ValueError(
            f"{path} must be the folder of a monitor. There is none: start one with a policy, by "
            "Monitor.open(folder, policy) or demur monitor start."
        )
    journal = Journal(path)
    try:
        if (path / _SNAPSHOT).exists():
            monitor = journal.load(kind)
            if new is not None:
                _check_settings(path, monitor, new)
            return monitor, journal
        assert new is not None
        journal.start(new)
        return new, journal
    except BaseException:
        journal.close()
        raise


def _check_settings(path: Path, monitor: Monitor, new: Monitor) -> None:
    there, wanted = records.describe_monitor(monitor, 0), records.describe_monitor(new, 0)
    there["seed"], wanted["seed"] = monitor.seed, new.seed
    for name in ("policy", "confidence", "audit", "least", "seed"):
        if there[name] != wanted[name]:
            raise ValueError(
                f"{path} must be a new folder, or one of a monitor with the same settings. Got another "
                f"{name}: open it without a policy, or choose another folder."
            )


def _take_lock(folder: Path) -> IO[bytes]:
    """Return an open file that only one process can hold."""
    file = open(folder / "lock", "ab")  # noqa: SIM115
    try:
        import fcntl
    except ImportError:  # Windows: there, nothing keeps a second process out.
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(
            f"{folder} must be open in one process at a time. Another one has it open: wait for it."
        ) from None
    return file


def _sync_folder(folder: Path) -> None:
    """Let a new name in a folder survive a loss of power, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
