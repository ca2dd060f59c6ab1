"""One temporary file for what cannot be mapped: tables and compressed archives, unpacked once."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np

from demur.stores.arrays import FileArray, StoreError


class Spool:
    """A file without a name, which ends with this object or this process, however that ends.

    Parameters
    ----------
    directory
        Where it takes its room; None for the system's directory of temporary files.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None

    def add_rows(self, label: str, blocks: Iterator[np.ndarray], *, precision: str = "") -> FileArray:
        """Write the rows of one member, block by block: (inputs, classes) of one type."""
        file, offset = self._begin()
        rows, columns, dtype = 0, 0, np.dtype(np.float64)
        for block in blocks:
            file.write(np.ascontiguousarray(block).data)
            rows, columns, dtype = rows + len(block), block.shape[1], block.dtype
        file.flush()
        shape = (rows, columns)
        return FileArray(label, file, shape, dtype, offset=offset, precision=precision)

    def add_bytes(self, source: IO[bytes]) -> IO[bytes]:
        """Copy all of `source`; returns the spool's file, standing at the first byte of it."""
        file, offset = self._begin()
        shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        file.seek(offset)
        return file

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> tuple[IO[bytes], int]:
        """Stand behind all that was written, where a page and so a map can begin."""
        if self._file is None:
            try:
                self._file = tempfile.TemporaryFile(dir=self._directory, prefix=".demur-")  # noqa: SIM115
            except OSError as error:
                raise StoreError(
                    f"{self._directory or tempfile.gettempdir()}: expected room for a temporary "
                    f"file, got: {error.strerror or error}"
                ) from error
        end = self._file.seek(0, 2)
        return self._file, self._file.seek(end + -end % mmap.ALLOCATIONGRANULARITY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
