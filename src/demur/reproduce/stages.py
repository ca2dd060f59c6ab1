"""Stages of a study: each is kept on disk under a key of what it depends on, and never run twice.

DIR/stages/NAME-KEY/            what a finished stage wrote
DIR/stages/NAME-KEY.json        checksums of these files
DIR/stages/NAME-KEY.partial/    where a stage works; after an interruption it finds its own files here
DIR/timings.jsonl               how long each stage took; the only file that differs between two runs
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demur.atomic import write_text
from demur.checksums import sum_file
from demur.reading import read_json


@dataclass(frozen=True)
class Stage:
    """One step of a study.

    Parameters
    ----------
    name
        Such as "score/mc-dropout/id"; with the key it names the folder of the stage.
    make
        Called with the folder to write to. After an interruption it is called again with the same folder.
    facts
        What the result depends on besides the earlier stages; anything that JSON can hold.
    after
        The stages that it reads; `Stages.complete` returns their folders.
    seconds, megabytes
        Estimates for the plan, where they are known.
    """

    name: str
    make: Callable[[Path], object]
    facts: Mapping[str, Any] = field(default_factory=dict)
    after: Sequence[Stage] = ()
    seconds: float | None = None
    megabytes: float | None = None

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits of the name, the facts and the keys of the earlier stages."""
        whole = [self.name, self.facts, [each.key for each in self.after]]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


class Stages:
    """The stages that a run keeps in its folder.

    Parameters
    ----------
    folder
        The folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checked: set[Path] = set()

    def find_folder(self, stage: Stage) -> Path:
        """Return where a stage is kept once it is done."""
        return self.folder / "stages" / f"{stage.name.replace('/', '--')}-{stage.key}"

    def find_work_folder(self, stage: Stage) -> Path:
        """Return where a stage works until it is done."""
        done = self.find_folder(stage)
        return done.with_name(f"{done.name}.partial")

    def get_state(self, stage: Stage) -> str:
        """Return "done", "begun" or "to do"."""
        if self.find_folder(stage).is_dir():
            return "done"
        return "begun" if self.find_work_folder(stage).is_dir() else "to do"

    def complete(self, stage: Stage) -> Path:
        """Return the folder of a stage that is done; run the stage first, and those before it, if needed."""
        done, work = self.find_folder(stage), self.find_work_folder(stage)
        if done.is_dir():
            self._check(done)
            return done
        for each in stage.after:
            self.complete(each)
        resumed = work.is_dir()
        work.mkdir(parents=True, exist_ok=True)
        for path in work.rglob(".*.tmp"):  # half a file, of a process that was killed
            path.unlink()
        begun, used = time.perf_counter(), time.process_time()
        stage.make(work)
        seconds, processor_seconds = time.perf_counter() - begun, time.process_time() - used
        _sync_files(work)
        write_text(_name_checksums(done), json.dumps(_sum_files(work), indent=1) + "\n")
        os.rename(work, done)
        self._write_timing(  # of stages that are done: an interruption before that leaves no line
            stage=stage.name,
            key=stage.key,
            seconds=round(seconds, 3),
            processor_seconds=round(processor_seconds, 3),
            resumed=resumed,
        )
        self._checked.add(done)
        return done

    def _check(self, done: Path) -> None:
        """Raise, once in a run, unless the files of a finished stage are those that it wrote."""
        known = _name_checksums(done)
        if done in self._checked or not known.exists():  # older runs have none
            return
        again = f"remove {known} and {done} to run the stage again"
        try:
            expected = read_json(known)
            if not isinstance(expected, dict):
                raise ValueError("something else")
        except ValueError as error:
            raise ValueError(f"{known}: expected checksums, got {error}: {again}") from error
        found = _sum_files(done)
        odd = [name for name in found | expected if found.get(name) != expected.get(name)]
        if odd:
            raise ValueError(
                f"{done / odd[0]}: expected what the stage wrote, got a file that was changed since: {again}"
            )
        self._checked.add(done)

    def _write_timing(self, **facts: Any) -> None:
        """Append a line to the file of timings."""
        with (self.folder / "timings.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs out of the folder; raise a `ValueError` if one is using it."""
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(
                    f"{self.folder}: expected a folder that no other run uses, got one that is in use: "
                    "wait for that run, or choose another folder"
                ) from error
            yield


def order_stages(stages: Sequence[Stage]) -> list[Stage]:
    """Return stages and everything they need, each once, in the order in which they run."""
    found: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        for each in stage.after:
            visit(each)
        found.setdefault(stage.key, stage)

    for each in stages:
        visit(each)
    return list(found.values())


def _name_checksums(done: Path) -> Path:
    return done.with_name(f"{done.name}.json")


def _sum_files(folder: Path) -> dict[str, int]:
    """Return the checksums of all files of a folder, by their names in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sum_file(path) for path in paths}


def _sync_files(folder: Path) -> None:
    """Flush all files to disk, before the folder gets the name that says they are complete."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
