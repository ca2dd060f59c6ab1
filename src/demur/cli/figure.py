"""The figure of the demo: who is uncertain, and how two measures of it compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

# Okabe and Ito's blue and vermilion: told apart with any colour vision, and in grey.
KNOWN, HELD_OUT = "#0072B2", "#D55E00"


def draw(path: Path, columns: Mapping[str, np.ndarray], held_out: np.ndarray) -> None:
    """Draw histograms of K, and K against I, of known and held-out inputs.

    Parameters
    ----------
    path
        The .png file to write.
    columns
        Scores, with pairwise_epistemic (K) and average_epistemic (I), (inputs,) each.
    held_out
        (inputs,), True for inputs of classes that no member was trained on.
    """
    from matplotlib.figure import Figure

    pairwise, average = columns["pairwise_epistemic"], columns["average_epistemic"]
    shown = np.isfinite(pairwise) & (average > 0)  # what logarithmic axes can show
    groups = [
        ("known digits (0 to 7)", shown & ~held_out, KNOWN, "o"),
        ("held-out digits (8, 9)", shown & held_out, HELD_OUT, "^"),
    ]
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.08})

    bins = np.geomspace(pairwise[shown].min(), pairwise[shown].max(), 41)
    for label, chosen, colour, _ in groups:
        left.hist(
            pairwise[chosen],
            bins=bins,
            weights=np.full(chosen.sum(), 100 / chosen.sum()),
            color=colour,
            alpha=0.55,
            edgecolor=colour,
            histtype="stepfilled",
            label=label,
        )
    left.set(
        xscale="log",
        xlabel="expected pairwise KL divergence K (nats)",
        ylabel="inputs (% of each kind)",
        title="Epistemic uncertainty of known and unknown digits",
    )
    left.yaxis.get_major_locator().set_params(integer=True)
    left.legend(frameon=False, loc="upper left", fontsize="small")

    for label, chosen, colour, marker in groups:
        right.scatter(
            average[chosen],
            pairwise[chosen],
            s=9,
            c=colour,
            marker=marker,
            alpha=0.5,
            label=label,
            linewidths=0,
        )
    ends = np.array([average[shown].min(), average[shown].max()])
    right.plot(ends, 2 * ends, color="black", lw=0.8, ls="--", label="K = 2 I: members nearly agree")
    right.plot(ends, ends, color="black", lw=0.8, ls=":", label="K = I: the least that K can be")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="mutual information I (nats)",
        ylabel="expected pairwise KL divergence K (nats)",
        title="Two measures of it, one point for each input",
    )
    right.legend(frameon=False, loc="upper left", fontsize="small", markerscale=2)

    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, alpha=0.2)
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=200)
