"""The one runner of studies: plan, run what is missing, lay out the results, and write the results page.

A study is described by a `Study`: its stages (each with a key of its settings and data), the files that it
writes, and its section of the results page. `demur.cli.reproduce.run` prints what happens here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demur.atomic import copy_file
from demur.reproduce.results_page import add_section
from demur.reproduce.stages import Stage, Stages, order_stages


def _read_section(folder: Path) -> str:
    """Return the section that the last stage of a study wrote."""
    return (folder / "section.md").read_text("utf-8")


@dataclass(frozen=True)
class Study:
    """What a study does; building one checks its settings and data, and runs nothing.

    Attributes
    ----------
    name
        Of its section of the results page.
    stages
        The stages kept in the run's folder.
    last
        The stages whose files are the results; they are copied to the run's folder.
    compose_section
        Returns the section of the results page, in Markdown, from the run's folder.
    pictures
        The figures of that section: name on the page, and file of the results.
    shown
        A text file of the results that is printed at the end.
    """

    name: str
    stages: Stages
    last: Sequence[Stage]
    compose_section: Callable[[Path], str] = _read_section
    pictures: Mapping[str, str] = field(default_factory=dict)
    shown: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.stages.folder


@dataclass(frozen=True)
class PlanLine:
    """A stage of a plan, or several of one kind.

    Attributes
    ----------
    name
        Of the stage, or of the kind.
    state
        "done", "begun", "to do", or how many of a kind are left.
    minutes, megabytes
        Estimates of what is left; None where nothing is.
    """

    name: str
    state: str
    minutes: float | None
    megabytes: float | None


_MOST_LINES_OF_A_KIND = 8
"""More stages of one kind than this share a line of the plan."""


def plan_study(study: Study) -> list[PlanLine]:
    """Return what a run would do, in order; many stages of one kind share a line."""
    found = order_stages(study.last)
    kinds = [stage.name.partition("/")[0] for stage in found]
    groups: dict[str, list[Stage]] = {}
    for kind, stage in zip(kinds, found, strict=True):
        groups.setdefault(kind if kinds.count(kind) > _MOST_LINES_OF_A_KIND else stage.name, []).append(stage)
    lines = []
    for name, members in groups.items():
        left = [stage for stage in members if study.stages.get_state(stage) != "done"]
        state = f"{len(left)} of {len(members)} to do"
        if len(members) == 1:
            state = study.stages.get_state(members[0])
        minutes, megabytes = _estimate_minutes(left), sum(stage.megabytes or 0 for stage in left)
        lines.append(PlanLine(name, state, minutes, megabytes) if left else PlanLine(name, state, None, None))
    return lines


def run_study(study: Study, say: Callable[[str], object] = lambda line: None) -> list[Path]:
    """Run the stages that are not done, and return the files of the results.

    Parameters
    ----------
    study
        The study. After an interruption, a second run resumes where the first one stopped.
    say
        Called with a line of progress before each stage.
    """
    with study.stages.lock():
        ordered = order_stages(study.last)
        for number, stage in enumerate(ordered, 1):
            state = study.stages.get_state(stage)
            if state != "done":
                left = _estimate_minutes([each for each in ordered if study.stages.get_state(each) != "done"])
                resumed = ", resumed" if state == "begun" else ""
                say(f"{number} of {len(ordered)}, about {left:.0f} min left: {stage.name}{resumed}")
            study.stages.complete(stage)
        return _copy_results(study)


def write_page(study: Study, page: Path) -> None:
    """Write the study's section of the results page, from a run that is done."""
    pictures = {name: study.folder / file for name, file in study.pictures.items()}
    add_section(page, study.name, study.compose_section(study.folder), pictures)


def _copy_results(study: Study) -> list[Path]:
    """Copy the files of the last stages to the run's folder; return their paths there."""
    found = []
    for stage in study.last:
        done = study.stages.find_folder(stage)
        for path in sorted(each for each in done.rglob("*") if each.is_file()):
            target = study.folder / path.relative_to(done)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_file(path, target)
            found.append(target)
    return found


def _estimate_minutes(stages: Sequence[Stage]) -> float:
    return sum(stage.seconds or 0 for stage in stages) / 60
