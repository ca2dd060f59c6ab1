"""Reads files that may be damaged or hostile: their content, or a `ValueError` that says what is wrong.

The messages are ends of sentences, without the name of the file: callers add it, and what they expected.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

_PIECE_BYTES = 1 << 20
_TRUSTED_BYTES = 256 << 20
"""Numbers may unpack to so many bytes, however small they are packed."""
_TRUSTED_EXPANSION = 200
"""Beyond that, they may unpack to so many times their packed size: numbers that differ never do."""
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading; a pipe or a device, which could be waited for or read forever, is refused."""
    wrong = ValueError("a pipe or a device: write it to a file first")
    # Looked at before, since opening some devices does something, and after, since it may be another by then.
    if not _is_regular(os.stat(path)):
        raise wrong
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115
    if not _is_regular(os.fstat(file.fileno())):
        file.close()
        raise wrong
    return file


def _is_regular(found: os.stat_result) -> bool:
    # Opening a directory raises an error that says so.
    return stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON file in UTF-8, as `parse_json` does."""
    with open_regular(path) as file:
        return parse_json(file.read().decode("utf-8-sig"))


def parse_json(text: str | bytes) -> Any:
    """Return what JSON says; keys that come twice, and nesting deeper than Python goes, are refused.

    Examples
    --------
    >>> parse_json('{"a": 1}')
    {'a': 1}
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' twice
    """
    try:
        return json.loads(text, object_pairs_hook=_collect_pairs)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _collect_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} twice")
        found[name] = value
    return found


@contextlib.contextmanager
def open_saved(path: str | os.PathLike[str], writer: str, form: str) -> Iterator[dict[str, np.ndarray]]:
    """Give the arrays that ``writer`` saved in this form; a fault is a ValueError that names the file."""
    expected = f"Expected a file written by {writer}. Got {os.fspath(path)!r}"
    if not Path(path).exists():
        raise FileNotFoundError(f"{expected}, which does not exist.")
    try:
        with open_regular(path) as file:
            content = read_arrays(file)
        if str(content.pop("format")) != form:
            raise ValueError("another format")
        yield content
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError) as error:
        raise ValueError(f"{expected}: {error}.") from None


def read_arrays(file: IO[bytes]) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz archive, by name.

    Every entry is read to its end, so that its checksum is compared, and no further than its header says.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = list_entries(archive)
            size = sum(info.file_size for info in entries.values())
            check_expansion(sum(info.compress_size for info in entries.values()), size)
            check_memory(size)
            return {name: _read_entry(archive, info) for name, info in entries.items()}
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # zipfile, and what unpacks for it, fail in many ways
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"a damaged or foreign file ({error})") from error


def list_entries(archive: zipfile.ZipFile, *, others: bool = False) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of an archive, by name; a name that comes twice is refused.

    So is an entry that is no array, unless there may be `others`.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            if others:
                continue
            raise ValueError(f"{name!r} in it, which is no array")
        if name in found:
            raise ValueError(f"the array {name!r} twice")
        found[name] = info
    return found


def read_array(file: IO[bytes]) -> np.ndarray:
    """Return the array of an .npy file."""
    shape, fortran, dtype = read_array_header(file)
    begin, size = file.tell(), count_bytes(shape, dtype)
    there = file.seek(0, os.SEEK_END) - begin
    if there != size:
        raise ValueError(f"{there} bytes of numbers, where its header says {size}: write it with numpy.save")
    check_memory(size)
    file.seek(begin)
    return np.ndarray(shape, dtype, bytearray(file.read(size)), order="F" if fortran else "C")


def _read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        shape, fortran, dtype = read_array_header(member)
        size = count_bytes(shape, dtype)
        check_entry_size(info, member.tell() + size)
        content = bytearray(size)
        view, done = memoryview(content), 0
        while piece := member.read(min(_PIECE_BYTES, size - done) or 1):  # past the end, for the checksum
            view[done : done + len(piece)] = piece
            done += len(piece)
    return np.ndarray(shape, dtype, content, order="F" if fortran else "C")


def check_entry_size(info: zipfile.ZipInfo, expected: int) -> None:
    """Raise unless an entry of an archive is as long as the header of its array says."""
    if info.file_size != expected:
        raise ValueError(
            f"{info.file_size} bytes in {info.filename!r}, where its header says {expected}: the archive is "
            "damaged, write it again"
        )


def check_expansion(packed: int, size: int) -> None:
    """Raise where so few bytes would unpack to so many that somebody must have meant it."""
    if size > max(_TRUSTED_BYTES, _TRUSTED_EXPANSION * packed):
        raise ValueError(
            f"{describe_bytes(packed)} that unpack to {describe_bytes(size)}, as in files made to fill a "
            "disk or memory: if you trust it, write it without compression, by numpy.save or numpy.savez"
        )


def read_array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether in Fortran order, and dtype of the .npy file that begins where `file` stands."""
    try:
        shape, fortran, dtype = _HEADER_READERS[np.lib.format.read_magic(file)](file)
    except (zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:  # a damaged header fails in Python's parser and in NumPy in many ways
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError("something else or a damaged header: write it with numpy.save") from error
    if dtype.hasobject:
        raise ValueError("Python objects, which are never unpickled: save an array of numbers")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError("a damaged header: write it with numpy.save")
    return shape, fortran, dtype


def count_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of an array, exactly: a damaged header may hold any numbers."""
    return dtype.itemsize * int(np.prod(shape, dtype=object))


def check_memory(size: int) -> None:
    """Raise unless there is memory for so many bytes, as far as the system tells."""
    there = _count_available_memory()
    if there is not None and size > there:
        raise ValueError(
            f"{describe_bytes(size)} to load into the {describe_bytes(there)} of memory that are available: "
            "split the file, or use a machine with more memory"
        )


def check_disk(size: int, folder: str | os.PathLike[str]) -> None:
    """Raise unless a folder has room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise ValueError(
            f"{describe_bytes(size)} to unpack into {os.fspath(folder)}, which has {describe_bytes(free)} "
            "left: write the file without compression, or set TMPDIR to a folder with more room"
        )


def _count_available_memory() -> int | None:
    """Return the bytes that Linux says are available; None elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":") for line in file)
        return int(found["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError, IndexError):
        return None


def describe_bytes(number: float) -> str:
    """Return a size as people write it.

    Examples
    --------
    >>> describe_bytes(612), describe_bytes(612_000), describe_bytes(1.5e9)
    ('612 bytes', '612 kB', '1.5 GB')
    """
    if number < 1000:
        return f"{number} bytes"
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 999.5:
            return f"{number:.3g} {unit}"
    return f"{number / 1000:.4g} TB"


def describe_file(path: str | os.PathLike[str]) -> str:
    """Return a path with the size of its file, for messages."""
    try:
        return f"{os.fspath(path)} ({describe_bytes(Path(path).stat().st_size)})"
    except OSError:
        return os.fspath(path)
