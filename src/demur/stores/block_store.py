"""Stores of arrays with one entry per input, in zarr version 3, written a block of inputs at a time.

    STORE/zarr.json           what it holds, and whether it is complete
    STORE/NAME/c/...          the chunks of one array; each holds one block of inputs
    STORE/manifest/c/BLOCK    1 once all chunks of the block are there

A block enters the manifest after all of its chunks, so that a writer that was killed knows where to resume,
and a block that was half written is written again. Every chunk has a checksum (CRC-32C).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from demur import atomic
from demur.run_settings import describe_changes
from demur.stores.errors import StoreError
from demur.stores.urls import exists_at, explain_remote_errors, find_url, open_file_system, show_place
from demur.stores.zarr_arrays import (
    ATTRIBUTES,
    ZarrColumn,
    check_complete,
    is_group,
    list_arrays,
    make_store,
    open_member,
    open_node,
    read_facts,
)

FORMAT = "demur store 1"
MANIFEST = "manifest"


class BlockStore:
    """A store that is being written; `finish` makes it complete.

    Parameters
    ----------
    path
        A folder or URL.
    holds
        What is in it: "predictions", "scores" or "maps".
    block
        Inputs in one block.
    inputs
        How many there will be; None: nobody knows yet, and arrays grow.
    settings
        What must be unchanged for an interrupted writer to resume.
    force
        Replace a store that is there, unless it is an unfinished one with the same settings.
    resume
        Keep the blocks of an unfinished store with the same settings; if false, it is replaced.

    Attributes
    ----------
    done
        The blocks that are written.
    """

    def __init__(
        self,
        path: Path,
        *,
        holds: str,
        block: int,
        inputs: int | None = None,
        settings: Mapping[str, Any] | None = None,
        force: bool = False,
        resume: bool = True,
    ) -> None:
        self.path, self.label, self.block, self._inputs = path, show_place(path), block, inputs
        asked = json.loads(json.dumps(dict(settings or {})))
        self._facts = {"format": FORMAT, "holds": holds, "block": block, "settings": asked}
        found = check_new_store(path, force=force)
        resumes = resume and found is not None and not found.get("complete", False)
        if found is not None and resumes and (changed := self._describe_changes(found)):
            if not force:
                raise StoreError(
                    f"{self.label}: expected a new store, or one that this command began, got one with other "
                    f"settings: {changed}: remove it, choose another name or add --force"
                )
            resumes = False
        with explain_remote_errors(self.label, "written"):
            import zarr

            if resumes:
                self._group = zarr.open_group(make_store(path, read_only=False), mode="r+", zarr_format=3)
            else:
                remove_store(path)
                attributes = {ATTRIBUTES: {**self._facts, "complete": False}}
                self._group = zarr.create_group(make_store(path, read_only=False), attributes=attributes)
            self._names: list[str] = read_facts(self._group).get("arrays", [])
            self._arrays: dict[str, Any] = {name: self._group[name] for name in self._names}
            self.done: set[int] = set()
            if resumes and MANIFEST in self._group:
                self._arrays[MANIFEST] = self._group[MANIFEST]
                self.done = set(np.flatnonzero(self._arrays[MANIFEST][:]).tolist())

    def write(
        self, number: int, arrays: Mapping[str, np.ndarray], *, axes: Mapping[str, int] | None = None
    ) -> None:
        """Write one block of every array; blocks may come in any order.

        Parameters
        ----------
        number
            Which block.
        arrays
            The same names and shapes for each block; the last block may be shorter.
        axes
            Where an array has its inputs, if not on the first axis.
        """
        with explain_remote_errors(self.label, "written"):
            for name, values in arrays.items():
                axis = (axes or {}).get(name, 0)
                array = self._arrays.get(name)
                if array is None:
                    array = self._arrays[name] = self._create(name, values, axis)
                start = number * self.block
                stop = start + values.shape[axis]
                if array.shape[axis] < stop:
                    array.resize(tuple(stop if k == axis else size for k, size in enumerate(array.shape)))
                place = (slice(None),) * axis + (slice(start, stop),)
                array[place] = values if values.dtype.kind != "U" else values.astype(np.dtypes.StringDType())
            self._enter(number, list(arrays))
        self.done.add(number)

    def _enter(self, number: int, names: list[str]) -> None:
        """Write into the manifest that a block is there."""
        if not self._names:
            self._names = names
            self._group.attrs[ATTRIBUTES] = {**self._facts, "arrays": names, "complete": False}
        manifest = self._arrays.get(MANIFEST)
        if manifest is None:
            blocks = -(-(self._inputs or 0) // self.block)
            manifest = self._create_array(MANIFEST, (blocks,), (1,), np.dtype(np.uint8))
            self._arrays[MANIFEST] = manifest
        if manifest.shape[0] <= number:
            manifest.resize((number + 1,))
        manifest[number] = 1

    def read(self, number: int, name: str) -> np.ndarray:
        """Return a column of one block."""
        start = number * self.block
        return ZarrColumn(f"{self.label}:{name}", self._arrays[name])[start : start + self.block]

    def finish(
        self, inputs: int, facts: Mapping[str, Any] | None = None, *, leave_out: Collection[str] = ()
    ) -> None:
        """Say that the store is complete; a `StoreError` where a block is missing.

        Arrays to leave out stay, but no reader of demur's looks at them.
        """
        missing = set(range(-(-inputs // self.block))) - self.done
        if missing:
            raise StoreError(f"{self.label}: expected every block of inputs, got none of {min(missing)}")
        names = [name for name in self._names if name not in leave_out]
        held = {**self._facts, **(facts or {}), "inputs": inputs, "arrays": names, "complete": True}
        with explain_remote_errors(self.label, "written"):
            self._group.attrs[ATTRIBUTES] = held

    def _create(self, name: str, values: np.ndarray, axis: int) -> Any:
        shape = tuple((self._inputs or 0) if k == axis else size for k, size in enumerate(values.shape))
        length = min(self.block, self._inputs or self.block)
        chunks = tuple(length if k == axis else size for k, size in enumerate(values.shape))
        if axis > 0:  # members apart, where a block of all of them would be large
            together = max(1, CHUNK_BYTES // max(1, values[:1].nbytes))
            chunks = (min(together, values.shape[0]), *chunks[1:])
        return self._create_array(name, shape, chunks, values.dtype)

    def _create_array(self, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any) -> Any:
        from zarr.codecs import Crc32cCodec, ZstdCodec

        return self._group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=str if dtype.kind == "U" else dtype,
            compressors=(ZstdCodec(level=1), Crc32cCodec()),
            config={"write_empty_chunks": True},
            overwrite=True,
        )

    def _describe_changes(self, found: Mapping[str, Any]) -> str:
        if found.get("format") != FORMAT:
            return f"format was {found.get('format')!r} and is {FORMAT!r}"
        before = found.get("settings")
        own = {name: self._facts[name] for name in ("holds", "block")}
        past = {name: found.get(name) for name in own} | (before if isinstance(before, dict) else {})
        return describe_changes(past, {**own, **self._facts["settings"]})


CHUNK_BYTES = 16 << 20
"""Bytes of a chunk before it is compressed, about."""


def check_new_store(path: Path, *, force: bool) -> dict[str, Any] | None:
    """Return what an unfinished store of demur's says of itself; None where there is nothing.

    A store that is complete, and anything else, is an error unless `force` and it is a store.
    """
    label, url = show_place(path), find_url(path)
    if not (exists_at(url) if url else path.exists()):
        return None
    if url is None and path.is_dir() and not any(path.iterdir()):
        return None
    try:
        facts = read_facts(open_node(path))
    except StoreError as error:
        raise StoreError(f"{label}: expected a new store, got something else: choose another name") from error
    if not force and (not facts or facts.get("complete") is True):
        raise StoreError(
            f"{label}: expected a new store, got one that exists: choose another name or add --force"
        )
    return facts


def remove_store(path: Path) -> None:
    """Remove a store that `check_new_store` has found, if there is one."""
    url = find_url(path)
    if url is None:
        if path.exists():
            # Out of the way first: a store that is half removed could not be told from something else.
            away = path.rename(atomic.name_temporary(path))
            shutil.rmtree(away)
        return
    files, inside = open_file_system(url)
    if files.exists(inside):
        files.rm(inside, recursive=True)


def open_maps(place: str | os.PathLike[str]) -> dict[str, ZarrColumn]:
    """Open the maps that `demur.score` has written; what is missing in them is an error, and never zeros.

    Parameters
    ----------
    place
        A path or URL.

    Returns
    -------
    dict
        Arrays (inputs, height, width) by name, unread: ``maps["pairwise_epistemic"][0]`` reads one map.
    """
    return open_columns_of(Path(place), "maps")[0]


def open_columns_of(path: Path, holds: str) -> tuple[dict[str, ZarrColumn], dict[str, Any]]:
    """Return the columns of a complete store, unread, and what it says of itself."""
    group, label = open_node(path), show_place(path)
    facts = read_facts(group) if is_group(group) else {}
    if facts.get("holds") != holds:
        raise StoreError(
            f"{label}: expected {holds} that demur wrote, got {facts.get('holds') or 'another store'}"
        )
    check_complete(group, label)
    names = list_arrays(group, label)
    columns = {name: ZarrColumn(f"{label}:{name}", open_member(group, name, label)) for name in names}
    for column in columns.values():
        if len(column) != facts.get("inputs") or (holds == "scores" and len(column.shape) != 1):
            raise StoreError(
                f"{column.label}: expected one entry for each of {facts.get('inputs')} inputs, got shape "
                f"{column.shape}"
            )
    return columns, facts
