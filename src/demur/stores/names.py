"""What the user writes for files: a path, `file.npz:name`, or a glob."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from demur.stores.arrays import StoreError
from demur.stores.formats import NAMED


def locate(names: Sequence[str | os.PathLike[str]]) -> list[tuple[Path, str | None]]:
    """Find the files that names and globs mean, with the array in each where one is named.

    Examples
    --------
    >>> locate(["run.npz:logits", "member.npy"])
    [(PosixPath('run.npz'), 'logits'), (PosixPath('member.npy'), None)]
    """
    found: list[tuple[Path, str | None]] = []
    for written in [os.fspath(each) for each in names]:
        path, name = split_name(written)
        if os.path.exists(path) or not glob.has_magic(path):
            found.append((Path(path), name))
            continue
        matches = sorted(glob.glob(path, recursive=True), key=natural)
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
                f"{path}: expected each file once, got it twice: a member counts twice by its weight"
            )
        taken.add(name)
    return found


def split_name(written: str) -> tuple[str, str | None]:
    """Return the file and the array or column in it, as `file:name` says; either may have colons in it.

    Examples
    --------
    >>> split_name("run.npz:logits"), split_name("run.npz:layer:logits"), split_name("run:1.npy")
    (('run.npz', 'logits'), ('run.npz', 'layer:logits'), ('run:1.npy', None))
    """
    splits = [(written[: colon.start()], written[colon.end() :]) for colon in re.finditer(":(?!$)", written)]
    if os.path.exists(written):
        return written, None
    # Also where the format holds one array: opening it says so better than "no such file".
    for path, name in reversed(splits):
        if os.path.isfile(path):
            return path, name
    for path, name in splits:
        if Path(path).suffix.lower() in NAMED:
            return path, name
    return written, None


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that counts: member_9 before member_10.

    Examples
    --------
    >>> sorted(["m10.npy", "m9.npy"], key=natural)
    ['m9.npy', 'm10.npy']
    """
    return [
        (0, int(part), part) if part.isdecimal() else (1, 0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]
