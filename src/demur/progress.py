"""A progress bar for long computations, on terminals and in notebooks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_NOTEBOOK_INTERVAL = 0.2
"""Seconds between two updates in a notebook, each of which is a message to the browser."""


@contextlib.contextmanager
def progress_bar(total: int | None, unit: str, *, hidden: bool = False) -> Iterator[Callable[[int], object]]:
    """Show how many of `total` (None: nobody knows) are done; in a pipe show nothing."""
    if not hidden and is_notebook():
        with _show_in_notebook(total, unit) as show:
            yield show
        return
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


def is_notebook() -> bool:
    """Tell whether this runs in the kernel of a notebook; IPython is not imported for the answer."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextlib.contextmanager
def _show_in_notebook(total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
    """Show a bar below the cell, and remove it at the end, as on a terminal.

    rich would need ipywidgets for this, and warns where they are not installed.
    """
    display: Any = sys.modules["IPython"].display
    shown = display.display(display.HTML(_draw_bar(0, total, unit)), display_id=True)
    last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _NOTEBOOK_INTERVAL:
            last = time.monotonic()
            shown.update(display.HTML(_draw_bar(done, total, unit)))

    try:
        yield show
    finally:
        shown.update(display.HTML(""))


def _draw_bar(done: int, total: int | None, unit: str) -> str:
    """Return a bar as HTML; without a total, the browser shows one that moves."""
    import html

    state = "" if total is None else f' value="{done}" max="{total}"'
    count = f"{done}" if total is None else f"{done}/{total}"
    return f"<progress{state}></progress> {count} {html.escape(unit)}"
