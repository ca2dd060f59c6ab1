"""Arrays from an .npz file, by the names that a study expects."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np


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
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in keys if key not in file.files]
        if missing:
            raise ValueError(
                f"{path}: expected {missing[0]!r}, {keys[missing[0]]}, got {', '.join(file.files)}"
            )
        try:
            return {key: file[key] for key in (*keys, *(key for key in optional if key in file.files))}
        except (zipfile.BadZipFile, EOFError, ValueError) as error:
            raise ValueError(
                f"{path}: expected arrays of numbers, got arrays that cannot be read: {error}"
            ) from error
