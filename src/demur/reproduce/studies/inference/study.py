"""The stages of the study, from the data sets to the results page."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from demur.atomic import open_file, write_text
from demur.posteriors.chains import diagnostics
from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.records import Records, convert_to_columns
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.inference import fidelity, figures, predictions, section, tables
from demur.reproduce.studies.inference.config import InferenceConfig
from demur.reproduce.studies.inference.methods import METHODS, REFERENCE, Fitted
from demur.reproduce.studies.inference.networks import Task, fit_noise, train_network
from demur.reproduce.studies.inference.problems import SETS, Source, read_source
from demur.stores import read_columns, write_columns

_VERSION = 2
"""Changes with any change of the code that changes what a fit or a comparison makes."""
_HALVES = ("half-0", "half-1")
"""The reference's chains in two halves, which are compared with each other."""
_NETWORK_METHOD = "trained network"


def describe_study(config: InferenceConfig, data: Path | None, out: Path, command: str = "") -> Study:
    """Read and check the data sets; return the study.

    Parameters
    ----------
    config
        The settings.
    data
        The folder that paths in the settings are relative to; None where no problem reads files.
    out
        The folder of the run.
    command
        The command line, for the results page.
    """
    if data is None and config.needs_data:
        raise ValueError(
            f"data: expected the folder of the data sets of {config.name!r}, got none: give --data"
        )
    sources = {name: read_source(given, data) for name, given in config.problems.items()}
    stages = Stages(out)
    compared = [
        _Fits(config, stages, name, source, seed).plan_comparison()
        for name, source in sources.items()
        for seed in range(config.seed, config.seed + config.seeds)
    ]
    facts = {"version": section.VERSION, "title": config.title, "command": command}
    make = partial(_write_results, config, stages, sources, compared, command)
    last = Stage("results", make, facts, compared, seconds=5, megabytes=1)
    return Study("inference", stages, [last], pictures={"inference-k.png": "k.png"}, shown="k.txt")


@dataclass(frozen=True)
class _Fits:
    """The stages of one problem with one seed."""

    config: InferenceConfig
    stages: Stages
    name: str
    source: Source
    seed: int

    def plan_comparison(self) -> Stage:
        """Return the stage that compares all methods with the reference."""
        start = self._plan_start()
        fits = {
            name: self._plan_fit(name, given, start)
            for name, given in self.config.methods.items()
            if self.source.classes or not METHODS[name].classes_only
        }
        make = partial(self._compare, start, fits)
        facts = {"version": _VERSION}
        return Stage(
            f"compare/{self.name}/{self.seed}", make, facts, [*fits.values()], seconds=3, megabytes=0.1
        )

    def _plan_start(self) -> Stage:
        """Return the stage that trains the network, and the noise of numbers."""
        design = dataclasses.asdict(self.config.design)
        facts = {
            "version": _VERSION, "data": self.source.mark, "problem": self.config.problems[self.name],
            "seed": self.seed, "network": design,
        }  # fmt: skip
        return Stage(f"start/{self.name}/{self.seed}", self._train, facts, seconds=2, megabytes=0.1)

    def _plan_fit(self, name: str, given: dict[str, Any], start: Stage) -> Stage:
        """Return the stage that fits a method, and keeps its predictions."""
        facts = {"version": _VERSION, "settings": given}
        make = partial(self._fit, name, given, start)
        seconds = METHODS[name].seconds * (1 if self.source.classes else METHODS[name].slower_for_numbers)
        return Stage(
            f"fit/{self.name}/{name}/{self.seed}", make, facts, [start], seconds=seconds, megabytes=1
        )

    def _train(self, folder: Path) -> None:
        with use_one_thread():
            begun = time.process_time()
            task = Task(self.source.draw(self.seed), self.config.design, self.seed)
            if not self.source.classes:
                task = dataclasses.replace(task, noise=fit_noise(task))
            network = task.make_network(self.seed)
            passes = train_network(task, network, self.seed)
        facts = {"method": _NETWORK_METHOD, "noise": json.dumps(task.noise)}
        write_tensors(folder / "network.safetensors", network.state_dict(), facts)
        _write_costs(folder, passes, time.process_time() - begun)

    def _read_task(self, start: Stage) -> Task:
        """Return what methods are fitted to."""
        tensors, facts = read_tensors(self.stages.complete(start) / "network.safetensors", _NETWORK_METHOD)
        problem = self.source.draw(self.seed)
        return Task(problem, self.config.design, self.seed, json.loads(facts["noise"]), tensors)

    def _fit(self, name: str, given: dict[str, Any], start: Stage, folder: Path) -> None:
        task = self._read_task(start)
        with use_one_thread():
            begun = time.process_time()
            fitted = METHODS[name].fit(task, **given)
            spent = time.process_time() - begun
            begun = time.process_time()
            found = {each: fitted.summarise(task.problem.sets[each], task.noise) for each in SETS}
            scored = time.process_time() - begun
        kept = {f"{each}|{key}": value for each in SETS for key, value in found[each].items()}
        if name == REFERENCE:
            kept |= _keep_halves(fitted, task)
        with open_file(folder / "kept.npz") as file:
            np.savez(file, **kept)  # pyright: ignore[reportArgumentType]
        inputs = sum(map(len, task.problem.sets.values()))
        _write_costs(folder, fitted.passes, spent, 1000 * scored / inputs)
        facts = dict(fitted.facts or {}) | (_diagnose(fitted, task) if name == REFERENCE else {})
        write_text(folder / "facts.json", json.dumps(facts, indent=1) + "\n")

    def _compare(self, start: Stage, fits: dict[str, Stage], folder: Path) -> None:
        """Write the figures of all methods, a row for each method, set and figure."""
        task = self._read_task(start)
        kept = {name: read_kept(self.stages.complete(stage) / "kept.npz") for name, stage in fits.items()}
        rows: Records = []

        def add(method: str, each: str, found: dict[str, float]) -> None:
            where = {"problem": self.name, "seed": self.seed, "method": method, "set": each}
            rows.extend(where | {"figure": figure, "value": value} for figure, value in found.items())

        for each in SETS:
            halves = [kept[REFERENCE][f"{half}|{each}"] for half in _HALVES]
            add(tables.FLOOR, each, fidelity.compare_predictions(halves[0], halves[1], task.noise))
            for name, own in kept.items():
                if name != REFERENCE:
                    compared = fidelity.compare_predictions(own[each], kept[REFERENCE][each], task.noise)
                    add(name, each, compared)
                if "score" not in own[each]:
                    means = {f"{part}|mean": float(own[each][part].mean()) for part in predictions.PARTS}
                    add(name, each, means)
        for name, own in kept.items():
            if "score" not in own["in"]:
                add(name, "in", fidelity.judge_average(own["in"], task.problem.truth, task.noise))
        trained = _read_costs(self.stages.complete(start))
        for name, stage in fits.items():
            done = self.stages.complete(stage)
            costs = _read_costs(done)
            if METHODS[name].uses_trained:
                for key in ("passes", "fit_seconds"):
                    costs[key] += trained[key]
            add(name, "in", costs | json.loads((done / "facts.json").read_text("utf-8")))
        write_columns(folder / "figures.csv", convert_to_columns(rows), force=True)


def read_kept(path: Path) -> dict[str, predictions.Kept]:
    """Return what a fit kept, by set of inputs, or half and set."""
    found: dict[str, predictions.Kept] = {}
    with np.load(path) as file:
        for name in file.files:
            each, _, key = name.rpartition("|")
            found.setdefault(each, {})[key] = file[name]
    return found


def _keep_halves(fitted: Fitted, task: Task) -> dict[str, np.ndarray]:
    """Return what is kept of each half of the reference's chains."""
    found = {}
    for each in SETS:
        outputs, _ = predictions.read_members(fitted.posterior, task.problem.sets[each])
        chains = np.split(outputs, fitted.posterior.chains)
        middle = len(chains) // 2
        for half, part in zip(_HALVES, (chains[:middle], chains[middle:]), strict=True):
            kept = predictions.summarise_members(np.concatenate(part), None, task.noise)
            found |= {f"{half}|{each}|{key}": value for key, value in kept.items()}
    return found


def _diagnose(fitted: Fitted, task: Task) -> dict[str, float]:
    """Return R-hat and effective size of the reference's predictions of all test inputs."""
    outputs, _ = predictions.read_members(fitted.posterior, np.concatenate([*task.problem.sets.values()]))
    if task.noise is None:
        outputs = np.exp(outputs - np.logaddexp.reduce(outputs, axis=-1, keepdims=True))
    draws = outputs.reshape(fitted.posterior.chains, -1, *outputs.shape[1:])
    rhat, size = diagnostics.split_rhat(draws), diagnostics.effective_size(draws)
    return {
        "rhat_median": float(np.median(rhat)), "rhat_95": float(np.quantile(rhat, 0.95)),
        "rhat_worst": float(rhat.max()), "size_median": float(np.median(size)),
        "size_05": float(np.quantile(size, 0.05)), "size_least": float(size.min()),
    }  # fmt: skip


def _write_costs(folder: Path, passes: float, fit: float, score: float = 0.0) -> None:
    """Write what a fit cost; seconds are those of the processor, and differ between two runs."""
    costs = {"passes": passes, "fit_seconds": fit, "score_seconds_per_1000": score}
    write_text(folder / "costs.json", json.dumps(costs) + "\n")


def _read_costs(folder: Path) -> dict[str, float]:
    return json.loads((folder / "costs.json").read_text("utf-8"))


def _write_results(
    config: InferenceConfig,
    stages: Stages,
    sources: dict[str, Source],
    compared: list[Stage],
    command: str,
    folder: Path,
) -> None:
    """Write the tables, the figure and the section of the results page."""
    columns = [read_columns(stages.complete(stage) / "figures.csv") for stage in compared]
    whole = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    write_columns(folder / "seeds.csv", whole, force=True)
    found = tables.average_seeds(whole)
    write_columns(folder / "figures.csv", convert_to_columns(found), force=True)
    for problem in sources:
        write_text(folder / f"{problem}.tex", tables.format_latex(found, problem))
    write_text(folder / "k.txt", tables.format_text(found))
    figures.write_figure(found, {name: each.title for name, each in sources.items()}, folder)
    write_text(folder / "section.md", section.compose_section(found, config, sources, command))
