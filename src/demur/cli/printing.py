"""What the commands print: complaints, progress, tables."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from demur.stores import ScoreTable


def complain(message: object) -> None:
    """Print one line on stderr, whatever the message looks like."""
    print("demur:", " ".join(str(message).split()), file=sys.stderr)


@contextlib.contextmanager
def bad_input_exits() -> Iterator[None]:
    """Make one line and exit code 2 of what reading, scoring and writing raise for bad input."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
    except (ValueError, TypeError) as error:
        complain(error)
    else:
        return
    raise typer.Exit(2)


@contextlib.contextmanager
def progress_bar(total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show on a terminal how many of `total` are done; in a pipe show nothing."""
    if not sys.stderr.isatty():
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


def stdout() -> Console:
    """Return a console on stdout that never breaks a table in a pipe, where nobody sees a width."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160, soft_wrap=False, highlight=False)


def number(value: Any) -> str:
    """Write a number for people: four digits, infinity as inf.

    Examples
    --------
    >>> number(0.123456), number("inf")
    ('0.1235', 'inf')
    """
    return f"{float(value):.4g}"


def summary_table(scores: ScoreTable, unit: str) -> Table:
    """Mean, median and maximum over inputs by measure and part."""
    from rich.table import Table

    table = Table(title=f"Uncertainty in {unit}, over {scores.inputs} inputs", title_justify="left")
    for heading in ("measure", "part"):
        table.add_column(heading)
    for heading in ("mean", "median", "max", "infinite"):
        table.add_column(heading, justify="right")
    for measure, parts in scores.summary().items():
        for index, (part, values) in enumerate(parts.items()):
            cells = [number(values[key]) for key in ("mean", "median", "max")]
            last = index == len(parts) - 1
            table.add_row(
                measure if index == 0 else "",
                part,
                *cells,
                str(values["infinite"]),
                end_section=last,
            )
    return table


def top_table(
    scores: ScoreTable, count: int, unit: str, extra: Mapping[str, Any] | None = None
) -> Table:
    """List the most uncertain inputs: all of the first measure, the epistemic part of others."""
    from rich.table import Table

    first, *others = scores.measures
    names = [f"{first}_{part}" for part in ("total", "aleatoric", "epistemic")]
    names += [f"{measure}_epistemic" for measure in others]
    chosen = scores.top(count)
    table = Table(
        title=f"The {len(chosen)} most uncertain inputs, by {first}_epistemic, in {unit}",
        title_justify="left",
    )
    extra = extra or {}
    for heading in ("input", "prediction", *extra, *(name.replace("_", " ", 1) for name in names)):
        table.add_column(heading, justify="right")
    for index in chosen:
        cells = [number(scores.columns[name][index]) for name in names]
        shown = [scores.columns["prediction"][index], *(each[index] for each in extra.values())]
        table.add_row(str(index), *(str(each) for each in shown), *cells)
    return table
