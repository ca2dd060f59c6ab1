"""Curves with confidence bands: ROC, and accuracy over the fraction kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from demur.report.downsampling import find_corners
from demur.report.figures import COLOURS, LINES, drawing, percent_axis
from demur.tasks import Detection, Selective, accuracy_band, best_accuracy, roc_band

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAND_POINTS = 2001


def roc_figure(results: Mapping[str, Detection], *, bands: bool = True) -> Figure:
    """Draw ROC curves; each band holds its whole curve with the confidence of the intervals.

    Parameters
    ----------
    results : dict
        What ``detection`` or ``misclassification`` returned, by name.
    bands : bool
        Whether to draw them; see ``roc_band``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = demur.tasks.detection(rng.normal(0, 1, 500), rng.normal(1, 1, 500))
    >>> figure = demur.report.roc_figure({"K": found})
    """
    with drawing(3.6, 3.5) as (figure, axes):
        for index, (name, found) in enumerate(results.items()):
            colour, curve = COLOURS[index % len(COLOURS)], found.curve
            if bands:
                at = np.linspace(0, 1, _BAND_POINTS)
                band = roc_band(found, at, confidence=found.auroc.confidence)
                axes.fill_between(at, band.low, band.high, color=colour, alpha=0.15, linewidth=0)
            some = find_corners(curve.fpr, curve.tpr)
            label = f"{name}: {found.auroc}"
            line = LINES[index % len(LINES)]
            axes.plot(curve.fpr[some], curve.tpr[some], color=colour, ls=line, lw=1.4, label=label)
        axes.plot([0, 1], [0, 1], color="#777777", lw=0.8, ls=":")
        axes.set(xlim=(-0.005, 1), ylim=(0, 1.005), aspect="equal")
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
        axes.legend(frameon=False, loc="lower right", title="AUROC", alignment="left")
    return figure


def accuracy_figure(results: Mapping[str, Selective], *, band: bool = True) -> Figure:
    """Draw accuracy over the fraction kept, with the best possible order and any order beside it.

    Parameters
    ----------
    results : dict
        What ``selective`` returned, by name. The best possible and any order are those of the first.
    band : bool
        Whether to draw exact intervals, for each fraction by itself; see ``accuracy_band``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.uniform(size=500)
    >>> found = demur.tasks.selective(scores, rng.uniform(size=500) > scores / 2)
    >>> figure = demur.report.accuracy_figure({"K": found})
    """
    with drawing(4.6, 3.1) as (figure, axes):
        lowest = 1.0
        for index, (name, found) in enumerate(results.items()):
            colour, curve = COLOURS[index % len(COLOURS)], found.curve
            number = len(curve.kept)
            at = np.unique(np.linspace(1, number, _BAND_POINTS).round().astype(int))
            drawn = curve.accuracy[at - 1]
            if band:
                ends = accuracy_band(found, at, confidence=found.auc.confidence)
                axes.fill_between(ends.at, ends.low, ends.high, color=colour, alpha=0.15, linewidth=0)
                drawn = np.where(ends.at >= 0.1, ends.low, drawn)
            lowest = min(lowest, float(drawn[at >= 0.05 * number].min()))
            height = float(np.ptp(curve.accuracy)) or 1.0
            some = find_corners(curve.kept, curve.accuracy / height)
            line = LINES[index % len(LINES)]
            label = f"{name}: {found.auc}"
            axes.plot(curve.kept[some], curve.accuracy[some], color=colour, ls=line, lw=1.4, label=label)
            if index == 0:
                own = f" of {name}" if len(results) > 1 else ""
                best = best_accuracy(found)
                axes.plot(curve.kept, best, color="black", lw=0.9, ls="--", label=f"best possible{own}")
                axes.axhline(curve.accuracy[-1], color="#777777", lw=0.9, ls=":", label=f"any order{own}")
        axes.set(xlim=(0, 1), ylim=(max(0.0, lowest - 0.05 * (1 - lowest)), 1 + 0.02 * (1 - lowest)))
        axes.set(xlabel="fraction kept, the most certain first", ylabel="accuracy")
        percent_axis(axes.yaxis)
        percent_axis(axes.xaxis)
        legend = axes.legend(framealpha=1, edgecolor="none", loc="lower left", title="area", alignment="left")
        legend.set_zorder(3)  # no line through the words
    return figure
