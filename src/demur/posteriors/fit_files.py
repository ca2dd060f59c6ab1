"""`FitFile`: one safetensors file with the state of a fit, and in the end with what was fitted."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.run_settings import describe_changes


class FitFile:
    """The file of a fit, complete or not there, which an interrupted fit resumes from.

    Parameters
    ----------
    path
        The file; None: nothing is written.
    method
        The posterior whose ``load`` reads the file once the fit is finished.
    settings
        What must be unchanged for a fit to resume. A file with other settings is refused.
    every
        Seconds between writes.
    argument
        What the user calls the file, for errors.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, method: str, settings: dict[str, Any], every: float,
        argument: str = "path",
    ) -> None:  # fmt: skip
        self.path, self.method = None if path is None else Path(path), method
        self.settings = json.loads(json.dumps(settings))
        self.every, self.argument, self._last = every, argument, time.monotonic()

    def read(self) -> tuple[dict[str, Any], dict[str, str], bool]:
        """Return the tensors, the facts about them, and whether the fit is finished; empty without a file."""
        if self.path is None or not self.path.exists():
            return {}, {}, False
        finished = False
        try:
            state, facts = read_tensors(self.path, f"{self.method}.fit")
        except ValueError:
            (state, facts), finished = read_tensors(self.path, self.method), True
        others = describe_changes(json.loads(facts.get("settings", "{}")), self.settings)
        if others:
            raise ValueError(
                f"{self.argument}: expected a file of this fit. Got {str(self.path)!r}, of another: "
                f"{others}. Remove it or choose another name."
            )
        return state, facts, finished

    def due(self) -> bool:
        """Return whether it is time to write."""
        return self.path is not None and time.monotonic() - self._last >= self.every

    def write(self, tensors: dict[str, Any], *, finished: bool, facts: dict[str, str] | None = None) -> None:
        """Write the state, replacing the file as a whole."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        method = self.method if finished else f"{self.method}.fit"
        facts = {**(facts or {}), "method": method, "settings": json.dumps(self.settings)}
        write_tensors(self.path, tensors, facts)
        self._last = time.monotonic()
