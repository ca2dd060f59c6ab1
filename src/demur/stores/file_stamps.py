"""What tells whether files were changed between a run that was interrupted and the one that resumes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demur.stores.member_files import MemberFile
from demur.stores.urls import find_url


def stamp_files(sources: Sequence[MemberFile]) -> list[list[Any]]:
    """Return names, shapes, sizes and times of the files of members, as JSON can hold them."""
    found = []
    for each in sources:
        layout = [len(each.members), *each.batch, each.classes, each.axis, each.class_axis]
        found.append([each.label, *layout, stamp(each.place)])
    return found


def stamp(path: Path) -> list[int] | None:
    """Return the size and time of a file, or of a store's metadata; None at a URL, which may not tell."""
    if find_url(path) is not None:
        return None
    seen = os.stat(path / "zarr.json" if path.is_dir() else path)
    return [seen.st_size, seen.st_mtime_ns]
