"""The pictures: AUROC over agreement, a line for each arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from demur.experiments.precision.tables import Rows
from demur.report import figures

TITLES = {"I": "Mutual information I", "K": "Pairwise divergence K"}
POSTERIORS = {
    "last-layer-ensemble": "ten last layers, fine-tuned", "mc-dropout": "MC dropout", "csg-hmc": "cSG-HMC",
}  # fmt: skip
COLOURS = {
    "exact": "#0072B2", "float32": "#D55E00", "float16": "#009E73", "bfloat16": "#9A3E78",
}  # fmt: skip
NAMES = {"exact": "exact (demur)", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}


def write(curves: Rows, folder: Path) -> None:
    """Draw both figures, each as .pdf and .png."""
    with figures.drawing(7.2, 3.0, columns=2) as (picture, panels):
        for axes, measure in zip(panels, TITLES, strict=True):
            panel(axes, chosen(curves, "perturbed", measure))
            axes.set_title(TITLES[measure], loc="left", fontweight="bold")
        panels[0].set_ylabel("AUROC: textures against ImageNet images")
        label = "how far the ten last layers differ, as a share of their weights"
        picture.supxlabel(label, fontsize=8)
    figures.save(picture, folder, "textures")
    with figures.drawing(7.2, 4.6, columns=3, rows=2) as (picture, panels):
        for row, measure in zip(panels, TITLES, strict=True):
            for axes, posterior in zip(row, POSTERIORS, strict=True):
                panel(axes, chosen(curves, posterior, measure))
                if measure == "I":
                    axes.set_title(POSTERIORS[posterior], loc="left", fontweight="bold")
            row[0].set_ylabel(f"AUROC of {measure}")
        label = "distance of the members from their mean: 1 is as they were fitted"
        picture.supxlabel(label, fontsize=8)
    figures.save(picture, folder, "posteriors")


def chosen(curves: Rows, posterior: str, measure: str) -> dict[str, np.ndarray]:
    """Return level, value, low and high of each arithmetic, (levels, 4)."""
    found: dict[str, list[list[float]]] = {}
    for row in curves:
        if row["posterior"] == posterior and row["measure"] == measure:
            place = [row[key] for key in ("level", "auroc", "low", "high")]
            found.setdefault(row["arithmetic"], []).append(place)
    return {name: np.array(sorted(rows)) for name, rows in found.items()}


def panel(axes: Any, lines: dict[str, np.ndarray]) -> None:
    """Draw lines with bands, named where they are; dashed: with a small number inside the logarithm."""
    axes.axhline(0.5, color="#777777", lw=0.8, ls=":", zorder=1)
    for index, (name, colour) in enumerate(COLOURS.items()):
        level, value, low, high = lines[name].T
        axes.fill_between(level, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)
        axes.plot(level, value, color=colour, lw=2.2 if name == "exact" else 1.5, zorder=6 - index)
        other = lines.get(f"{name} + 1e-10")
        if other is not None and np.isfinite(other[:, 1]).all():
            axes.plot(other[:, 0], other[:, 1], color=colour, lw=1.0, ls=(0, (2, 1.5)), zorder=6 - index)
    axes.set(xscale="log", ylim=(0.44, 0.93), xlim=(lines["exact"][0, 0], 1))
    axes.set_yticks([0.5, 0.6, 0.7, 0.8, 0.9])
    named(axes, lines)


def named(axes: Any, lines: dict[str, np.ndarray]) -> None:
    """Write the name of each line beside it, where it leaves the chance level."""
    style = {"fontsize": 7.5, "fontweight": "bold"}
    exact = lines["exact"]
    axes.text(exact[0, 0] * 1.15, exact[0, 1] + 0.012, NAMES["exact"], color=COLOURS["exact"], **style)
    for name in ("float32", "float16", "bfloat16"):
        level, value = lines[name][:, :2].T
        half = (0.5 + exact[-1, 1]) / 2
        if value[-1] < half:
            continue
        k = int(np.flatnonzero(value < half)[-1]) if (value < half).any() else 0
        share = (half - value[k]) / (value[k + 1] - value[k])
        x = 10 ** (np.log10(level[k]) + share * np.log10(level[k + 1] / level[k]))
        axes.text(x * 0.82, half, NAMES[name], color=COLOURS[name], ha="right", va="center", **style)
    axes.text(exact[0, 0] * 1.15, 0.488, "chance", color="#555555", fontsize=7, va="top")
