"""What a long run has done so far, in one file that is complete or not there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from demur import atomic
from demur.checksums import sum_arrays
from demur.moments import Moments
from demur.reading import open_regular, parse_json, read_arrays
from demur.run_settings import describe_changes

_FORMAT = "demur checkpoint 1"


class Checkpoint:
    """A file with finished work, which an interrupted run resumes from.

    Parameters
    ----------
    path
        The file; None: nothing is written.
    settings
        What must be unchanged for a run to resume. A file with other settings is refused.
    every
        Seconds between writes.
    """

    def __init__(self, path: str | os.PathLike[str] | None, settings: dict[str, Any], every: float) -> None:
        self.path = None if path is None else Path(path)
        self.settings = json.loads(json.dumps(settings))
        self.every = every
        self._last = time.monotonic()

    def read(self) -> dict[str, np.ndarray]:
        """Return the arrays of an interrupted run; empty where there was none."""
        if self.path is None or not self.path.exists():
            return {}
        expected = f"checkpoint: expected a file of this run. Got {str(self.path)!r}"
        try:
            with open_regular(self.path) as file:
                found = read_arrays(file)
            header = parse_json(str(found.pop("header")))
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(f"{expected}: {error}. Choose another name.") from None
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError(f"{expected}, which is something else. Choose another name.")
        before = header.get("settings")
        if others := describe_changes(before if isinstance(before, dict) else {}, self.settings):
            raise ValueError(
                f"{expected}, of a run with other settings: {others}. Remove it or choose another name."
            )
        if header.get("checksum") not in (None, sum_arrays(found)):  # older files have none
            raise ValueError(f"{expected}, which was changed since it was written. Remove it.")
        return found

    def due(self) -> bool:
        """Return whether it is time to write."""
        return self.path is not None and time.monotonic() - self._last >= self.every

    def write(self, arrays: dict[str, np.ndarray]) -> None:
        """Write the arrays, replacing the file as a whole."""
        if self.path is None:
            return
        header = json.dumps({"format": _FORMAT, "settings": self.settings, "checksum": sum_arrays(arrays)})
        content: dict[str, Any] = {"header": np.array(header), **arrays}
        with atomic.open_file(self.path) as file:
            np.savez(file, **content)
        self._last = time.monotonic()

    def remove(self) -> None:
        """Remove the file, once the run is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def pack_moments(moments: Moments, beside: Path) -> np.ndarray:
    """Return moments as bytes, in the format of `Moments.save`."""
    scratch = atomic.name_temporary(beside)
    try:
        moments.save(scratch)
        return np.frombuffer(scratch.read_bytes(), np.uint8)
    finally:
        scratch.unlink(missing_ok=True)


def unpack_moments(content: np.ndarray, beside: Path) -> Moments:
    """Return the moments that ``pack_moments`` turned into bytes."""
    scratch = atomic.name_temporary(beside)
    try:
        scratch.write_bytes(content.tobytes())
        return Moments.load(scratch)
    finally:
        scratch.unlink(missing_ok=True)
