"""A progress bar for long computations, on terminals only."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(total: int | None, unit: str, *, hidden: bool = False) -> Iterator[Callable[[int], object]]:
    """Show on a terminal how many of `total` (None: nobody knows) are done; in a pipe show nothing."""
    # A process whose standard error was closed has none at all; a dumb terminal cannot move its cursor.
    dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    if hidden or dumb or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(unit, total=total)
        yield lambda done: progress.update(task, completed=done)
