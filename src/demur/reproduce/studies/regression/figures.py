"""Sparsification curves, a panel for each data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from demur.report import figures
from demur.reproduce.studies.regression.ranking import SCORES

Curves = dict[tuple[str, str], dict[str, np.ndarray]]
_SHOWN_METHOD = "deep-ensemble"
_LINE_STYLES = {
    "k": ("#D55E00", "-"), "i": ("#E69F00", (0, (5, 1.5))), "epistemic-variance": ("#009E73", "-"),
    "total-variance": ("#0072B2", "-"), "k-total": ("#56B4E9", (0, (5, 1.5))),
}  # fmt: skip


def write_figure(curves: Curves, folder: Path) -> None:
    """Draw the curves of the deep ensemble, as .pdf and .png."""
    shown = {name: found for (name, method), found in curves.items() if method == _SHOWN_METHOD}
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with figures.drawing(7.2, 0.9 + 1.7 * rows, columns, rows) as (picture, panels):
        for axes in np.ravel(panels)[len(shown) :]:
            axes.set_visible(False)
        for axes, (name, found) in zip(np.ravel(panels), shown.items(), strict=False):
            axes.axhline(1, color="#777777", lw=0.9, ls=":", label="any order")
            axes.plot(
                found["kept"], found["oracle"], color="black", lw=0.9, label="oracle (knows the errors)"
            )
            for score, (colour, line) in _LINE_STYLES.items():
                axes.plot(found["kept"], found[score], color=colour, ls=line, lw=1.4, label=SCORES[score])
            axes.set_title(name, loc="left", fontweight="bold")
            axes.set(xlim=(0.05, 1), ylim=(0, None))
            figures.percent_axis(axes.xaxis)
        handles, labels = np.ravel(panels)[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
        picture.supylabel("error of what is kept, as a share of the error of all (RMSE)", fontsize=8)
        picture.supxlabel("share of the rows that is kept, the most certain first", fontsize=8)
    figures.save(picture, folder, "sparsification")
