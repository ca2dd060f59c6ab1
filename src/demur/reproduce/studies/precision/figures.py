"""The figures: AUROC over the distance of the members, a line for each formula."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.report import figures
from demur.reproduce.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {"I": "Mutual information I", "K": "Pairwise divergence K"}
_POSTERIORS = {
    "last-layer-ensemble": "ten last layers, fine-tuned", "mc-dropout": "MC dropout", "csg-hmc": "cSG-HMC",
}  # fmt: skip
_COLOURS = {
    "exact": "#0072B2", "float32": "#D55E00", "float16": "#009E73", "bfloat16": "#9A3E78",
}  # fmt: skip
_NAMES = {
    "exact": "exact (demur)", "float32": "usual\nformula,\nfloat32", "float16": "float16",
    "bfloat16": "bfloat16",
}  # fmt: skip


def write_figures(curves: Records, folder: Path) -> None:
    """Draw both figures, each as .pdf and .png."""
    figures.save(_draw_textures(curves), folder, "textures")
    figures.save(_draw_posteriors(curves), folder, "posteriors")


def _draw_textures(curves: Records) -> Figure:
    """Draw I and K side by side, for perturbed weights."""
    with figures.drawing(7.2, 3.1, columns=2) as (picture, panels):
        for axes, measure in zip(panels, _TITLES, strict=True):
            lines = _select_lines(curves, "perturbed", measure)
            _draw_lines(axes, lines)
            _name_lines(axes, lines)
            axes.set_title(_TITLES[measure], loc="left", fontweight="bold")
        panels[0].set_ylabel("AUROC: textures against ImageNet")
        picture.supxlabel(
            "how far ten last layers differ, relative to their weights   (left: they nearly agree)",
            fontsize=8,
        )
    return picture


def _draw_posteriors(curves: Records) -> Figure:
    """Draw I above K, a column for each fitted posterior."""
    with figures.drawing(7.2, 4.4, columns=3, rows=2) as (picture, panels):
        for row, measure in zip(panels, _TITLES, strict=True):
            for axes, posterior in zip(row, _POSTERIORS, strict=True):
                _draw_lines(axes, _select_lines(curves, posterior, measure))
                if measure == "I":
                    axes.set_title(_POSTERIORS[posterior], loc="left", fontweight="bold")
            row[0].set_ylabel(f"AUROC of {measure}")
        handles, names = panels[0, 0].get_legend_handles_labels()
        picture.legend(handles, names, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
        picture.supxlabel("distance of the members from their mean, 1 = as they were fitted", fontsize=8)
    return picture


def _select_lines(curves: Records, posterior: str, measure: str) -> dict[str, np.ndarray]:
    """Return level, value, low and high of each formula, (levels, 4)."""
    found: dict[str, list[list[float]]] = {}
    for row in curves:
        if row["posterior"] == posterior and row["measure"] == measure:
            place = [row[key] for key in ("level", "auroc", "low", "high")]
            found.setdefault(row["arithmetic"], []).append(place)
    return {name: np.array(sorted(rows)) for name, rows in found.items()}


def _draw_lines(axes: Any, lines: dict[str, np.ndarray]) -> None:
    """Draw lines with bands; dashed: with 1e-10 inside the logarithm."""
    axes.axhline(0.5, color="#777777", lw=0.8, ls=":", zorder=1)
    for index, (name, colour) in enumerate(_COLOURS.items()):
        level, value, low, high = lines[name].T
        axes.fill_between(level, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)
        width, label = (2.4, _NAMES["exact"]) if name == "exact" else (1.5, name)
        axes.plot(level, value, color=colour, lw=width, label=label, zorder=6 - index)
        other = lines.get(f"{name} + 1e-10")
        if other is not None and np.isfinite(other[:, 1]).all():
            axes.plot(other[:, 0], other[:, 1], color=colour, lw=1.0, ls=(0, (2, 1.5)), zorder=6 - index)
    top = max(float(lines["exact"][:, 3].max()), 0.9)
    axes.set(xscale="log", ylim=(0.43, top + 0.03), xlim=(lines["exact"][0, 0], 1))
    axes.set_yticks(np.arange(0.5, top + 0.03, 0.1))
    axes.xaxis.set_major_formatter(lambda level, _: f"{level:g}" if level >= 1e-3 else "0.0001")
    axes.minorticks_off()
    axes.annotate(
        "chance", (1, 0.5), (0, -5), textcoords="offset points", color="#555555", fontsize=7, ha="right",
        va="top",
    )  # fmt: skip


def _name_lines(axes: Any, lines: dict[str, np.ndarray]) -> None:
    """Write the name of each line beside it, half-way between chance and the exact line."""
    bold = {"fontsize": 8, "fontweight": "bold"}
    exact = lines["exact"]
    half = (0.5 + exact[-1, 1]) / 2
    axes.text(exact[0, 0] * 1.2, exact[0, 3] + 0.006, _NAMES["exact"], color=_COLOURS["exact"], **bold)
    for name in ("float32", "float16", "bfloat16"):
        level, value = np.log10(lines[name][:, 0]), lines[name][:, 1]
        under = np.flatnonzero(value < half)
        if len(under) and under[-1] + 1 < len(value):
            k = int(under[-1])
            share = (half - value[k]) / (value[k + 1] - value[k])
            place = 10 ** (level[k] + share * (level[k + 1] - level[k]))
            side, aside = ("right", -6) if name == "float16" else ("left", 6)
            axes.annotate(
                _NAMES[name], (place, half), (aside, 4), textcoords="offset points", color=_COLOURS[name],
                ha=side, va="top", linespacing=1.1, **bold,
            )  # fmt: skip
