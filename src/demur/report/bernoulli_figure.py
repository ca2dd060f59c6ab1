"""A figure of posteriors over the parameter of a coin, with their uncertainties above each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.report.figures import STYLE, write_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's colours: the current measure, the new one, the reverse one; and the expected value.
COLOURS = {"average": "#C00000", "pairwise": "#000000", "reverse": "#7030A0"}
_LABELS = {"average": "current", "pairwise": "new", "reverse": "reverse"}
_MEAN, _FILL, _LINE = "#E07B00", "#BFD3E6", "#2B5C8A"
_DENSITY_SHOWN = 4.2  # some rise to infinity at their ends


@dataclass(frozen=True)
class Panel:
    """One posterior and its uncertainties.

    Attributes
    ----------
    name
        As in the table of results.
    title
        As above the panel.
    mean
        Expected value.
    curve
        Places and density, (points,) each; None for point masses.
    masses
        Places and weights, (points,) each; None for a density.
    parts
        Total, aleatoric and epistemic uncertainty in nats, by measure.
    """

    name: str
    title: str
    mean: float
    curve: tuple[np.ndarray, np.ndarray] | None
    masses: tuple[np.ndarray, np.ndarray] | None
    parts: Mapping[str, tuple[float, float, float]]


def draw_posteriors(panels: Sequence[Panel]) -> Figure:
    """Draw posteriors, three a row."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(panels) // 3)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.35 + 2.45 * rows))
        figure.subplots_adjust(
            left=0.06, right=0.985, wspace=0.24, hspace=0.95,
            bottom=0.72 / figure.get_figheight(), top=1 - 0.88 / figure.get_figheight(),
        )  # fmt: skip
        for index, (axes, panel) in enumerate(zip(figure.subplots(rows, 3).flat, panels, strict=True)):
            _draw_panel(axes, panel, left=index % 3 == 0, bottom=index >= len(panels) - 3)
        _add_legend(figure)
    return figure


def _draw_panel(axes: Any, panel: Panel, *, left: bool, bottom: bool) -> None:
    """Draw one posterior, its expected value, and the figures above it."""
    if panel.curve is not None:
        places, density = panel.curve
        shown = np.minimum(density, 2 * _DENSITY_SHOWN)  # what is above the edge is cut off there
        axes.fill_between(places, shown, color=_FILL, linewidth=0)
        axes.plot(places, shown, color=_LINE, linewidth=1.2)
        axes.set_ylim(0, _DENSITY_SHOWN)
    if panel.masses is not None:
        places, weights = panel.masses
        axes.vlines(places, 0, weights, color=_LINE, linewidth=2.2)
        axes.plot(places, weights, "o", color=_LINE, markersize=5, clip_on=False)
        axes.set_ylim(0, 0.84)
        axes.set_ylabel("mass", labelpad=2)
    elif left:
        axes.set_ylabel("density", labelpad=2)
    axes.plot(
        panel.mean,
        0,
        "^",
        color=_MEAN,
        markersize=7,
        clip_on=False,
        zorder=5,
        markeredgecolor="white",
        markeredgewidth=0.4,
    )
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    if bottom:
        axes.set_xlabel(r"probability $\theta$ of outcome 1", labelpad=3)
    _add_figures(axes, panel)


def _add_figures(axes: Any, panel: Panel) -> None:
    """Write title and the three measures above a panel, as a small table."""
    offset: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    offset["annotation_clip"] = False
    axes.annotate(panel.title, (0.5, 1), (0, 48), ha="center", va="bottom", fontsize=9, **offset)
    columns = (0.45, 0.73, 1.0)
    axes.annotate("in nats", (0, 1), (0, 37), ha="left", fontsize=7, color="#555555", **offset)
    for x, heading in zip(columns, ("total", "aleatoric", "epistemic"), strict=True):
        axes.annotate(heading, (x, 1), (0, 37), ha="right", fontsize=7, color="#555555", **offset)
    for row, (measure, parts) in enumerate(panel.parts.items()):
        style = {"color": COLOURS[measure], "fontsize": 8, **offset}
        height = 27 - 10 * row
        axes.annotate(_LABELS[measure], (0, 1), (0, height), ha="left", **style)
        for x, value in zip(columns, parts, strict=True):
            axes.annotate(write_number(value), (x, 1), (0, height), ha="right", **style)


def _add_legend(figure: Figure) -> None:
    """Say below all panels what the rows and the triangle are."""
    from matplotlib.lines import Line2D

    texts = {
        "average": "current measure: entropy of the average, I",
        "pairwise": "new measure: expected pairwise, K",
        "reverse": "reverse: M = K − I",
    }
    handles: list[Any] = [
        Line2D([], [], color=COLOURS[each], linewidth=3, label=text) for each, text in texts.items()
    ]
    handles.append(
        Line2D([], [], color=_MEAN, marker="^", linestyle="", markersize=6, label="expected value")
    )
    figure.legend(
        handles=handles, loc="lower center", ncols=4, frameon=False, fontsize=7, handlelength=1.2,
        columnspacing=1.6, bbox_to_anchor=(0.5, 0),
    )  # fmt: skip
