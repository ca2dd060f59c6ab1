"""A study whose stages end in one: what is to be done, and where its results go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demur.reproduce.stages import Stage, Stages, copied


@dataclass(frozen=True)
class Planned:
    """What is to be done, and where.

    Attributes
    ----------
    stages
        Of the run's folder.
    last
        The stage whose files are the results.
    """

    stages: Stages
    last: Stage

    def run(self) -> list[Path]:
        """Do what is not done yet; return the files of the results, in the folder of the run."""
        made = self.stages.made(self.last)
        found = [self.stages.folder / path.name for path in sorted(made.iterdir())]
        for path in found:
            copied(made / path.name, path)
        return found
