"""What commands of studies in stages share: the plan of `--dry-run`, the run, and the page of results."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from demur.cli.printing import new_table, print_table

if TYPE_CHECKING:
    from demur.experiments.study import Study


def carry_out(
    study: Study, add_to_page: Callable[[list[Path], Path], None], *, dry_run: bool, docs: Path | None
) -> None:
    """Print the plan, or do what is left of it and print where the results are."""
    if dry_run:
        print_plan(study)
        return
    with study.stages.alone():
        files = study.run()
    if docs is not None:
        add_to_page(files, docs)
        files.append(docs)
    for path in files:
        print(path)


def print_plan(study: Study) -> None:
    """Print all stages, with estimated time and disk."""
    from demur.experiments.stages import in_order

    table = new_table("stage", "state", "seconds", "MB", texts=2)
    left = size = 0.0
    for stage in in_order([study.last]):
        state, seconds, megabytes = study.stages.state(stage), stage.seconds or 0.0, stage.megabytes or 0.0
        table.add_row(stage.name, state, f"{seconds:.0f}", f"{megabytes:.0f}")
        if state != "done":
            left, size = left + seconds, size + megabytes
    print_table(f"Plan for {study.stages.folder}", table)
    print(f"Left to do: about {left / 60:.0f} minutes on two free cores, {size:.0f} MB of disk")


def require(*names: str) -> None:
    """Raise a `ValueError` unless everything is there that a study trains and draws with."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"expected {name}, which the study trains or draws with, found none: "
                "pip install 'demur[report,torch]'"
            )
