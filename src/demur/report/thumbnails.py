"""Thumbnails of inputs, all of a set in one PNG, written without an image library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

_LONGER_SIDE = 48  # pixels of the longer side
_SHORTEST_SIDE = 16


def make_sprite(images: np.ndarray, budget: int, *, longer: int = _LONGER_SIDE) -> dict[str, Any]:
    """Return pictures side by side as one data address.

    Parameters
    ----------
    images
        uint8, (inputs, height, width) or (inputs, height, width, 3).
    budget
        Bytes that the pixels may take before they are compressed: pictures are made smaller to fit, down to
        16 pixels.
    longer
        Pixels of the longer side, at most; it is shown as long.
    """
    channels = 3 if images.ndim == 4 else 1
    height, width = images.shape[1:3]
    side = min(max(height, width), longer)
    while (
        side > _SHORTEST_SIDE
        and len(images) * channels * side * side * height * width > budget * max(height, width) ** 2
    ):
        side -= 1
    small = shrink(images.reshape(len(images), height, width, channels), side)
    rows, columns = small.shape[1:3]
    sheet = small.transpose(1, 0, 2, 3).reshape(rows, len(images) * columns, channels)
    address = "data:image/png;base64," + base64.b64encode(encode_png(sheet)).decode()
    return {"image": address, "width": columns, "height": rows, "count": len(images), "shown": longer}


def shrink(images: np.ndarray, side: int) -> np.ndarray:
    """Return images whose longer side has at most so many pixels, each the mean of those it stands for."""
    height, width = images.shape[1:3]
    factor = min(1.0, side / max(height, width))
    for axis, size in ((1, max(1, round(height * factor))), (2, max(1, round(width * factor)))):
        length = images.shape[axis]
        if size < length:
            starts = np.arange(size) * length // size
            counts = np.diff(np.append(starts, length))
            sums = np.add.reduceat(images.astype(np.float64), starts, axis=axis)
            images = np.rint(sums / counts.reshape([-1 if k == axis else 1 for k in range(4)]))
    return images.astype(np.uint8)


def encode_png(pixels: np.ndarray) -> bytes:
    """Return (height, width, 1 or 3) pixels as a PNG file, the same bytes each time."""
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = flat
    rows[1:, 1:] -= flat[:-1]  # differences from the row above compress better; a 2 before the row says so
    rows[1:, 0] = 2

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
