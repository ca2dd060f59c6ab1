"""The stages of the study, from the data sets to the results page."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from demur.atomic import open_file, write_text
from demur.reproduce.data.uci import UciDataset, read_datasets
from demur.reproduce.records import convert_to_columns
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.regression import figures, networks, ranking, section, tables
from demur.stores import read_columns, write_columns

_QUICK_TRAINING = networks.TrainingSettings(fewest=60, most=60)
_QUICK_DATASETS, _QUICK_SPLITS = 2, 3


def describe_study(source: Path, out: Path, *, seed: int = 0, quick: bool = False) -> Study:
    """Read and check the data sets of a folder; return the study.

    Parameters
    ----------
    source
        The folder; see `demur.reproduce.data.uci.read_datasets`.
    out
        The folder of the run.
    seed
        Of the networks.
    quick
        The two smallest data sets, three splits and few steps, for tests.
    """
    datasets, training = read_datasets(source), networks.TrainingSettings()
    if quick:
        datasets = sorted(datasets, key=lambda each: each.x.size)[:_QUICK_DATASETS]
        datasets = [
            dataclasses.replace(each, test=each.test[:_QUICK_SPLITS], published={}) for each in datasets
        ]
        training = _QUICK_TRAINING
    stages = Stages(out)
    ranked = [
        _plan_ranking(stages, each, name, training, seed) for each in datasets for name in networks.METHODS
    ]
    make, facts = partial(_write_results, stages, datasets, ranked), {"version": section.VERSION}
    last = Stage("results", make, facts, ranked, seconds=5, megabytes=1)
    pictures = {"regression-sparsification.png": "sparsification.png"}
    return Study("regression", stages, [last], pictures=pictures)


def _plan_ranking(
    stages: Stages, dataset: UciDataset, name: str, training: networks.TrainingSettings, seed: int
) -> Stage:
    """Return the stage that ranks errors on one data set by the scores of one method."""
    method, splits = networks.METHODS[name], len(dataset.test)
    facts = {
        "data": dataset.mark, "splits": splits, "seed": seed, **dataclasses.asdict(method),
        **dataclasses.asdict(training),
    }  # fmt: skip
    steps = training.count_steps(len(dataset.y) - dataset.test.shape[1])
    predicted = Stage(
        f"predict/{dataset.name}/{name}", partial(_write_predictions, dataset, method, training, seed), facts,
        seconds=steps * splits * (1 if method.dropout else method.members) * 2e-4,
        megabytes=16e-6 * method.members * dataset.test.size,
    )  # fmt: skip
    return Stage(
        f"rank/{dataset.name}/{name}", partial(_write_ranking, stages, dataset, predicted), {}, [predicted],
        seconds=1e-4 * method.members * dataset.test.size, megabytes=0.1,
    )  # fmt: skip


def _write_predictions(
    dataset: UciDataset,
    method: networks.MemberMethod,
    training: networks.TrainingSettings,
    seed: int,
    folder: Path,
) -> None:
    """Train the networks of all splits, and write their predictions for the test rows."""
    found = networks.predict_test_rows(dataset, method, training, seed)
    with open_file(folder / "predictions.npz") as file:
        np.savez(file, mean=found["mean"], variance=found["variance"])


def _write_ranking(stages: Stages, dataset: UciDataset, predicted: Stage, folder: Path) -> None:
    """Write the figures of each split, and the mean of its curves."""
    with np.load(stages.complete(predicted) / "predictions.npz") as file:
        mean, variance = file["mean"], file["variance"]
    splits, curves = zip(
        *(
            ranking.evaluate_split(mean[:, k], variance[:, k], dataset.y[rows])
            for k, rows in enumerate(dataset.test)
        ),
        strict=True,
    )
    columns = {name: np.array([each[name] for each in splits]) for name in splits[0]}
    write_columns(folder / "splits.csv", {"split": np.arange(len(dataset.test)), **columns}, force=True)
    means = {name: np.mean([each[name] for each in curves], axis=0) for name in curves[0]}
    write_columns(folder / "curves.csv", {"kept": ranking.KEPT_FRACTIONS, **means}, force=True)


def _write_results(stages: Stages, datasets: list[UciDataset], ranked: list[Stage], folder: Path) -> None:
    """Write the tables, the figure and the section of the results page."""
    splits: tables.Splits = {}
    curves: figures.Curves = {}
    for stage in ranked:
        _, name, method = stage.name.split("/")
        splits[name, method] = read_columns(stages.complete(stage) / "splits.csv")
        curves[name, method] = read_columns(stages.complete(stage) / "curves.csv")
    by_name = {each.name: each for each in datasets}
    found = tables.build_tables(splits, by_name)
    for name, table in found.items():
        write_columns(folder / f"{name}.csv", convert_to_columns(table), force=True)
    write_columns(folder / "splits.csv", tables.join_columns(splits), force=True)
    write_columns(folder / "curves.csv", tables.join_columns(curves), force=True)
    figures.write_figure(curves, folder)
    write_text(folder / "section.md", section.compose_section(found, by_name))
