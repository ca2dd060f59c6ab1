"""Stages of a study: each is kept on disk under the content that it depends on, and never done twice.

DIR/stages/NAME-KEY/            what a stage made, whole
DIR/stages/NAME-KEY.partial/    where a stage works; one that was killed finds its own files here again
DIR/timings.jsonl               how long each stage took, the only file that differs between two runs
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Say = Callable[[str], object]


@dataclass(frozen=True)
class Stage:
    """One step of a study.

    Parameters
    ----------
    name
        As "score/mc-dropout/id"; with the key it is the place of what the stage makes.
    make
        Called with the folder to work in. It writes there, and may find what it wrote before a kill.
    facts
        What the result depends on, besides the stages before: anything that JSON can hold.
    after
        Stages that it reads; `Stages.made` gives their folders.
    seconds, megabytes
        What it will take, as far as that can be told before.
    """

    name: str
    make: Callable[[Path], object]
    facts: Mapping[str, Any] = field(default_factory=dict)
    after: Sequence[Stage] = ()
    seconds: float | None = None
    megabytes: float | None = None

    @property
    def key(self) -> str:
        """Sixteen digits that change with the name, the facts, and the keys of the stages before."""
        whole = [self.name, self.facts, [each.key for each in self.after]]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


class Stages:
    """The stages of one folder.

    Parameters
    ----------
    folder
        The folder of the run.
    say
        Called with a line when a stage begins or is found done.
    """

    def __init__(self, folder: Path, say: Say = lambda line: None) -> None:
        self.folder, self.say = folder, say

    def place(self, stage: Stage) -> Path:
        """Return the folder of a stage, whether it is done or not."""
        return self.folder / "stages" / f"{stage.name.replace('/', '--')}-{stage.key}"

    def state(self, stage: Stage) -> str:
        """Return "done", "begun" or "to do"."""
        if self.place(stage).is_dir():
            return "done"
        return "begun" if self.partial(stage).is_dir() else "to do"

    def partial(self, stage: Stage) -> Path:
        """Return where a stage works."""
        place = self.place(stage)
        return place.with_name(f"{place.name}.partial")

    def made(self, stage: Stage) -> Path:
        """Return the folder that a stage made; do it, and those before it, if nobody has yet."""
        place, partial = self.place(stage), self.partial(stage)
        if place.is_dir():
            return place
        for each in stage.after:
            self.made(each)
        again = partial.is_dir()
        partial.mkdir(parents=True, exist_ok=True)
        self.say(f"{stage.name}{', goes on' if again else ''} ...")
        begun, used = time.perf_counter(), time.process_time()
        stage.make(partial)
        self.note(
            stage=stage.name,
            key=stage.key,
            seconds=round(time.perf_counter() - begun, 3),
            processor_seconds=round(time.process_time() - used, 3),
            resumed=again,
        )
        _sync(partial)
        os.rename(partial, place)
        return place

    def note(self, **facts: Any) -> None:
        """Add a line to the file of timings, which is no result."""
        with (self.folder / "timings.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs out of the folder; raise a `ValueError` if one is at work."""
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(
                    f"{self.folder}: expected a folder that no other run works in, got one that is in use: "
                    "wait for that run, or choose another folder"
                ) from error
            yield


def in_order(stages: Sequence[Stage]) -> list[Stage]:
    """Return stages and all that they need, each once, those before first."""
    found: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        for each in stage.after:
            visit(each)
        found.setdefault(stage.key, stage)

    for each in stages:
        visit(each)
    return list(found.values())


def _sync(folder: Path) -> None:
    """Make sure that files are on disk, before their folder's name says that they are."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, path)


def copied(source: Path, target: Path) -> None:
    """Copy a file whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)
