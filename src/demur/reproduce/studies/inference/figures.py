"""The figure: ratio and rank correlation of K with the reference's, a row for each method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demur.report import figures
from demur.reproduce.records import Records
from demur.reproduce.studies.inference.problems import SETS
from demur.reproduce.studies.inference.tables import FLOOR, index_figures, list_methods, name_method

_PANELS = {"k|ratio": "Mean K, as a multiple of HMC's", "k|spearman": "Rank correlation of K with HMC's"}
_SMALLEST_RATIO, _LARGEST_RATIO = 0.01, 100.0
"""Ratios beyond are drawn at the edge, as triangles."""


def write_figure(found: Records, problems: Mapping[str, str], folder: Path) -> None:
    """Draw the figure as k.pdf and k.png.

    Parameters
    ----------
    found
        Means over seeds.
    problems
        Their titles by name.
    """
    methods, by_key = list_methods(found), index_figures(found)
    places = {method: -float(k) for k, method in enumerate(methods)}
    with figures.drawing(7.2, 1.1 + 0.36 * len(methods), columns=2) as (picture, panels):
        for axes, (figure, title) in zip(panels, _PANELS.items(), strict=True):
            _draw_panel(axes, figure, by_key, problems, places)
            axes.set_title(title, loc="left", fontweight="bold")
            axes.set(ylim=(min(places.values()) - 0.6, 0.6))
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
        panels[0].set_yticks(list(places.values()), [name_method(method) for method in methods])
        panels[1].set_yticks(list(places.values()), [""] * len(methods))
        handles, names = panels[0].get_legend_handles_labels()
        picture.legend(
            handles, names, loc="outside upper center", ncols=min(4, len(problems)), frameon=False,
            fontsize=8, title_fontsize=8,
            title="filled: in-distribution; hollow: out-of-distribution; bars: 95 % intervals over seeds",
        )  # fmt: skip
    figures.save(picture, folder, "k")


def _draw_panel(
    axes: Any, figure: str, by_key: Mapping[tuple[str, ...], Any], problems: Mapping[str, str],
    places: Mapping[str, float],
) -> None:  # fmt: skip
    """Draw one figure of all methods: a marker for each problem and set."""
    ratio = figure.endswith("ratio")
    for k, place in enumerate(places.values()):
        if k % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color="#F3F3F3", zorder=0)
    axes.axvline(1, color="#555555", lw=0.8, zorder=1)
    slots = [(problem, each) for problem in problems for each in SETS]
    for (problem, each), offset in zip(slots, _spread_slots(len(slots)), strict=True):
        k = list(problems).index(problem)
        colour, marker = figures.COLOURS[k % len(figures.COLOURS)], figures.MARKERS[k % len(figures.MARKERS)]
        for method, place in places.items():
            row = by_key.get((problem, method, each, figure))
            if row is None or math.isnan(row["mean"]):
                continue
            value, low, high = row["mean"], row["low"], row["high"]
            shape = marker
            if ratio:
                edge = min(max(value, _SMALLEST_RATIO), _LARGEST_RATIO)
                shape = marker if edge == value else "<" if edge == _SMALLEST_RATIO else ">"
                value, low, high = (min(max(v, _SMALLEST_RATIO), _LARGEST_RATIO) for v in (edge, low, high))
            style = {"color": colour, "lw": 1.0, "zorder": 3}
            axes.plot([low, high], [place + offset] * 2, **style)
            label = problems[problem] if each == "in" and method == FLOOR else None
            face = colour if each == "in" else "white"
            axes.plot(
                [value], [place + offset], marker=shape, ms=4.2, mfc=face, mec=colour, mew=1.0, ls="none",
                label=label, zorder=4,
            )  # fmt: skip
    if ratio:
        axes.set(xscale="log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        low, high = axes.get_xlim()
        axes.set(xlim=(max(low, -1), 1.02))


def _spread_slots(number: int) -> list[float]:
    """Return where the markers of a row stand, from above its middle to below."""
    return [0.33 - 0.66 * k / max(1, number - 1) for k in range(number)]
