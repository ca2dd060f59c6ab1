"""The tables as a study: its stages put together, and its results laid out."""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur.atomic import write_text
from demur.report import page
from demur.report.contents import gather_contents
from demur.report.run_folder import read_run
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.paper_tables import evaluation, method_comparison
from demur.reproduce.studies.paper_tables.config import TablesConfig
from demur.reproduce.studies.paper_tables.encoding_stages import EncodingStages
from demur.reproduce.studies.paper_tables.input_sets import InputSets
from demur.reproduce.studies.paper_tables.methods import Methods
from demur.reproduce.studies.paper_tables.people_labels import compute_label_entropy
from demur.reproduce.studies.paper_tables.scoring_stages import RULES, ScoringStages
from demur.reproduce.studies.paper_tables.section import compose_section
from demur.stores import read_columns, write_columns

_TABLES = ("table1", "table2")
_REPORTED_COLUMNS = ("input", "id", "label", "prediction", "deployed")
_REPORTED_MEASURES = ("pairwise", "average", "reverse")


class TablesPipeline:
    """The stages of the tables in the folder of a run.

    Parameters
    ----------
    config
        The settings.
    data
        The folder that their paths are relative to.
    out
        The folder of the run; what is done there is not done again.
    command
        The command that started the run, for its record.
    """

    def __init__(self, config: TablesConfig, data: Path, out: Path, *, command: str = "") -> None:
        self.config, self.out, self.command = config, out, command
        self.stages = Stages(out)
        self.inputs = InputSets(config, data)
        self.encoding = EncodingStages(config, self.inputs, self.stages)
        self.methods = Methods(self.encoding)
        self.scoring = ScoringStages(self.methods)

    def describe(self, tables: Sequence[str] = _TABLES, shown: str | None = None) -> Study:
        """Check that everything the settings name is there and fits; return the study of some tables.

        Parameters
        ----------
        tables
            "table1", "table2" or both; the section of the results page needs both.
        shown
            The file of the results that is printed at the end.
        """
        self._check()
        compared = [self.plan_comparison()] if self.config.reference and "table1" in tables else []
        return Study(
            name=f"tables-{self.config.name}",
            stages=self.stages,
            last=[*map(self.plan_table, tables), *compared, self.plan_report()],
            compose_section=compose_section,
            shown=shown,
        )

    def _check(self) -> None:
        """Raise a `ValueError` of one line unless everything that the settings name is there and fits."""
        if "images" in self.config.sets["id"]:
            from demur.reproduce.data.image_folders import check_images
            from demur.reproduce.data.imagenet import check_published

            for name, images in self.inputs.image_sets.items():
                check = check_published if self.config.sets[name].get("published") else check_images
                check(images, labelled=name in ("id", "train"))
        for name in self.config.sets:
            if name not in self.config.derived:
                self.inputs.get_rows(name)
        if self.inputs.read_labels("id") is None:
            raise ValueError("[sets.id]: expected labels, found none")
        if self.config.people:
            compute_label_entropy(self.inputs, self.config.people)
        self.tasks  # noqa: B018  (reads the masks)

    @functools.cached_property
    def tasks(self) -> dict[str, list[evaluation.TableTask]]:
        """The tasks of each table."""
        sizes = {name: self.inputs.get_rows(name).size for name in self.config.scored}
        masks = {name: self.inputs.read_mask(name) for name in self.config.derived}
        return evaluation.list_tasks(self.config, sizes, masks)

    def plan_comparison(self) -> Stage:
        """Return the stage that compares every method with the reference."""
        scoring = [self.scoring.plan_scores(name) for name in self.config.methods]
        facts = {
            "splits": self.config.splits, "seed": self.config.seed, "reference": self.config.reference,
            "names": list(self.config.methods),
        }  # fmt: skip
        seconds = 5.0 * len(self.config.methods) * len(self.tasks["table1"])
        return Stage("evaluate/methods", self._write_comparison, facts, scoring, seconds, megabytes=1)

    def plan_table(self, table: str) -> Stage:
        """Return the stage that evaluates a table."""
        scoring = [self.scoring.plan_scores(name) for name in self.config.tabled]
        people = self.config.people if table == "table2" else None
        rules = [self.scoring.plan_rules(name) for name in self.config.tabled] if people else []
        facts = {
            "splits": self.config.splits, "seed": self.config.seed, "names": self.config.tabled,
            "people": people, "sets": {n: s.get("stand_in_for") for n, s in self.config.sets.items()},
        }  # fmt: skip
        return Stage(
            f"evaluate/{table}", lambda folder: self._write_table(table, folder), facts, [*scoring, *rules],
            seconds=5.0 * len(self.config.tabled) * len(self.tasks[table]), megabytes=1,
        )  # fmt: skip

    def plan_report(self) -> Stage:
        """Return the stage that lays out the scores as `demur report` reads them, with its pages."""
        scoring = [self.scoring.plan_scores(name) for name in self.config.tabled]
        # Both tables share the report, whichever command ran first.
        facts = {name: value for name, value in self._collect_facts().items() if name != "command"}
        return Stage("report", self._write_report, facts, scoring, seconds=60, megabytes=20)

    # --- results ---------------------------------------------------------------------------------

    def _read_scores(self, methods: Sequence[str]) -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Return all columns by method and set, of the sets that a method scored."""
        places = {method: self.stages.complete(self.scoring.plan_scores(method)) for method in methods}
        return {
            method: {
                name: read_columns(place / f"{name}.npz")
                for name in self.config.scored
                if (place / f"{name}.npz").exists()
            }
            for method, place in places.items()
        }

    def _write_comparison(self, folder: Path) -> None:
        """Write every method's figures beside those of the reference."""
        assert self.config.reference
        tasks = [*self.tasks["table1"], *self.tasks["table2"]]
        kinds = {name: given["kind"] for name, given in self.config.methods.items()}
        scored = self._read_scores(list(self.config.methods))
        rows = method_comparison.compare_methods(tasks, scored, kinds, self.config.reference)
        text = evaluation.format_csv(list(method_comparison.HEADER), rows)
        write_text(folder / method_comparison.FILE, text)
        own = {name: by_set for name, by_set in scored.items() if kinds[name] == "one-pass-network"}
        if own:
            write_text(folder / method_comparison.NETWORKS_FILE, evaluation.format_accuracy(own))

    def _write_table(self, table: str, folder: Path) -> None:
        """Write a table with its figures, comparisons and cells."""
        scored, tasks = self._read_scores(self.config.tabled), self.tasks[table]
        sections = [evaluation.evaluate_task(task, scored) for task in tasks]
        found = evaluation.build_table(sections)
        files = {
            f"{table}.md": found.markdown() + "\n",
            f"{table}.tex": found.latex() + "\n",
            f"{table}.txt": "\n".join(
                "\t".join(each.replace("\n", " ") for each in row) for row in found.cells()
            ),
            f"{table}-figures.csv": evaluation.format_figures(sections),
            f"{table}-comparisons.csv": evaluation.format_comparisons(sections),
            f"{table}-cells.csv": evaluation.format_cells(tasks, scored),
        }
        if table == "table2":
            files["accuracy.csv"] = evaluation.format_accuracy(scored)
            if self.config.people:
                entropy = compute_label_entropy(self.inputs, self.config.people)
                files["people.csv"] = evaluation.format_people(entropy, self._read_aleatoric(scored))
        for name, text in files.items():
            write_text(folder / name, text)

    def _read_aleatoric(self, scored: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
        """Return the aleatoric part of each input of `id` by method and rule."""
        found = {}
        for method in self.config.tabled:
            place = self.stages.complete(self.scoring.plan_rules(method))
            rules = {rule: read_columns(place / f"id-{rule}.npz")["pairwise_aleatoric"] for rule in RULES}
            found[method] = {"log": scored[method]["id"]["pairwise_aleatoric"], **rules}
        return found

    def _write_report(self, place: Path) -> None:
        """Write scores, facts and pages into a folder."""
        scored, facts = self._read_scores(self.config.tabled), self._collect_facts()
        for method, by_set in scored.items():
            for name, columns in by_set.items():
                _write_scores(place / method / f"{name}.npz", columns)
        _write_page(place, facts)
        for name, task in self._find_derived_tasks():
            for method, by_set in scored.items():
                known, positive = np.concatenate(task.known), task.positive
                for file, rows in (("id", known), (name, positive)):
                    part = {column: values[rows] for column, values in by_set["id"].items()}
                    _write_scores(place / name / method / f"{file}.npz", part)
            _write_page(place / name, {**facts, "title": f"{self.config.title}: {task.name}"})

    def _find_derived_tasks(self) -> Iterator[tuple[str, evaluation.TableTask]]:
        """Yield the sets that are drawn from `id`, with their tasks."""
        others = [name for name in self.config.sets if name not in ("id", "train")]
        for name, task in zip(others, self.tasks["table1"], strict=True):
            if name in self.config.derived:
                yield name, task

    def _collect_facts(self) -> dict[str, Any]:
        """Return the provenance of the run."""
        import torch

        versions = {
            "demur": demur.__version__, "python": platform.python_version(), "numpy": np.__version__,
            "torch": torch.__version__,
        }  # fmt: skip
        return {
            "title": self.config.title, "command": self.command, "seed": self.config.seed,
            "versions": versions, "config": self.config.name, "note": self.config.note,
            "sizes": {name: self.inputs.get_rows(name).size for name in self.config.sets if name not in
                      self.config.derived},
            "sets": {n: {k: s[k] for k in ("paper", "stand_in_for", "called") if k in s}
                     for n, s in self.config.sets.items()},
            "methods": self.config.methods, "reference": self.config.reference, "source": self.config.source,
        }  # fmt: skip


def _write_scores(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write the columns that a report shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = {
        name: values
        for name, values in columns.items()
        if name in _REPORTED_COLUMNS or name.rpartition("_")[0] in _REPORTED_MEASURES
    }
    write_columns(path, shown, force=True)


def _write_page(place: Path, facts: Mapping[str, Any]) -> None:
    """Write the report on the scores in a folder, and their provenance."""
    write_text(place / "run.json", json.dumps(facts, indent=1) + "\n")
    page.write_page(gather_contents(read_run(place)), place / "report.html")
