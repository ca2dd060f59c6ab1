"""Files in the IDX format, in which MNIST and similar data sets are published."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np


def read_idx(path: Path) -> np.ndarray:
    """Return the array in an IDX file of unsigned bytes, gzipped or not.

    The format is two zero bytes, the type, the number of axes, the sizes, and the values.
    """
    whole = path.read_bytes()
    if whole[:2] == b"\x1f\x8b":
        try:
            whole = gzip.decompress(whole)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"{path}: expected a gzipped IDX file, got one that cannot be read: {error}"
            ) from error
    axes = whole[3] if len(whole) > 3 else 0
    sizes = [int.from_bytes(whole[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    start = 4 + 4 * axes
    if not axes or whole[:3] != b"\x00\x00\x08" or len(whole) != start + math.prod(sizes):
        raise ValueError(
            f"{path}: expected an IDX file of unsigned bytes, got something else or a part of one"
        )
    return np.frombuffer(whole, np.uint8, offset=start).reshape(sizes)
