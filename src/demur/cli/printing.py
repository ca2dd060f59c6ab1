"""What the commands print: errors, tables, JSON."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from demur.control_characters import escape_controls

if TYPE_CHECKING:
    from rich.table import Table

    from demur.report import table_forms
    from demur.scoring.score_table import ScoreTable


_LONGEST_NAME = 40
"""Letters of a name that are shown in a table."""
_NO_NAMES = ("task", "status", "label", "prediction", "prediction_name")
"""Columns of text that do not say which input a row is about."""


def mend_streams() -> None:
    """Make printing safe: a closed stream takes anything, and characters it cannot encode are escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def bad_output_exits() -> Iterator[None]:
    """Exit with one line and code 2 where standard output cannot be written; code 1 if its reader left."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise  # of a file, which standard output is not
        if error.errno != errno.EPIPE:
            complain(f"standard output: cannot be written: {error.strerror or error}")
        # What is still held would fail once more when Python ends.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1 if error.errno == errno.EPIPE else 2) from error


def say(text: object = "") -> None:
    """Print text on stdout; of names in it, no control character reaches the terminal."""
    print(escape_controls(str(text), keep="\n"))


def complain(message: object) -> None:
    """Print one line on stderr, whatever the message looks like."""
    try:
        line = escape_controls(_as_options(" ".join(str(message).split())))
        print("demur:", line, file=sys.stderr, flush=True)
    except OSError:  # nobody is left to be told, and what is still held would change the exit code
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


_OPTIONS = {"Bernoulli": "--binary", "MultiLabel": "--multilabel", "Points": "--points"}
"""Options that stand for classes of predictions."""


def _as_options(message: str) -> str:
    """Return a message with Python arguments such as `logits=` spelt as options of the command line.

    Examples
    --------
    >>> _as_options("probs must not be negative. For log-probabilities pass log_probs=.")
    'probs must not be negative. For log-probabilities pass --log-probs.'
    >>> _as_options("Got 168 at [0]. For numbers without a variance use demur.Points.")
    'Got 168 at [0]. For numbers without a variance use --points.'
    """
    found = re.compile(r"(?<=\bpass )([a-z_]+)=(?=[.,;]?(?:\s|$))")
    message = found.sub(lambda match: f"--{match[1].replace('_', '-')}", message)
    return re.sub(r"(?<=\buse )demur\.(\w+)", lambda match: _OPTIONS.get(match[1], match[0]), message)


@contextlib.contextmanager
def bad_input_exits() -> Iterator[None]:
    """Exit with one line and code 2 where reading, scoring or writing raises an error about the input."""
    try:
        yield
    except OSError as error:
        sys.stdout.flush()  # fails again if that was it, and is told by `bad_output_exits`
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
    except (ValueError, TypeError) as error:
        complain(error)
    except MemoryError as error:
        why = str(error).rstrip(".")
        got = f", got: {why}" if why else ""
        complain(f"expected more memory{got}: give fewer inputs at once, or use a machine with more")
    else:
        return
    raise typer.Exit(2)


def new_table(*headings: str, texts: int = 0) -> Table:
    """Return an empty table; the first columns are texts, the others numbers."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    class PlainTable(Table):
        """A table whose texts are shown as they are: no markup, and control characters written out."""

        def add_row(self, *cells: Any, **options: Any) -> None:
            plain = [Text(escape_controls(c, keep="\n")) if isinstance(c, str) else c for c in cells]
            super().add_row(*plain, **options)

    # Narrow, so that eight columns fit a terminal of 80.
    table = PlainTable(box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        shown = Text(escape_controls(heading, keep="\n"))
        table.add_column(shown, justify="left" if index < texts else "right", no_wrap=True)
    return table


def print_table(title: str, table: Table) -> None:
    """Print a table under its title, as wide as it is where no terminal sets a limit."""
    from rich.console import Console

    say(f"\n{title}")
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    # On a narrower terminal lines are better broken than columns cut down to nothing.
    console.width = max(console.width, 8 * len(table.columns))
    console.print(table, crop=False)


def format_number(value: Any) -> str:
    """Return a number with four significant digits, infinity as inf.

    Examples
    --------
    >>> format_number(0.123456), format_number("inf")
    ('0.1235', 'inf')
    """
    return f"{float(value):.4g}"


def count_things(number: int, thing: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count_things(1, "member"), count_things(3, "class")
    ('1 member', '3 classes')
    """
    ending = "" if number == 1 else "es" if thing.endswith("s") else "s"
    return f"{number} {thing}{ending}"


def print_summary(scores: ScoreTable, unit: str) -> None:
    """Print mean, median and maximum over inputs for each measure and part."""
    table = new_table("measure", "part", "mean", "median", "max", "infinite", texts=2)
    for measure, parts in scores.summary().items():
        for index, (part, values) in enumerate(parts.items()):
            cells = [format_number(values[key]) for key in ("mean", "median", "max")]
            last = index == len(parts) - 1
            table.add_row(
                measure if index == 0 else "",
                part,
                *cells,
                str(values["infinite"]),
                end_section=last,
            )
    print(", ".join(count_things(number, thing) for thing, number in scores.sizes.items()))
    print_table(f"Uncertainty in {unit}", table)


def print_top(scores: ScoreTable, count: int, unit: str) -> None:
    """Print the most uncertain inputs: all of the first measure, the epistemic part of others."""
    first, *others = scores.measures
    names = [f"{first}_{part}" for part in ("total", "aleatoric", "epistemic")]
    names += [f"{measure}_epistemic" for measure in others]
    chosen = scores.top(count)
    columns = scores.columns
    places = [name for name in columns if name in ("input", "task", "row", "column", "position")]
    # Whose name, beside its number: the first column of text says it.
    texts = [name for name, values in columns.items() if values.dtype.kind == "U" and name not in _NO_NAMES]
    extra = {name: columns[name] for name in texts[:1]}
    guess = next((each for each in ("prediction_name", "prediction") if each in columns), None)
    if guess is not None:  # images whose maps are elsewhere have none
        extra = {"prediction": columns[guess], **extra}
    table = new_table(*places, *extra, *(name.replace("_", "\n") for name in names))
    inputs = columns["input"][chosen]
    # Half of its number names another input, so other columns give way on a narrow terminal.
    table.columns[0].min_width = max(len(str(index)) for index in (*inputs, "input"))
    for index in chosen:
        cells = [format_number(columns[name][index]) for name in names]
        shown = [each[index] for each in extra.values()]
        shown = [
            format_number(each) if isinstance(each, float) else str(each)[:_LONGEST_NAME] for each in shown
        ]
        table.add_row(*(str(columns[name][index]) for name in places), *shown, *cells)
    what = "most uncertain input" if len(chosen) == 1 else f"{len(chosen)} most uncertain inputs"
    print_table(f"The {what}, by {scores.ranking}, in {unit}", table)


def print_object(content: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    import json

    print(json.dumps(content, allow_nan=False))


def print_figures(table: table_forms.Table, form: str, title: str) -> None:
    """Print a table of figures: "text" for people, else "latex", "markdown" or "csv"."""
    if form != "text":
        say(getattr(table, form)())
        return
    from rich.text import Text

    head, *body = table.cells()
    shown = new_table(*head, texts=len(table.corner))
    for index, (cells, row) in enumerate(zip(body, table.rows, strict=True)):
        names = len(cells) - len(row.cells)
        last = index + 1 == len(body) or table.rows[index + 1].section != row.section
        bold = [False] * names + [cell.best and cell.wins for cell in row.cells]
        texts = [Text(c, style="bold" if best else "") for c, best in zip(cells, bold, strict=True)]
        shown.add_row(*texts, end_section=last)
    print_table(title, shown)
    for note in table.notes("*"):
        say(note)
