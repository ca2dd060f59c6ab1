"""What `--dry-run` prints: the stages of a study, what is done, and what the rest will take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from demur.cli.printing import new_table, print_table

if TYPE_CHECKING:
    from demur.experiments.stages import Stage, Stages


def print_plan(stages: Stages, last: Stage) -> None:
    """Print the stages up to the last one, with estimated time and disk."""
    from demur.experiments.stages import in_order

    table = new_table("stage", "state", "seconds", "MB", texts=2)
    left = size = 0.0
    for stage in in_order([last]):
        state, seconds, megabytes = stages.state(stage), stage.seconds or 0.0, stage.megabytes or 0.0
        table.add_row(stage.name, state, f"{seconds:.0f}", f"{megabytes:.0f}")
        if state != "done":
            left, size = left + seconds, size + megabytes
    print_table(f"Plan for {stages.folder}", table)
    print(f"Left to do: about {left / 60:.0f} minutes on two free cores, {size:.0f} MB of disk")
