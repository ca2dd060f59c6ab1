"""A study: its stages put together, planned, run, and its results laid out."""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur.report import page
from demur.report.contents import gather_contents
from demur.report.run_folder import read_run
from demur.reproduce.stages import Say, Stage, Stages, copied, write_text
from demur.reproduce.study import evaluation
from demur.reproduce.study.config import Config
from demur.reproduce.study.encoding import Encoding
from demur.reproduce.study.inputs import Inputs
from demur.reproduce.study.methods import Methods
from demur.reproduce.study.people import people_entropy
from demur.reproduce.study.scoring import RULES, Scoring
from demur.stores import read_columns, write_columns

_TABLES = ("table1", "table2")
_SHOWN = ("input", "id", "label", "prediction", "deployed")
_REPORTED = ("pairwise", "average", "reverse")


class Study:
    """A study in a folder.

    Parameters
    ----------
    config
        The settings.
    data
        The folder that their paths start from.
    out
        The folder of the run; what is there already is not done again.
    command
        What the run was started by, for its record.
    say
        Called with a line when a stage begins.
    """

    def __init__(
        self, config: Config, data: Path, out: Path, *, command: str = "", say: Say = lambda line: None
    ) -> None:
        self.config, self.out, self.command = config, out, command
        self.stages = Stages(out, say)
        self.inputs = Inputs(config, data)
        self.encoding = Encoding(config, self.inputs, self.stages)
        self.methods = Methods(self.encoding)
        self.scoring = Scoring(self.methods)

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """How many inputs each scored set has."""
        return {name: self.inputs.rows(name).size for name in self.config.scored}

    @functools.cached_property
    def tasks(self) -> dict[str, list[evaluation.Task]]:
        """The sections of the tables."""
        masks = {name: self.inputs.mask(name) for name in self.config.derived}
        return evaluation.tasks(self.config, self.sizes, masks)

    def stage(self, table: str) -> Stage:
        """Return the last stage of a table."""
        scoring = [self.scoring.stage(name) for name in self.config.methods]
        people = self.config.people if table == "table2" else None
        rules = [self.scoring.rules(name) for name in self.config.methods] if people else []
        facts = {
            "splits": self.config.splits, "seed": self.config.seed, "names": list(self.config.methods),
            "people": people, "sets": {n: s.get("stand_in_for") for n, s in self.config.sets.items()},
        }  # fmt: skip
        return Stage(
            f"evaluate/{table}", lambda folder: self.evaluate(table, folder), facts, [*scoring, *rules],
            seconds=5.0 * len(self.config.methods) * len(self.tasks[table]), megabytes=1,
        )  # fmt: skip

    def check(self) -> None:
        """Raise a `ValueError` of one line unless all that the settings name is there and fits."""
        if "images" in self.config.sets["id"]:
            from demur.reproduce import pictures

            for name, images in self.inputs.sets.items():
                published = self.config.sets[name].get("published", False)
                pictures.check(images, any_count=not published, labelled=name in ("id", "train"))
        for name in self.config.sets:
            if name not in self.config.derived:
                self.inputs.rows(name)
        if self.inputs.labels("id") is None:
            raise ValueError("[sets.id]: expected labels, found none")
        if self.config.people:
            people_entropy(self.inputs, self.config.people)
        self.tasks  # noqa: B018  (reads the masks)

    def run(self, tables: tuple[str, ...] = _TABLES) -> None:
        """Do what is not done yet, and lay out the results."""
        with self.stages.alone():
            for stage in [*map(self.stage, tables), self.report()]:
                place = self.stages.made(stage)
                for file in sorted(path for path in place.rglob("*") if path.is_file()):
                    copied(file, self.out / file.relative_to(place))

    # --- results ---------------------------------------------------------------------------------

    def scored(self) -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Return all columns by method and set."""
        return {
            method: {
                name: read_columns(self.stages.made(self.scoring.stage(method)) / f"{name}.npz")
                for name in self.config.scored
            }
            for method in self.config.methods
        }

    def evaluate(self, table: str, folder: Path) -> None:
        """Write a table and what belongs to it."""
        scored, tasks = self.scored(), self.tasks[table]
        sections = [evaluation.section(task, scored) for task in tasks]
        found = evaluation.table_of(sections)
        files = {
            f"{table}.md": found.markdown() + "\n",
            f"{table}.tex": found.latex() + "\n",
            f"{table}.txt": "\n".join(
                "\t".join(each.replace("\n", " ") for each in row) for row in found.cells()
            ),
            f"{table}-figures.csv": evaluation.figures_csv(sections),
            f"{table}-comparisons.csv": evaluation.comparisons_csv(sections),
            f"{table}-cells.csv": evaluation.cells_csv(tasks, scored),
        }
        if table == "table2":
            files["accuracy.csv"] = evaluation.accuracy_csv(scored)
            if self.config.people:
                entropy = people_entropy(self.inputs, self.config.people)
                files["people.csv"] = evaluation.people_csv(entropy, self.aleatoric(scored))
        for name, text in files.items():
            write_text(folder / name, text)

    def aleatoric(self, scored: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
        """Return the aleatoric part of each input of `id` by method and rule."""
        found = {}
        for method in self.config.methods:
            place = self.stages.made(self.scoring.rules(method))
            rules = {rule: read_columns(place / f"id-{rule}.npz")["pairwise_aleatoric"] for rule in RULES}
            found[method] = {"log": scored[method]["id"]["pairwise_aleatoric"], **rules}
        return found

    def report(self) -> Stage:
        """Return the stage that lays scores out as `demur report` reads them, with its pages."""
        scoring = [self.scoring.stage(name) for name in self.config.methods]
        # Both tables share the report, whichever was asked for first.
        facts = {name: value for name, value in self.facts().items() if name != "command"}
        return Stage("report", self.lay_out, facts, scoring, seconds=60, megabytes=20)

    def lay_out(self, place: Path) -> None:
        """Write scores, facts and pages into a folder."""
        scored, facts = self.scored(), self.facts()
        for method, by_set in scored.items():
            for name, columns in by_set.items():
                _write_scores(place / method / f"{name}.npz", columns)
        _write_page(place, facts)
        for name, task in self.drawn():
            for method, by_set in scored.items():
                known, positive = np.concatenate(task.known), task.positive
                for file, rows in (("id", known), (name, positive)):
                    part = {column: values[rows] for column, values in by_set["id"].items()}
                    _write_scores(place / name / method / f"{file}.npz", part)
            _write_page(place / name, {**facts, "title": f"{self.config.title}: {task.name}"})

    def drawn(self) -> Iterator[tuple[str, evaluation.Task]]:
        """Yield the sets that are drawn from `id`, with their tasks."""
        others = [name for name in self.config.sets if name not in ("id", "train")]
        for name, task in zip(others, self.tasks["table1"], strict=True):
            if name in self.config.derived:
                yield name, task

    def facts(self) -> dict[str, Any]:
        """Return where the run comes from."""
        import torch

        versions = {
            "demur": demur.__version__, "python": platform.python_version(), "numpy": np.__version__,
            "torch": torch.__version__,
        }  # fmt: skip
        return {
            "title": self.config.title, "command": self.command, "seed": self.config.seed,
            "versions": versions, "config": self.config.name, "note": self.config.note,
            "sizes": {name: self.inputs.rows(name).size for name in self.config.sets if name not in
                      self.config.derived},
            "sets": {n: {k: s[k] for k in ("paper", "stand_in_for", "called") if k in s}
                     for n, s in self.config.sets.items()},
            "methods": self.config.methods,
        }  # fmt: skip


def _write_scores(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write the columns that a report shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = {
        name: values
        for name, values in columns.items()
        if name in _SHOWN or name.rpartition("_")[0] in _REPORTED
    }
    write_columns(path, shown, force=True)


def _write_page(place: Path, facts: Mapping[str, Any]) -> None:
    """Write the report of scores that are laid out, and where they come from."""
    write_text(place / "run.json", json.dumps(facts, indent=1) + "\n")
    page.write_page(gather_contents(read_run(place)), place / "report.html")
