"""The inputs of a study: which rows of which file are which set."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.idx import read_idx
from demur.reproduce.study.config import Config

_SALT = 0x5E75
"""Apart from other uses of the same seed."""


class Inputs:
    """The sets of a study.

    Parameters
    ----------
    config
        The settings.
    data
        The folder that paths in them start from.
    """

    def __init__(self, config: Config, data: Path) -> None:
        self.config, self.data = config, data

    def path(self, given: str) -> Path:
        """Return a file or folder of the data; raise unless it is there."""
        found = self.data / given
        if not found.exists():
            raise ValueError(
                f"{found}: expected a file or folder that the settings {self.config.name!r} name, found "
                "none: give --data the folder that holds it"
            )
        return found

    def given(self, name: str) -> dict[str, Any]:
        """Return the settings of a set, with what they take over from another one."""
        own = self.config.sets[name]
        return {**self.config.sets["id"], **own} if "attack" in own else own

    def file(self, name: str) -> Path:
        """Return the file that the inputs of a set are in."""
        given, network = self.given(name), self.config.network
        return self.path(given.get("idx") or given.get("npz") or network.get("features") or "")

    @functools.cached_property
    def sets(self) -> dict[str, Any]:
        """The image sets by name, where the inputs are folders of images."""
        from demur.reproduce import pictures

        found = {}
        for name, given in self.config.sets.items():
            if given.get("published"):
                found[name] = pictures.open_published(self.data, given["images"])
            elif "images" in given:
                found[name] = pictures.open_images(self.path(given["images"]), name)
                if given.get("labels") == "name":
                    found[name] = replace(found[name], labels=_named_labels(found[name].ids))
                elif "labels" in given:
                    path = self.path(given["labels"])
                    found[name] = pictures.open_images(found[name].folder, name, labels=path)
        return found

    @functools.cache  # noqa: B019  (an object of one run)
    def size(self, name: str) -> int:
        """Return how many inputs there are to choose from."""
        given = self.given(name)
        if "images" in given:
            return len(self.sets[name])
        if "predictions" in self.config.network:
            return int(array(self.path(self.config.network["predictions"]), f"{given['key']}_q").shape[1])
        return len(self.values(name))

    @functools.cache  # noqa: B019
    def rows(self, name: str) -> np.ndarray:
        """Return the rows of the file that a set has, in order."""
        given = self.given(name)
        rows = np.arange(self.size(name))
        if "modulo" in given:
            rows = rows[np.isin(rows % given["modulo"], given["remainders"])]
        if "rows" in given:
            rows = rows[given["rows"][0] : given["rows"][1]]
        if "without" in given:
            rows = np.setdiff1d(rows, self.rows(given["without"]))
        if "take" in given:
            if given["take"] > len(rows):
                raise ValueError(
                    f"[sets.{name}]: expected at least {given['take']} inputs to take, got {len(rows)}"
                )
            # All sets of one name and size draw alike, whatever else is in the settings.
            rng = np.random.default_rng([_SALT, self.config.seed, len(rows), given["take"]])
            rows = np.sort(rng.choice(rows, given["take"], replace=False))
        if len(rows) == 0:
            raise ValueError(f"[sets.{name}]: expected inputs, got none")
        return rows

    def values(self, name: str) -> np.ndarray:
        """Return all inputs of the file of a set, as they are there."""
        given = self.given(name)
        return array(self.file(name), given.get("key"))

    def inputs(self, name: str) -> np.ndarray:
        """Return the inputs of a set as a network takes them, float32."""
        found = self.values(name)[self.rows(name)]
        if self.config.source == "make":
            return np.ascontiguousarray(found, dtype=np.float32) / np.float32(
                self.config.network.get("scale", 1)
            )
        return found.astype(np.float32)

    def labels(self, name: str) -> np.ndarray | None:
        """Return the classes of a set's inputs, or None."""
        given = self.given(name)
        if "images" in given:
            found = self.sets[name].labels
        elif "labels" not in given:
            found = None
        elif "idx" in given:
            found = array(self.path(given["labels"]), None)
        else:
            stored = self.config.network.get("predictions")
            found = array(self.path(stored) if stored else self.file(name), given["labels"])
        return None if found is None else np.asarray(found)[self.rows(name)].astype(np.int64)

    def original_rows(self, name: str) -> np.ndarray:
        """Return the rows of a set in the lists of labels and votes that belong to the data.

        Stored predictions name them themselves (`KEY_row`). Settings may say that only every so many-th of
        those inputs is here (`each` in the set).
        """
        own, given = self.rows(name), self.config.sets[name]
        stored = self.config.network.get("predictions")
        if stored is not None:
            return array(self.path(stored), f"{given['key']}_row")[own].astype(np.int64)
        return own * given.get("each", 1)

    def mask(self, name: str) -> np.ndarray:
        """Return which inputs of `id` a set that is drawn from them may have."""
        given = self.config.sets[name]
        whole = array(self.path(given["mask"]), given["mask_key"])
        return whole[self.original_rows("id")].astype(bool)

    def facts(self, name: str) -> dict[str, Any]:
        """Return what tells the inputs of a set from others."""
        given = dict(self.given(name))
        for key in ("stand_in_for", "called", "mask", "mask_key", "each"):
            given.pop(key, None)
        rows = hashlib.sha256(self.rows(name).astype(np.int64).tobytes()).hexdigest()[:16]
        if "images" in given:
            return {"set": given, "rows": rows}
        stored = self.config.network.get("predictions")
        files = [self.path(stored) if stored else self.file(name)]
        if "idx" in given and "labels" in given:
            files.append(self.path(given["labels"]))
        return {"set": given, "rows": rows, "files": [content(each) for each in files]}


def _named_labels(ids: Sequence[str]) -> np.ndarray:
    """Return the class of each image from its file's name, which begins with it, as in 007_00012345.jpg."""
    found = [re.match(r"\d+(?=_)", each.rpartition("/")[2]) for each in ids]
    if None in found:
        raise ValueError(
            f"{ids[found.index(None)]}: expected a name as 007_00012345.jpg, class first, got another"
        )
    return np.array([int(each.group()) for each in found if each], np.int64)


@functools.lru_cache(8)
def array(path: Path, key: str | None) -> np.ndarray:
    """Return an array of a NumPy archive, or of a file in the IDX format, gzipped or not."""
    if key is None:
        return read_idx(path)
    with np.load(path, allow_pickle=False) as archive:
        if key not in archive.files:
            raise ValueError(f"{path}: expected an array {key!r}, found {', '.join(archive.files)}")
        return archive[key]


@functools.cache
def content(path: Path) -> str:
    """Return a text that changes with the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
