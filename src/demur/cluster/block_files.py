"""Finished blocks in a folder, so that an interrupted job goes on where it was.

    job.json                what the job was asked for: a folder of another job is refused
    00000012-NAME.npz       the scores of a block, or .parquet, as asked for
    manifest.json           the files of all blocks, once they are all there

A file's name holds a checksum of the job's settings and of the block's inputs: a file that is there is that
block's result, whoever wrote it, and a worker that repeats a block writes the same bytes again. Files appear
whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from demur import atomic
from demur.reading import read_json
from demur.scoring.batches import InputBatch
from demur.scoring.checkpoint import Checkpoint, describe_changes

_FORMAT = "demur cluster job 1"
_JOB, _MANIFEST = "job.json", "manifest.json"


def open_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Create the folder of a job, or raise where it is that of another."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(settings))
    path = folder / _JOB
    expected = f"checkpoint: expected a new folder, or that of this job. Got {str(folder)!r}"
    if not path.exists():
        if any(not each.name.startswith(".") for each in folder.iterdir()):
            raise ValueError(f"{expected}, which holds other files. Choose another name.")
        atomic.write_text(path, json.dumps({"format": _FORMAT, "settings": settings}, indent=1) + "\n")
        return
    found = _read_object(path)
    if found.get("format") != _FORMAT or not isinstance(found.get("settings"), dict):
        raise ValueError(f"{expected}, which is something else. Choose another name.")
    if changes := describe_changes(found["settings"], settings):
        raise ValueError(f"{expected}, of a job with other settings: {changes}. Remove it or choose another.")


def remove_folder(folder: Path) -> None:
    """Remove the files of a job, and the folder if nothing else is in it."""
    for path in folder.iterdir():
        if path.name == _JOB or path.suffix in (".npz", ".parquet", ".tmp"):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def name_block(number: int, settings: dict[str, Any], batches: list[InputBatch]) -> str:
    """Return the name of a block's file, without its ending."""
    marks = [(batch.position, batch.size, batch.full_mark) for batch in batches]
    ids = [None if batch.ids is None else batch.ids.tolist() for batch in batches]
    said = json.dumps([settings, marks, ids], sort_keys=True)
    return f"{number:08d}-{hashlib.sha256(said.encode()).hexdigest()[:24]}"


def read_block(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of a finished block; None where it is not there, or not as it was written."""
    try:
        return Checkpoint(path, {"block": path.stem}, 0.0).read() or None
    except ValueError:
        return None


def write_block(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays of a finished block."""
    Checkpoint(path, {"block": path.stem}, 0.0).write(arrays)


def write_manifest(folder: Path, rows: dict[str, int]) -> None:
    """Write the names of all files in order, with the inputs of each: nothing is missing from now on."""
    files = [{"file": name, "inputs": count} for name, count in rows.items()]
    said = {"format": _FORMAT, "inputs": sum(rows.values()), "files": files}
    atomic.write_text(folder / _MANIFEST, json.dumps(said, indent=1) + "\n")


def read_manifest(folder: Path) -> list[Path]:
    """Return the files of a finished job in order; raise where one is missing."""
    path = folder / _MANIFEST
    if not path.exists():
        raise FileNotFoundError(f"Expected the folder of a finished job. Got {str(folder)!r}: run it again.")
    files = [folder / each["file"] for each in _read_object(path).get("files", [])]
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"Expected {str(file)!r}, which {_MANIFEST} lists: run the job again.")
    return files


def _read_object(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty where it holds something else."""
    try:
        found = read_json(path)
    except (ValueError, OSError):
        return {}
    return found if isinstance(found, dict) else {}
