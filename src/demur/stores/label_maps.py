"""True classes of pixels in files, read an image at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from demur.stores.array_files import open_array
from demur.stores.errors import StoreError
from demur.stores.file_stamps import stamp
from demur.stores.member_files import MemberFile
from demur.stores.paths import split_name
from demur.stores.spool import Spool
from demur.stores.urls import find_url, show_place
from demur.stores.zarr_arrays import is_zarr


class LabelMaps:
    """Labels of pixels, (inputs, height, width), or with other axes of pixels.

    Parameters
    ----------
    written
        A file of one array, such as .npy or .zarr, here or at a URL; `file.npz:name` for one of several.
    shape
        How many inputs there are, then how many pixels each has.
    spool
        Where files that cannot be mapped are unpacked to.
    """

    def __init__(self, written: str, shape: Sequence[int], spool: Spool) -> None:
        place, name = split_name(written)
        path, self.shape = Path(place), tuple(shape)
        url = None if is_zarr(path) else find_url(path)
        local = path if url is None else spool.fetch(url)
        array = open_array(local, name, spool)
        if array.shape != self.shape or array.dtype.kind not in "biu":
            raise StoreError(
                f"{show_place(path)}: expected labels of pixels, integers of shape {self.shape}, got "
                f"{array.dtype} of {array.shape}"
            )
        self.dtype = np.dtype(np.uint8) if array.dtype.kind == "b" else array.dtype.newbyteorder("=")
        self._file = MemberFile(local, path, written, (array,), None, None, 0)

    def read(self, image: int) -> np.ndarray:
        """Return the labels of one image, (height, width)."""
        pixels = math.prod(self.shape[1:])
        found = self._file.read(range(1), slice(image * pixels, (image + 1) * pixels))
        return found.reshape(self.shape[1:]).astype(self.dtype)

    def describe(self) -> list[object]:
        """Return the name, size and time of the file, as JSON can hold them."""
        return [self._file.label, stamp(self._file.place)]
