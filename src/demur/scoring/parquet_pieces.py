"""A Parquet file that is written block by block: finished blocks wait in a folder beside it.

A Parquet file cannot be added to once it is closed, and is worth nothing before. So each block is a
checkpoint of its own in `FILE.parquet.partial/`, and the file is written from them at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from demur import atomic
from demur.scoring.checkpoint import Checkpoint
from demur.stores import StoreError, explain_write_errors
from demur.stores.parquet_files import write_parquet_parts
from demur.stores.urls import find_url, store_file


class ParquetPieces:
    """Blocks of columns on their way to a Parquet file.

    Parameters
    ----------
    path
        The file, or a `Path` of a URL, whose blocks then wait in the working directory.
    holds, block, inputs, settings
        As in `demur.stores.block_store.BlockStore`.
    force
        Begin again where the finished blocks are of other settings.

    Attributes
    ----------
    done
        The blocks that are written.
    """

    def __init__(
        self, path: Path, *, holds: str, block: int, inputs: int, settings: Mapping[str, Any], force: bool
    ) -> None:
        self._path, self._force = path, force
        self._settings = {"holds": holds, "block": block, "inputs": inputs, **settings}
        place = atomic.follow_link(path) if find_url(path) is None else Path(path.name)
        self._folder = place.with_name(f"{place.name}.partial")
        self.done = {int(each.stem) for each in self._list_pieces()}
        try:
            if self.done:
                self._open(min(self.done)).read()
        except ValueError:
            if not force:
                raise
            self._remove()
            self.done = set()

    def write(self, number: int, columns: dict[str, np.ndarray]) -> None:
        """Write one block."""
        with explain_write_errors(self._folder):
            self._folder.mkdir(exist_ok=True)
            self._open(number).write(columns)
        self.done.add(number)

    def read(self, number: int, name: str) -> np.ndarray:
        """Return a column of one block."""
        return self._open(number).read()[name]

    def finish(self, inputs: int, facts: Mapping[str, Any], *, leave_out: Collection[str] = ()) -> None:
        """Write the file, without some columns, and remove the blocks."""

        def read_pieces() -> Iterator[dict[str, np.ndarray]]:
            for number in sorted(self.done):
                piece = self._open(number).read()
                yield {name: values for name, values in piece.items() if name not in leave_out}

        url = find_url(self._path)
        if url is not None:
            with store_file(url) as copy, copy.open("wb") as file:
                write_parquet_parts(file, read_pieces())
        else:
            with (
                explain_write_errors(self._path),
                atomic.open_file(self._path, replace=self._force) as file,
            ):
                write_parquet_parts(file, read_pieces())
        self._remove()

    def _open(self, number: int) -> Checkpoint:
        return Checkpoint(self._folder / f"{number:08d}.npz", self._settings, 0)

    def _list_pieces(self) -> list[Path]:
        if self._folder.exists() and not self._folder.is_dir():
            raise StoreError(f"{self._folder}: expected a folder of finished blocks, got a file: rename it")
        return [each for each in self._folder.glob("*.npz") if each.stem.isdecimal()]

    def _remove(self) -> None:
        for each in self._list_pieces():
            each.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others may have put files there
            self._folder.rmdir()
