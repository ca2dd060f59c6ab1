"""Figures: accuracy over labels, and areas minus that of random labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from demur.report.figures import COLOURS, LINES, drawing, percent_axis
from demur.reproduce.studies.active_learning.comparisons import Curve, Difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Titles = Mapping[str, str]


def _choose_style(index: int, acquisition: str) -> tuple[str, object]:
    """Return colour and line of an acquisition."""
    if acquisition == "random":
        return "#777777", ":"
    if acquisition == "BatchBALD":
        return "black", "-"
    return COLOURS[index % len(COLOURS)], LINES[index % len(LINES)]


def draw_accuracies(accuracies: Mapping[Curve, np.ndarray], labels: Sequence[int], titles: Titles) -> Figure:
    """Draw the mean over seeds of each acquisition, with a band from the lowest to the highest seed."""
    settings, acquisitions = list_settings(accuracies)
    with drawing(7.2, 5.6, columns=2, rows=(len(settings) + 1) // 2) as (figure, grid):
        for axes, (data, posterior) in zip(np.ravel(grid), settings, strict=False):
            for index, acquisition in enumerate(acquisitions):
                own = [v for c, v in accuracies.items() if c[:3] == (data, posterior, acquisition)]
                colour, line = _choose_style(index, acquisition)
                axes.fill_between(
                    labels, np.min(own, axis=0), np.max(own, axis=0), color=colour, alpha=0.1, lw=0
                )
                axes.plot(labels, np.mean(own, axis=0), color=colour, ls=line, lw=1.3, label=acquisition)
            axes.set_title(f"{titles[data]}, {titles[posterior]}")
            axes.set(xlim=(labels[0], labels[-1]), xlabel="labelled images", ylabel="accuracy")
            percent_axis(axes.yaxis)
        handles, texts = np.ravel(grid)[0].get_legend_handles_labels()
        figure.legend(handles, texts, frameon=False, loc="outside lower center", ncols=4)
    return figure


def draw_differences(
    areas: Mapping[Curve, float], differences: Sequence[Difference], titles: Titles
) -> Figure:
    """Draw areas minus that of random labels: circles for seeds, the mean with its interval over images."""
    settings, acquisitions = list_settings(areas)
    shown = [name for name in acquisitions if name != "random"]
    with drawing(7.2, 2.7, columns=len(settings)) as (figure, grid):
        for axes, (data, posterior) in zip(np.ravel(grid), settings, strict=True):
            for row, acquisition in enumerate(shown):
                colour, _ = _choose_style(acquisitions.index(acquisition), acquisition)
                own = [
                    100 * (v - areas[c._replace(acquisition="random")])
                    for c, v in areas.items()
                    if c[:3] == (data, posterior, acquisition)
                ]
                axes.plot(own, [row] * len(own), "o", ms=3, mfc="none", mew=0.8, color=colour)
                (found,) = (e for e in differences if e[:4] == (data, posterior, acquisition, "random"))
                ends = found.images.difference
                axes.plot([100 * ends.low, 100 * ends.high], [row, row], color=colour, lw=1.4)
                axes.plot(100 * ends.value, row, "|", ms=9, mew=1.6, color=colour)
            axes.axvline(0, color="#777777", lw=0.8, ls=":")
            axes.set_title(f"{titles[data]},\n{titles[posterior]}")
            axes.set_yticks(range(len(shown)), shown if axes is np.ravel(grid)[0] else [""] * len(shown))
            axes.set_ylim(len(shown) - 0.5, -0.5)
        figure.supxlabel("mean accuracy less that of random labels, in points", fontsize=8)
    return figure


def list_settings(curves: Mapping[Curve, object]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return settings and acquisitions, each once, in order."""
    settings = dict.fromkeys((each.data, each.posterior) for each in curves)
    return list(settings), list(dict.fromkeys(each.acquisition for each in curves))
