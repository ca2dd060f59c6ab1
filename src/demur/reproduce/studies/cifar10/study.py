"""The stages of the study, from the images to the results page."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur.atomic import open_file, write_text
from demur.checksums import sum_array
from demur.posteriors import DeepEnsemble
from demur.reproduce.data import cifar10
from demur.reproduce.networks.resnet20_frn import resnet20_frn
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.records import convert_to_columns
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.cifar10 import judging, section
from demur.reproduce.studies.cifar10.inputs import Inputs
from demur.reproduce.studies.cifar10.methods import (
    Schedules,
    SwagSchedule,
    fit_chain,
    fit_ensemble,
    fit_swag,
)
from demur.reproduce.studies.inference.predictions import read_members
from demur.stores import write_columns

_VERSION = 1
"""Changes with any change of the code that changes what a fit makes."""
_BATCH = 100
"""Test images that are predicted at a time."""
_SECONDS_PER_IMAGE, _SECONDS_PER_PREDICTION = 0.003, 0.001
"""Of one core, for the plan: for a step with gradients, and without."""


def describe_study(
    data: Path, reference: Path, out: Path, *, schedules: Schedules, seed: int = 0, processes: int = 1,
    command: str = "",
) -> Study:  # fmt: skip
    """Check the files; return the study.

    Parameters
    ----------
    data
        The folder of the images; see `demur.reproduce.data.cifar10`.
    reference
        An .npz with `cifar10`, (test images, classes): the reference's average prediction.
    out
        The folder of the run.
    schedules
        Of all methods.
    seed
        Of all fits.
    processes
        How many members of the ensemble are trained at a time, with one thread each.
    command
        The command line, for the results page.
    """
    inputs = Inputs(data, reference, cifar10.check_files(data))
    fits = _Fits(inputs, Stages(out), schedules, seed, processes)
    ensemble = fits.plan(
        "ensemble", fits.fit_ensemble, schedules.ensemble, members=schedules.ensemble.members
    )
    kept = {"ensemble": ensemble}
    if schedules.swag is not None:
        make_swag = functools.partial(fits.fit_swag, ensemble, schedules.swag)
        kept["swag"] = fits.plan("swag", make_swag, schedules.swag, ensemble, members=schedules.swag.samples)
    samples = schedules.chain.samples
    kept["csg-hmc"] = fits.plan("csg-hmc", fits.fit_chain, schedules.chain, members=samples)
    facts = {"version": section.VERSION, "command": command, "reference": sum_array(inputs.reference_probs)}
    make = functools.partial(_write_results, fits, kept, command)
    last = Stage("results", make, facts, [*kept.values()], seconds=5, megabytes=1)
    return Study("cifar10", fits.stages, [last], shown="table.txt")


@dataclass(frozen=True)
class _Fits:
    """The stages that fit and predict."""

    inputs: Inputs
    stages: Stages
    schedules: Schedules
    seed: int
    processes: int

    def plan(
        self, name: str, fit: Callable[[Path], Any], schedule: Any, *after: Stage, members: int
    ) -> Stage:
        """Return the stage that fits a method, and keeps the logits for the test images."""
        facts = {
            "version": _VERSION, "data": self.inputs.mark, "seed": self.seed,
            "schedule": dataclasses.asdict(schedule),
        }  # fmt: skip
        seconds = 5e4 * _SECONDS_PER_IMAGE * schedule.passes + 1e4 * _SECONDS_PER_PREDICTION * members
        make = functools.partial(self._fit, fit)
        return Stage(f"{name}/{self.seed}", make, facts, after, seconds=seconds, megabytes=30)

    def _fit(self, fit: Callable[[Path], Any], folder: Path) -> None:
        with use_one_thread():
            logits = predict_images(fit(folder), self.inputs.images.test_images)
        with open_file(folder / "logits.npy") as file:
            np.save(file, logits)  # pyright: ignore[reportArgumentType]

    def read_logits(self, stage: Stage) -> np.ndarray:
        """Return what a stage kept, (members, test images, classes)."""
        return np.load(self.stages.complete(stage) / "logits.npy").astype(float)

    def fit_ensemble(self, folder: Path) -> Any:
        """Train the ensemble, and keep it for SWAG."""
        found = fit_ensemble(self.inputs, self.schedules.ensemble, self.seed, folder, self.processes)
        found.save(folder / "ensemble.safetensors")
        return found

    def fit_swag(self, ensemble: Stage, schedule: SwagSchedule, folder: Path) -> Any:
        """Run SWAG from the first member of the ensemble on."""
        models = [resnet20_frn() for _ in range(self.schedules.ensemble.members)]
        found = DeepEnsemble.load(self.stages.complete(ensemble) / "ensemble.safetensors", models)
        return fit_swag(found.models[0], self.inputs.training, schedule, self.seed, folder)

    def fit_chain(self, folder: Path) -> Any:
        """Run cSG-HMC."""
        return fit_chain(self.inputs.training, self.schedules.chain, self.seed, folder)


def predict_images(posterior: Any, images: np.ndarray) -> np.ndarray:
    """Return the logits of all members, (members, images, classes) in float32, for images of bytes."""
    parts = []
    for start in range(0, len(images), _BATCH):
        outputs, _ = read_members(posterior, images[start : start + _BATCH].astype(np.float32) / 255)
        parts.append(outputs.astype(np.float32))
    return np.concatenate(parts, axis=1)


def _write_results(fits: _Fits, kept: dict[str, Stage], command: str, folder: Path) -> None:
    """Write the table and the section of the results page."""
    inputs = fits.inputs
    logits = {name: fits.read_logits(stage) for name, stage in kept.items()}
    rows = judging.judge_methods(logits, inputs.reference_probs, inputs.images.test_labels)
    write_columns(folder / "figures.csv", convert_to_columns(rows), force=True)
    write_text(folder / "table.txt", section.format_text(rows))
    write_text(folder / "section.md", section.compose_section(rows, fits.schedules, command))
