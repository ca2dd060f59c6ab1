"""Tables, figures and text of all curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from demur.report import figures
from demur.reproduce.active_learning import section
from demur.reproduce.active_learning.comparisons import Curve, Difference, area, differences
from demur.reproduce.active_learning.drawing import accuracy_figure, difference_figure
from demur.reproduce.active_learning.images import SETS
from demur.reproduce.active_learning.rounds import ACQUISITIONS
from demur.stores import write_columns

if TYPE_CHECKING:
    from demur.reproduce.active_learning import Settings

RECIPE = 1
"""Changes with anything in the code that changes tables, figures or text."""

FIGURES = ("active-learning-accuracy", "active-learning-areas")
TEXT = "section.md"


def write(folder: Path, curves: Mapping[Curve, Path], settings: Settings) -> None:
    """Write curves.csv, areas.csv, comparisons.csv, two figures and the section of the results page."""
    correct = {curve: np.load(place / "correct.npy") for curve, place in curves.items()}
    told = {
        curve: np.load(place / "information.npy")
        for curve, place in curves.items()
        if curve.acquisition == "BatchBALD"
    }
    accuracies = {curve: each.mean(axis=1) for curve, each in correct.items()}
    images = {curve: area(each) for curve, each in correct.items()}
    areas = {curve: float(each.mean()) for curve, each in images.items()}
    found = differences(images, ACQUISITIONS)
    titles = SETS | {each.name: each.title for each in settings.posteriors}
    write_columns(folder / "curves.csv", _curve_columns(accuracies, settings.labels), force=True)
    write_columns(folder / "areas.csv", _area_columns(areas), force=True)
    write_columns(folder / "comparisons.csv", _comparison_columns(found), force=True)
    drawn = (accuracy_figure(accuracies, settings.labels, titles), difference_figure(areas, found, titles))
    for name, figure in zip(FIGURES, drawn, strict=True):
        figures.save(figure, folder, name)
    text = section.written(settings, accuracies, areas, found, told, titles)
    (folder / TEXT).write_text(text, "utf-8")


def _curve_columns(accuracies: Mapping[Curve, np.ndarray], labels: list[int]) -> dict[str, np.ndarray]:
    """Return a row for each curve and round."""
    rows = [
        (*curve, number, count, value)
        for curve, each in accuracies.items()
        for number, (count, value) in enumerate(zip(labels, each.tolist(), strict=True))
    ]
    return _columns((*Curve._fields, "round", "labels", "accuracy"), rows)


def _area_columns(areas: Mapping[Curve, float]) -> dict[str, np.ndarray]:
    """Return a row for each curve."""
    return _columns((*Curve._fields, "area"), [(*curve, value) for curve, value in areas.items()])


def _comparison_columns(found: list[Difference]) -> dict[str, np.ndarray]:
    """Return a row for each comparison: by seeds, then by test images."""
    rows = []
    for each in found:
        row: list[object] = [*each[:4], each.seeds.difference.value]
        for one in (each.seeds, each.images):
            row += [one.difference.low, one.difference.high, one.p_value, one.adjusted]
        rows.append(row)
    names = [f"{kind}_{what}" for kind in ("seeds", "images") for what in ("low", "high", "p", "adjusted")]
    return _columns(("data", "posterior", "first", "second", "difference", *names), rows)


def _columns(names: tuple[str, ...], rows: list) -> dict[str, np.ndarray]:
    """Return rows as columns by name."""
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
