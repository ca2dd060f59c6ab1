"""The stages of the study, from the data sets to the page of results."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from demur.reproduce.planned import Planned
from demur.reproduce.regression import data, figure, networks, ranking, tables, text
from demur.reproduce.results import add_section
from demur.reproduce.stages import Say, Stage, Stages
from demur.stores import read_columns, write_columns

_QUICK = networks.Training(fewest=60, most=60)
_QUICK_SETS, _QUICK_SPLITS = 2, 3


def study(
    source: Path, out: Path, *, seed: int = 0, quick: bool = False, say: Say = lambda line: None
) -> Planned:
    """Return the study of the data sets of a folder; nothing is computed yet.

    Parameters
    ----------
    source
        The folder; see `data.read_all`.
    out
        The folder of the run.
    seed
        Of the networks.
    quick
        The two smallest sets, three splits, a few steps: for tests.
    """
    sets = data.read_all(source)
    training = networks.Training()
    if quick:
        sets = sorted(sets, key=lambda rows: rows.x.size)[:_QUICK_SETS]
        sets = [dataclasses.replace(rows, test=rows.test[:_QUICK_SPLITS], published={}) for rows in sets]
        training = _QUICK
    stages = Stages(out, say)
    ranked = []
    for rows in sets:
        for name, method in networks.METHODS.items():
            facts = {
                "data": rows.mark, "splits": len(rows.test), "seed": seed, **dataclasses.asdict(method),
                **dataclasses.asdict(training),
            }  # fmt: skip
            count = len(rows.test) * (1 if method.dropout else method.members)
            steps = training.steps(len(rows.y) - rows.test.shape[1])
            predicted = Stage(
                f"predict/{rows.name}/{name}", partial(_predict_stage, rows, method, training, seed), facts,
                seconds=steps * count * 2e-4, megabytes=16e-6 * method.members * rows.test.size,
            )  # fmt: skip
            ranked.append(
                Stage(
                    f"rank/{rows.name}/{name}", partial(_rank_stage, stages, rows, predicted), {},
                    [predicted], seconds=1e-4 * method.members * rows.test.size, megabytes=0.1,
                )
            )  # fmt: skip
    last = Stage("results", partial(_results_stage, stages, sets, ranked), {}, ranked, seconds=5, megabytes=1)
    return Planned(stages, last)


def _predict_stage(
    rows: data.Rows, method: networks.Method, training: networks.Training, seed: int, folder: Path
) -> None:
    """Train the networks of all splits, and write their predictions for the test rows."""
    found = networks.predictions(rows, method, training, seed)
    np.savez(folder / "predictions.npz", mean=found["mean"], variance=found["variance"])


def _rank_stage(stages: Stages, rows: data.Rows, predicted: Stage, folder: Path) -> None:
    """Write the figures of each split, and the mean of its curves."""
    with np.load(stages.made(predicted) / "predictions.npz") as file:
        mean, variance = file["mean"], file["variance"]
    figures, curves = zip(
        *(ranking.of_split(mean[:, k], variance[:, k], rows.y[own]) for k, own in enumerate(rows.test)),
        strict=True,
    )
    columns = {name: np.array([each[name] for each in figures]) for name in figures[0]}
    write_columns(folder / "splits.csv", {"split": np.arange(len(rows.test)), **columns}, force=True)
    means = {name: np.mean([each[name] for each in curves], axis=0) for name in curves[0]}
    write_columns(folder / "curves.csv", {"kept": ranking.GRID, **means}, force=True)


def _results_stage(stages: Stages, sets: list[data.Rows], ranked: list[Stage], folder: Path) -> None:
    """Write the tables, the figure and the section of the page."""
    splits: tables.Splits = {}
    curves: figure.Curves = {}
    for stage in ranked:
        _, name, method = stage.name.split("/")
        splits[name, method] = read_columns(stages.made(stage) / "splits.csv")
        curves[name, method] = read_columns(stages.made(stage) / "curves.csv")
    by_name = {rows.name: rows for rows in sets}
    found = tables.all_of(splits, by_name)
    for name, table in found.items():
        write_columns(folder / f"{name}.csv", tables.columns(table), force=True)
    write_columns(folder / "splits.csv", tables.joined(splits), force=True)
    write_columns(folder / "curves.csv", tables.joined(curves), force=True)
    figure.write(curves, folder)
    (folder / "section.md").write_text(text.section(found, by_name), "utf-8")


def add_to_page(files: list[Path], page: Path) -> None:
    """Put the study's section into the page of results."""
    by_name = {path.name: path for path in files}
    pictures = {"regression-sparsification.png": by_name["sparsification.png"]}
    add_section(page, "regression", by_name["section.md"].read_text("utf-8"), pictures)
