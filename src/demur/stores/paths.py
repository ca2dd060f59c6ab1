"""Paths that users write (a file, `file.npz:name`, or a glob), and opening the files that they name."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from demur.reading import describe_file, open_regular
from demur.stores.errors import StoreError
from demur.stores.urls import find_url, list_matches

NAMED_SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".zarr")
"""Suffixes of files that hold arrays by name, as in `file.npz:name`."""


def find_files(names: Sequence[str | os.PathLike[str]]) -> list[tuple[Path, str | None]]:
    """Find the files of paths and globs, with the array in each where one is named.

    Examples
    --------
    >>> find_files(["run.npz:logits", "member.npy"])
    [(PosixPath('run.npz'), 'logits'), (PosixPath('member.npy'), None)]
    """
    found: list[tuple[Path, str | None]] = []
    for written in [os.fspath(each) for each in names]:
        path, name = split_name(written)
        if os.path.exists(path) or not glob.has_magic(path):
            found.append((Path(path), name))
            continue
        remote = find_url(path)
        matches = list_matches(remote) if remote else glob.glob(path, recursive=True)
        matches.sort(key=natural_key)
        if not matches:
            raise StoreError(f"{written}: expected files that match, found none: check the path")
        found.extend((Path(match), name) for match in matches)
    if not found:
        raise StoreError("files: expected at least one, got none")
    seen: dict[str, set[str | None]] = {}
    for path, name in found:
        taken = seen.setdefault(os.path.realpath(path), set())
        # Without a name a file holds one array, so any name in it is that array again.
        if name in taken or None in taken or (taken and name is None):
            raise StoreError(
                f"{path}: expected each file once, got it twice: a weight of 2 counts a member twice"
            )
        taken.add(name)
    return found


def split_name(written: str) -> tuple[str, str | None]:
    """Return the file and the array or column in it, as `file:name` says; either may have colons in it.

    Examples
    --------
    >>> split_name("run.npz:logits"), split_name("run.npz:layer:logits"), split_name("run:1.npy")
    (('run.npz', 'logits'), ('run.npz', 'layer:logits'), ('run:1.npy', None))
    >>> split_name("s3://bucket/run.zarr:logits")
    ('s3://bucket/run.zarr', 'logits')
    """
    if os.path.exists(written):
        return written, None
    begin = written.find("://") + 3 if find_url(written) else 0
    colons = re.compile(":(?!$)").finditer(written, begin)
    splits = [(written[: colon.start()], written[colon.end() :]) for colon in colons]
    # Also where the format holds one array: opening it says so better than "no such file".
    for path, name in reversed(splits):
        if os.path.isfile(path):
            return path, name
    for path, name in splits:
        if Path(path).suffix.lower() in NAMED_SUFFIXES:
            return path, name
    return written, None


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that counts: member_9 before member_10.

    Examples
    --------
    >>> sorted(["m10.npy", "m9.npy"], key=natural_key)
    ['m9.npy', 'm10.npy']
    """
    return [
        (0, int(part), part) if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading; raise a `StoreError` where that fails."""
    try:
        return open_regular(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # also of a name with a null character in it
        raise StoreError(f"{path}: expected a file, got {error}") from error


@contextlib.contextmanager
def explain_memory(path: Path | str) -> Iterator[None]:
    """Raise a `StoreError` that names the file, its size and what to do, where it takes too much memory."""
    try:
        yield
    except MemoryError as error:
        raise StoreError(
            f"{describe_file(path)}: expected as much memory as it takes, got too little: "
            "split the file, or use a machine with more memory"
        ) from error
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise StoreError(
            f"{describe_file(path)}: cannot be mapped: {error.strerror}: raise the limit of address space "
            "(ulimit -v), or split the file"
        ) from error


def make_directory(path: Path, *, force: bool = False) -> None:
    """Make a directory for results; raise a `StoreError` if it has files in it, unless `force`."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path}: expected a directory, got a file: choose another name")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise StoreError(
            f"{path}: expected an empty or new directory, got one with files in it: "
            "choose another name or add --force"
        )
    path.mkdir(parents=True, exist_ok=True)
