"""What a long scoring has done so far, in one file that is whole or not there."""

from __future__ import annotations

import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from demur.moments import Moments

_FORMAT = "demur checkpoint 1"


class Checkpoint:
    """A file with finished work.

    Parameters
    ----------
    path
        The file; None: nothing is kept.
    settings
        What the run was asked for. A file of another run is refused.
    every
        Seconds between two writes.
    """

    def __init__(self, path: str | os.PathLike[str] | None, settings: dict[str, Any], every: float) -> None:
        self.path = None if path is None else Path(path)
        self.settings = json.loads(json.dumps(settings))
        self.every = every
        self._last = time.monotonic()

    def read(self) -> dict[str, np.ndarray]:
        """Return the arrays of a run that was killed; empty where there was none."""
        if self.path is None or not self.path.exists():
            return {}
        expected = f"checkpoint: expected a file of this run. Got {str(self.path)!r}"
        try:
            with self.path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
            header = json.loads(str(found.pop("header")))
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{expected}: {error}. Choose another name.") from None
        if header.get("format") != _FORMAT:
            raise ValueError(f"{expected}, which is something else. Choose another name.")
        if others := describe_differences(header.get("settings") or {}, self.settings):
            raise ValueError(
                f"{expected}, of a run with other settings: {others}. Remove it or choose another name."
            )
        return found

    def due(self) -> bool:
        """Tell whether it is time to write."""
        return self.path is not None and time.monotonic() - self._last >= self.every

    def write(self, arrays: dict[str, np.ndarray]) -> None:
        """Replace the file, at once."""
        if self.path is None:
            return
        header = json.dumps({"format": _FORMAT, "settings": self.settings})
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        content: dict[str, Any] = {"header": np.array(header), **arrays}
        try:
            with scratch.open("wb") as file:
                np.savez(file, **content)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self.path)
        finally:
            scratch.unlink(missing_ok=True)
        self._last = time.monotonic()

    def remove(self) -> None:
        """Take the file away: the run is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def describe_differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say which settings are not what they were; empty where all are."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    # Long values are fingerprints: that they differ is all there is to say.
    short = [name for name in names if max(len(repr(s.get(name))) for s in (before, now)) <= 32]
    said = [f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in short]
    return ", ".join([*(f"{name} changed" for name in names if name not in short), *said])


def pack_moments(moments: Moments, beside: Path) -> np.ndarray:
    """Return moments as the bytes of the file that they write."""
    scratch = beside.with_name(f".{beside.name}.{os.getpid()}.moments")
    try:
        moments.save(scratch)
        return np.frombuffer(scratch.read_bytes(), np.uint8)
    finally:
        scratch.unlink(missing_ok=True)


def unpack_moments(content: np.ndarray, beside: Path) -> Moments:
    """Return the moments that ``pack_moments`` made bytes of."""
    scratch = beside.with_name(f".{beside.name}.{os.getpid()}.moments")
    try:
        scratch.write_bytes(content.tobytes())
        return Moments.load(scratch)
    finally:
        scratch.unlink(missing_ok=True)
