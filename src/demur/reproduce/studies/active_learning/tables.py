"""Tables, figures and text of all curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from demur.atomic import write_text
from demur.report.figures import save
from demur.reproduce.data.mnist import DATASETS
from demur.reproduce.records import name_columns
from demur.reproduce.studies.active_learning import section
from demur.reproduce.studies.active_learning.comparisons import (
    Curve,
    Difference,
    compare_acquisitions,
    compute_area,
)
from demur.reproduce.studies.active_learning.figures import draw_accuracies, draw_differences
from demur.reproduce.studies.active_learning.rounds import ACQUISITIONS
from demur.stores import write_columns

if TYPE_CHECKING:
    from demur.reproduce.studies.active_learning.study import Settings

VERSION = 2
"""Changes with any change of the code that changes tables, figures or text."""

FIGURES = ("active-learning-accuracy", "active-learning-areas")


def write_results(folder: Path, curves: Mapping[Curve, Path], settings: Settings) -> None:
    """Write curves.csv, areas.csv, comparisons.csv, two figures and the section of the results page."""
    correct = {curve: np.load(place / "correct.npy") for curve, place in curves.items()}
    information = {
        curve: np.load(place / "information.npy")
        for curve, place in curves.items()
        if curve.acquisition == "BatchBALD"
    }
    accuracies = {curve: each.mean(axis=1) for curve, each in correct.items()}
    images = {curve: compute_area(each) for curve, each in correct.items()}
    areas = {curve: float(each.mean()) for curve, each in images.items()}
    found = compare_acquisitions(images, ACQUISITIONS)
    titles = DATASETS | {each.name: each.title for each in settings.posteriors}
    write_columns(folder / "curves.csv", _list_curves(accuracies, settings.label_counts), force=True)
    write_columns(folder / "areas.csv", _list_areas(areas), force=True)
    write_columns(folder / "comparisons.csv", _list_comparisons(found), force=True)
    drawn = (
        draw_accuracies(accuracies, settings.label_counts, titles),
        draw_differences(areas, found, titles),
    )
    for name, figure in zip(FIGURES, drawn, strict=True):
        save(figure, folder, name)
    text = section.compose_section(settings, accuracies, areas, found, information, titles)
    write_text(folder / "section.md", text)


def _list_curves(accuracies: Mapping[Curve, np.ndarray], labels: list[int]) -> dict[str, np.ndarray]:
    """Return a row for each curve and round."""
    rows = [
        (*curve, number, count, value)
        for curve, each in accuracies.items()
        for number, (count, value) in enumerate(zip(labels, each.tolist(), strict=True))
    ]
    return name_columns((*Curve._fields, "round", "labels", "accuracy"), rows)


def _list_areas(areas: Mapping[Curve, float]) -> dict[str, np.ndarray]:
    """Return a row for each curve."""
    return name_columns((*Curve._fields, "area"), [(*curve, value) for curve, value in areas.items()])


def _list_comparisons(found: list[Difference]) -> dict[str, np.ndarray]:
    """Return a row for each comparison: by seeds, then by test images."""
    rows = []
    for each in found:
        row: list[object] = [*each[:4], each.seeds.difference.value]
        for one in (each.seeds, each.images):
            row += [one.difference.low, one.difference.high, one.p_value, one.adjusted]
        rows.append(row)
    names = [f"{kind}_{what}" for kind in ("seeds", "images") for what in ("low", "high", "p", "adjusted")]
    return name_columns(("data", "posterior", "first", "second", "difference", *names), rows)
