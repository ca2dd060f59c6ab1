"""Arrays from an .npz file, by the names that a study expects."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from demur.reading import open_regular


def read_arrays(path: Path, keys: Mapping[str, str], optional: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Read arrays by name, without running any code from the file.

    Parameters
    ----------
    path
        The file.
    keys
        The required arrays, each with a description for the error message.
    optional
        Arrays that are read if the file has them.

    Raises
    ------
    ValueError
        The file is missing, is not an .npz, or lacks an array.
    """
    if not path.is_file() or not zipfile.is_zipfile(path):
        what = "a file that is not one" if path.is_file() else "no such file"
        raise ValueError(f"{path}: expected an .npz with {', '.join(keys)}, got {what}")
    with open_npz(path) as file:
        missing = [key for key in keys if key not in file.files]
        if missing:
            raise ValueError(
                f"{path}: expected {missing[0]!r}, {keys[missing[0]]}, got {', '.join(file.files)}"
            )
        return {key: file[key] for key in (*keys, *(key for key in optional if key in file.files))}


@contextlib.contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """Yield the arrays of a file by name, read when they are asked for; a damaged one is a ValueError."""
    damaged = f"{path}: expected arrays of numbers, got arrays that cannot be read"
    with open_regular(path) as opened:
        try:
            with np.load(opened, allow_pickle=False) as file:
                yield file
        except ValueError as error:
            if str(path) in str(error):  # a caller's own
                raise
            raise ValueError(f"{damaged}: {error}") from error
        except Exception as error:  # a damaged archive fails in NumPy and zipfile in many ways
            raise ValueError(f"{damaged}: {error}") from error
