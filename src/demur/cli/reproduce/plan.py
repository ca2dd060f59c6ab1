"""What commands of studies in stages share: options, the plan, the run, and the page of results."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import new_table, print_table

if TYPE_CHECKING:
    from demur.reproduce.planned import Planned
    from demur.reproduce.stages import Stage, Stages

Out = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder of the run; a run that was killed goes on.")
]
Seed = Annotated[int, typer.Option(min=0, help="Fixes all draws, fits and splits.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and do nothing.")]
Docs = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the section of this page of results, too.")
]

_MANY = 8
"""Stages of a kind beyond which they share a line of the plan."""


def carry_out(
    study: Planned, add_to_page: Callable[[list[Path], Path], None], *, dry_run: bool, docs: Path | None
) -> None:
    """Print the plan, or do what is left of it and print where the results are."""
    if dry_run:
        print_plan(study.stages, [study.last])
        return
    with study.stages.alone():
        files = study.run()
    if docs is not None:
        add_to_page(files, docs)
        files.append(docs)
    for path in files:
        print(path)


def print_plan(stages: Stages, last: Sequence[Stage]) -> None:
    """Print all stages with what they will take; many of one kind share a line."""
    from demur.reproduce.stages import in_order

    found = in_order(last)
    kinds = [stage.name.partition("/")[0] for stage in found]
    groups: dict[str, list[Stage]] = {}
    for kind, stage in zip(kinds, found, strict=True):
        groups.setdefault(kind if kinds.count(kind) > _MANY else stage.name, []).append(stage)
    table = new_table("stage", "state", "minutes", "MB", texts=2)
    minutes = megabytes = 0.0
    for name, members in groups.items():
        left = [stage for stage in members if stages.state(stage) != "done"]
        time, size = (sum(getattr(stage, what) or 0 for stage in left) for what in ("seconds", "megabytes"))
        minutes, megabytes = minutes + time / 60, megabytes + size
        alone = len(members) == 1
        state = stages.state(members[0]) if alone else f"{len(left)} of {len(members)} to do"
        table.add_row(name, state, *([f"{time / 60:.1f}", f"{size:,.0f}"] if left else ["", ""]))
    print_table(f"Plan: about {minutes:.0f} minutes on two free cores and {megabytes:,.0f} MB to go", table)


def require(*names: str) -> None:
    """Raise a `ValueError` unless everything is there that a study trains and draws with."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"expected {name}, which the study trains or draws with, found none: "
                "pip install 'demur[report,torch]'"
            )
