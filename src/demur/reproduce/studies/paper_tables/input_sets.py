"""The sets of inputs of a study: which rows of which file belong to which set."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.data.idx import read_idx
from demur.reproduce.data.npz import open_npz
from demur.reproduce.studies.paper_tables.config import TablesConfig

_ROWS_STREAM = 0x5E75
"""Separates the draw of rows from other uses of the same seed."""


class InputSets:
    """The sets of a study.

    Parameters
    ----------
    config
        The settings.
    data
        The folder that paths in the configuration are relative to.
    """

    def __init__(self, config: TablesConfig, data: Path) -> None:
        self.config, self.data = config, data

    def find_path(self, given: str) -> Path:
        """Return the path of a file or folder of the data; raise a `ValueError` if it does not exist."""
        found = self.data / given
        if not found.exists():
            raise ValueError(
                f"{found}: expected a file or folder that the settings {self.config.name!r} name, found "
                "none: pass the folder that contains it to --data"
            )
        return found

    def get_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a set; an attacked set inherits those of `id`."""
        own = self.config.sets[name]
        return {**self.config.sets["id"], **own} if "attack" in own else own

    def find_file(self, name: str) -> Path:
        """Return the file with the inputs of a set."""
        given, network = self.get_settings(name), self.config.network
        return self.find_path(given.get("idx") or given.get("npz") or network.get("features") or "")

    @functools.cached_property
    def image_sets(self) -> dict[str, Any]:
        """The image sets by name, if the inputs are folders of images."""
        from demur.reproduce.data.image_folders import open_images
        from demur.reproduce.data.imagenet import open_published

        found = {}
        for name, given in self.config.sets.items():
            if given.get("published"):
                found[name] = open_published(self.data, given["images"])
            elif "images" in given:
                found[name] = open_images(self.find_path(given["images"]), name)
                if given.get("labels") == "name":
                    found[name] = replace(found[name], labels=_parse_labels(found[name].ids))
                elif "labels" in given:
                    path = self.find_path(given["labels"])
                    found[name] = open_images(found[name].folder, name, labels=path)
        return found

    @functools.cache  # noqa: B019  (an object of one run)
    def count_available(self, name: str) -> int:
        """Return how many inputs a set can choose from."""
        given = self.get_settings(name)
        if "images" in given:
            return len(self.image_sets[name])
        if "predictions" in self.config.network:
            return int(
                read_array(self.find_path(self.config.network["predictions"]), f"{given['key']}_q").shape[1]
            )
        return len(self.read_all(name))

    @functools.cache  # noqa: B019
    def get_rows(self, name: str) -> np.ndarray:
        """Return the rows of the file that belong to a set, in order."""
        given = self.get_settings(name)
        rows = np.arange(self.count_available(name))
        if "modulo" in given:
            rows = rows[np.isin(rows % given["modulo"], given["remainders"])]
        if "rows" in given:
            rows = rows[given["rows"][0] : given["rows"][1]]
        if "without" in given:
            rows = np.setdiff1d(rows, self.get_rows(given["without"]))
        if "take" in given:
            if given["take"] > len(rows):
                raise ValueError(
                    f"[sets.{name}]: expected at least {given['take']} inputs to take, got {len(rows)}"
                )
            # Sets of the same size draw the same rows, whatever else is in the settings.
            rng = np.random.default_rng([_ROWS_STREAM, self.config.seed, len(rows), given["take"]])
            rows = np.sort(rng.choice(rows, given["take"], replace=False))
        if len(rows) == 0:
            raise ValueError(f"[sets.{name}]: expected inputs, got none")
        return rows

    def read_all(self, name: str) -> np.ndarray:
        """Return all inputs in the file of a set, as stored."""
        given = self.get_settings(name)
        return read_array(self.find_file(name), given.get("key"))

    def read_inputs(self, name: str) -> np.ndarray:
        """Return the inputs of a set as a network takes them, float32."""
        found = self.read_all(name)[self.get_rows(name)]
        if self.config.source == "make":
            return np.ascontiguousarray(found, dtype=np.float32) / np.float32(
                self.config.network.get("scale", 1)
            )
        return found.astype(np.float32)

    def read_labels(self, name: str) -> np.ndarray | None:
        """Return the labels of a set, or None if it has none."""
        given = self.get_settings(name)
        if "images" in given:
            found = self.image_sets[name].labels
        elif "labels" not in given:
            found = None
        elif "idx" in given:
            found = read_array(self.find_path(given["labels"]), None)
        else:
            stored = self.config.network.get("predictions")
            found = read_array(self.find_path(stored) if stored else self.find_file(name), given["labels"])
        return None if found is None else np.asarray(found)[self.get_rows(name)].astype(np.int64)

    def get_original_rows(self, name: str) -> np.ndarray:
        """Return the rows of a set in the full lists of labels and votes that come with the data.

        Stored predictions contain them (`KEY_row`). The setting `each = k` of a set says that its file has
        only every k-th input of the full lists.
        """
        own, given = self.get_rows(name), self.config.sets[name]
        stored = self.config.network.get("predictions")
        if stored is not None:
            return read_array(self.find_path(stored), f"{given['key']}_row")[own].astype(np.int64)
        return own * given.get("each", 1)

    def read_mask(self, name: str) -> np.ndarray:
        """Return which inputs of `id` qualify for a set that is drawn from them."""
        given = self.config.sets[name]
        whole = read_array(self.find_path(given["mask"]), given["mask_key"])
        return whole[self.get_original_rows("id")].astype(bool)

    def describe(self, name: str) -> dict[str, Any]:
        """Return the facts that the inputs of a set depend on, for the keys of stages."""
        given = dict(self.get_settings(name))
        for key in ("stand_in_for", "called", "mask", "mask_key", "each"):
            given.pop(key, None)
        rows = hashlib.sha256(self.get_rows(name).astype(np.int64).tobytes()).hexdigest()[:16]
        if "images" in given:
            return {"set": given, "rows": rows}
        stored = self.config.network.get("predictions")
        files = [self.find_path(stored) if stored else self.find_file(name)]
        if "idx" in given and "labels" in given:
            files.append(self.find_path(given["labels"]))
        return {"set": given, "rows": rows, "files": [hash_file(each) for each in files]}


def _parse_labels(ids: Sequence[str]) -> np.ndarray:
    """Return the class that each file name begins with, as in 007_00012345.jpg."""
    found = [re.match(r"\d+(?=_)", each.rpartition("/")[2]) for each in ids]
    if None in found:
        raise ValueError(
            f"{ids[found.index(None)]}: expected a file name that begins with the class, such as "
            "007_00012345.jpg"
        )
    return np.array([int(each.group()) for each in found if each], np.int64)


@functools.lru_cache(8)
def read_array(path: Path, key: str | None) -> np.ndarray:
    """Return an array by name from an .npz file, or the array of an IDX file if the name is None."""
    if key is None:
        return read_idx(path)
    with open_npz(path) as archive:
        if key not in archive.files:
            raise ValueError(f"{path}: expected an array {key!r}, found {', '.join(archive.files)}")
        return archive[key]


@functools.cache
def hash_file(path: Path) -> str:
    """Return sixteen hexadecimal digits that depend on the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
