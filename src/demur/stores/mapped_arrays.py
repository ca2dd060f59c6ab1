"""Arrays that lie in a file, mapped into memory for as long as a piece of them is read.

Mapped pages count towards the memory of the process, and every map keeps its file open. So nothing
stays mapped: a reader maps the file, copies a piece and drops the map. Memory stays small however
large the file is, and a thousand files need one descriptor at a time.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from demur.reading import count_bytes
from demur.stores.errors import EmptyError, StoreError
from demur.stores.paths import explain_memory, open_binary

_WINDOW_BYTES = 64 << 20
"""Most bytes of a file between the first and the last number that are copied at a time."""


class StoredArray(Protocol):
    """An array in a file; `decode` turns a piece of it into numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as in NumPy."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the raw values."""
        ...

    @property
    def precision(self) -> str:
        """The type that the numbers came in, which says how exact they are."""
        ...

    def map(self) -> np.ndarray:
        """Map the raw values; drop them soon."""
        ...


@dataclass(frozen=True)
class FileArray:
    """An array of plain numbers at an offset of a file.

    Attributes
    ----------
    label
        What messages call it.
    path
        The file, or one that is open and has no name.
    shape, dtype, fortran, offset
        The layout of the array. bfloat16 is given as 16-bit unsigned integers.
    precision
        The type that the numbers came in, if that is another: "bfloat16", which NumPy lacks, for
        16-bit integers; "float32" for text.
    """

    label: str
    path: Path | IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False
    offset: int = 0
    precision: str = ""
    _stamp: tuple[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_numbers(self.label, self.dtype, self.shape)
        size, _ = stamp = self._read_stamp()
        if size < self.end:
            raise StoreError(
                f"{self.label}: expected {self.end} bytes, as its header says, got {size}: "
                "the file is cut short, write it again"
            )
        object.__setattr__(self, "_stamp", stamp)
        object.__setattr__(self, "precision", self.precision or self.dtype.name)

    @property
    def end(self) -> int:
        """The offset in the file just after the last byte of the array."""
        return self.offset + count_bytes(self.shape, self.dtype)

    def map(self) -> np.ndarray:
        """Map the raw values, read-only. The map goes when the last view of it goes."""
        if isinstance(self.path, Path):
            if self._read_stamp() != self._stamp:
                raise StoreError(f"{self.label}: the file was changed while it was read, try again")
            with open_binary(self.path) as file:
                return self._map(file)
        return self._map(self.path)

    def _map(self, file: IO[bytes]) -> np.ndarray:
        begin = self.offset - self.offset % mmap.ALLOCATIONGRANULARITY
        with explain_memory(self.label if not isinstance(self.path, Path) else self.path):
            mapped = mmap.mmap(file.fileno(), self.end - begin, access=mmap.ACCESS_READ, offset=begin)
        order = "F" if self.fortran else "C"
        return np.ndarray(self.shape, self.dtype, mapped, self.offset - begin, order=order)

    def _read_stamp(self) -> tuple[int, int]:
        seen = os.stat(self.path) if isinstance(self.path, Path) else os.fstat(self.path.fileno())
        return seen.st_size, seen.st_mtime_ns


class TensorArray:
    """A tensor that `load` maps from a file, in about a millisecond each time."""

    def __init__(self, label: str, load: Callable[[], Any]) -> None:
        import torch

        self._load = load
        tensor = load()
        self.precision = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise StoreError(f"{label}: expected a dense tensor, got another kind: make it dense")
        try:
            raw = self.map()
        except (TypeError, RuntimeError) as error:
            raise StoreError(
                f"{label}: expected a tensor of floating-point numbers, got {tensor.dtype}: "
                "convert it to float32"
            ) from error
        self.shape, self.dtype = raw.shape, raw.dtype
        check_numbers(label, self.dtype, self.shape)

    def map(self) -> np.ndarray:
        """Map the raw values. The map goes when the last view of it goes."""
        import torch

        tensor = self._load().detach()
        if self.precision == "bfloat16":
            return tensor.view(torch.int16).numpy().view(np.uint16)
        return tensor.numpy()


def check_numbers(label: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise a `StoreError` unless the array holds real numbers, and at least one."""
    if dtype.hasobject:
        raise StoreError(
            f"{label}: expected numbers, got Python objects, which are never unpickled: "
            "save an array of numbers"
        )
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        raise StoreError(
            f"{label}: expected numbers, got 2-byte records without a type (NumPy loses that of "
            "bfloat16): save as .safetensors, or as float32"
        )
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise StoreError(
            f"{label}: expected float16, bfloat16, float32, float64 or integers, got {dtype}: convert it"
        )
    if min(shape, default=0) < 1:
        raise EmptyError(
            f"{label}: expected (inputs, classes) or (members, inputs, classes), none of them 0, "
            f"got shape {shape}"
        )


def decode(raw: np.ndarray, precision: str) -> np.ndarray:
    """Return raw values as floating-point numbers, without loss.

    Parameters
    ----------
    raw
        A piece of a stored array, in any byte order.
    precision
        That of the array. With "bfloat16", integers are the upper halves of float32 numbers.

    Returns
    -------
    numpy.ndarray
        Of float16, float32 or float64, in this machine's byte order; a copy, so the map may go.
    """
    if precision == "bfloat16":
        wide = _copy(raw, np.dtype(np.uint32))
        wide <<= 16
        return wide.view(np.float32)
    return _copy(raw, raw.dtype.newbyteorder("=") if raw.dtype.kind == "f" else np.dtype(np.float64))


def _copy(raw: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Copy to another type, in C order, with at most a window of a mapped file in memory at a time."""
    base: Any = raw
    while isinstance(base, np.ndarray):
        base = base.base
    found = np.empty(raw.shape, dtype)
    _copy_windows(raw, found, base if hasattr(mmap, "MADV_DONTNEED") else None)
    return found


def _copy_windows(source: np.ndarray, target: np.ndarray, base: object) -> None:
    extents = [stride * (length - 1) for stride, length in zip(source.strides, source.shape, strict=True)]
    axis = int(np.argmax(extents))
    if extents[axis] <= _WINDOW_BYTES:
        target[...] = source
        return
    step = _WINDOW_BYTES // source.strides[axis]
    step = step if step > 8 else 1  # a copy goes over the last axis first: few classes take longest
    for start in range(0, source.shape[axis], step):
        part = (slice(None),) * axis + (slice(start, start + step),)
        _copy_windows(source[part], target[part], base)
        # Up to 2 MB around each number that is read are mapped with it: in Fortran order, where the classes
        # of an input lie far apart, nearly the whole file.
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)
