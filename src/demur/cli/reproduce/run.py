"""What the commands of all studies in stages share: options, the plan, the run and the results page."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import new_table, print_table, say

if TYPE_CHECKING:
    from demur.reproduce.runner import Study

Out = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder of the run. An interrupted run resumes there.")
]
Seed = Annotated[int, typer.Option(min=0, help="Fixes all draws, fits and splits.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and run nothing.")]
Docs = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also write the study's section of this results page.")
]


def run_command(study: Study, *, dry_run: bool, docs: Path | None) -> None:
    """Print the plan, run what is missing, and print where the results are."""
    from demur.reproduce.runner import run_study, write_page

    _print_plan(study)
    if dry_run:
        return
    files = run_study(study, functools.partial(print, file=sys.stderr, flush=True))
    if docs is not None:
        write_page(study, docs)
        files.append(docs)
    say()
    if study.shown is not None:
        say((study.folder / study.shown).read_text("utf-8"))
    for path in files:
        say(path)


def _print_plan(study: Study) -> None:
    """Print all stages with their state, and the time and disk space that those to be run will take."""
    from demur.reproduce.runner import plan_study

    lines = plan_study(study)
    table = new_table("stage", "state", "minutes", "MB", texts=2)
    for line in lines:
        estimates = ["", ""]
        if line.minutes is not None and line.megabytes is not None:
            estimates = [f"{line.minutes:.1f}", f"{line.megabytes:,.0f}"]
        table.add_row(line.name, line.state, *estimates)
    minutes = sum(line.minutes or 0 for line in lines)
    megabytes = sum(line.megabytes or 0 for line in lines)
    print_table(f"Plan: about {minutes:.0f} minutes on two free cores and {megabytes:,.0f} MB to go", table)


def require_packages(*names: str, purpose: str = "the study") -> None:
    """Raise a `ValueError` unless the packages are installed that something trains and draws with."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"expected {name}, which {purpose} trains or draws with, found none: "
                "pip install 'demur[report,torch]'"
            )
