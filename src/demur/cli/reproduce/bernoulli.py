"""`demur reproduce bernoulli`: posteriors over the parameter of a coin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import bad_input_exits, format_number, new_table, print_table, say

if TYPE_CHECKING:
    from demur.report.bernoulli_figure import Panel


def bernoulli(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write everything.")],
    force: Annotated[
        bool, typer.Option("--force", help="Write into a directory that has files in it.")
    ] = False,
) -> None:
    """Compare three measures on posteriors over the parameter of a coin.

    Writes two tables (.csv), two figures (.pdf, .png) and a page to try others on (explorer.html).
    Takes a few seconds and needs the extra report.
    """
    with bad_input_exits():
        from demur.reproduce.studies.bernoulli import run_bernoulli

        found = run_bernoulli(out, force=force)
    _print_panels("Uncertainty in nats", found.study)
    _print_panels("Identical under the current measure (average), not under the others", found.twins)
    say()
    for path in found.files:
        say(path)


def _print_panels(title: str, panels: Sequence[Panel]) -> None:
    """Print the uncertainties of posteriors, a section for each."""
    table = new_table("posterior", "measure", "total", "aleatoric", "epistemic", texts=2)
    for panel in panels:
        for index, (measure, parts) in enumerate(panel.parts.items()):
            last = index == len(panel.parts) - 1
            name = "" if index else panel.name
            table.add_row(name, measure, *(_format_number(value) for value in parts), end_section=last)
    print_table(title, table)


def _format_number(value: float) -> str:
    """Return a number, with infinity as ∞ if the terminal can show it."""
    text = format_number(value)
    if text != "inf":
        return text
    try:
        "∞".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return text
    return "∞"
