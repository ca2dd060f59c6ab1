"""Temporary files for what cannot be mapped: tables and packed arrays, unpacked once, and files at URLs."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from demur.reading import check_disk, check_expansion, count_bytes
from demur.stores.errors import StoreError
from demur.stores.mapped_arrays import FileArray
from demur.stores.urls import copy_to_folder

HELD_BYTES = 256 << 20
"""Chunks of stores are kept in memory up to so many bytes; others are unpacked to a file."""

Part = tuple[tuple[slice, ...], np.ndarray]
"""Slices of an array, one for each axis, and the values there."""


class Spool:
    """A temporary file without a name, which is gone once this object is closed or the process ends.

    Parameters
    ----------
    directory
        Where it takes its space; None for the system's directory of temporary files.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._copies: tempfile.TemporaryDirectory[str] | None = None
        self._held = 0

    def hold(self, size: int) -> bool:
        """Tell whether so many more bytes may be kept in memory while others are read, and count them."""
        fits = self._held + size <= HELD_BYTES
        self._held += size if fits else 0
        return fits

    def fetch(self, url: str) -> Path:
        """Copy a file at a URL; the copy is gone once this object is closed."""
        with self._explain_full_disk():
            if self._copies is None:
                self._copies = tempfile.TemporaryDirectory(dir=self._directory, prefix=".demur-")
        folder = Path(self._copies.name)
        return copy_to_folder(url, folder, len(list(folder.iterdir())))

    def add_array(self, shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterator[Part]) -> IO[bytes]:
        """Write an array part by part, in any order; return the spool's file, positioned at its first byte.

        Parameters
        ----------
        shape, dtype
            Of the array, which is written in C order.
        parts
            Slices of the array, one for each axis, and the values there.
        """
        file, offset = self._begin()
        with self._explain_full_disk():
            file.truncate(offset + count_bytes(shape, dtype))
            for place, values in parts:
                # Mapped for one part at a time: pages that are mapped count as memory of the process.
                whole = np.memmap(file, dtype, "r+", offset, shape)
                whole[place] = values
                whole.flush()
                del whole
        file.seek(offset)
        return file

    def add_rows(self, label: str, blocks: Iterator[np.ndarray], *, precision: str = "") -> FileArray:
        """Write the rows of one member, block by block: (inputs, classes) of one type."""
        file, offset = self._begin()
        rows, columns, dtype = 0, 0, np.dtype(np.float64)
        for block in blocks:
            with self._explain_full_disk():
                file.write(np.ascontiguousarray(block).data)
                file.flush()
            rows, columns, dtype = rows + len(block), block.shape[1], block.dtype
        shape = (rows, columns)
        return FileArray(label, file, shape, dtype, offset=offset, precision=precision)

    def check_room(self, label: str, size: int, packed: int) -> None:
        """Raise a `StoreError` unless there is room for what so many bytes of a file unpack to."""
        folder = self._directory or Path(tempfile.gettempdir())
        try:
            check_expansion(packed, size)
            check_disk(size, folder)
        except ValueError as error:
            raise StoreError(f"{label}: expected predictions that can be unpacked, got {error}") from error
        except OSError:  # A folder that is missing is told when the file is made.
            return

    def add_bytes(self, source: IO[bytes]) -> IO[bytes]:
        """Copy all of `source`; return the spool's file, positioned at the first byte of the copy."""
        file, offset = self._begin()
        while piece := source.read(1 << 20):
            with self._explain_full_disk():
                file.write(piece)
                file.flush()
        file.seek(offset)
        return file

    def close(self) -> None:
        """Free the space."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a full disk, once more
                self._file.close()
            self._file = None
        if self._copies is not None:
            self._copies.cleanup()

    def _begin(self) -> tuple[IO[bytes], int]:
        """Move to the first page boundary after what was written, where a map can begin."""
        if self._file is None:
            with self._explain_full_disk():
                self._file = tempfile.TemporaryFile(dir=self._directory, prefix=".demur-")  # noqa: SIM115
        end = self._file.seek(0, 2)
        return self._file, self._file.seek(end + -end % mmap.ALLOCATIONGRANULARITY)

    @contextlib.contextmanager
    def _explain_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self._directory or tempfile.gettempdir()}: expected room for a temporary file, got: "
                f"{error.strerror or error}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
