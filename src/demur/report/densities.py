"""Figures of scores: their histograms by set, and one score against another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.report.downsampling import count_bins, spread_by_rank
from demur.report.figures import COLOURS, INFINITY, MARKERS, drawing, percent_axis
from demur.tasks.estimate import check_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS_PER_SET = 2000  # points of a set: more are only darker


def density_figure(sets: Mapping[str, Any], *, label: str = "score", bins: int = 50) -> Figure:
    """Draw the share of each set's inputs per bin of a score.

    The axis is logarithmic where positive scores span a factor of 100. What has no place on it, infinity
    and what is next to 0, has a bar of its own beside it.

    Parameters
    ----------
    sets : dict
        Scores by the name of a set, (inputs,) each.
    label : str
        Label of the axis.
    bins : int
        How many.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> figure = demur.report.density_figure({"known": rng.gamma(1, 1, 500), "unknown": rng.gamma(3, 1, 500)})
    """
    found = count_bins({name: check_scores(name, values) for name, values in sets.items()}, bins)
    with drawing(4.6, 2.9) as (figure, axes):
        edges = np.log10(found.edges) if found.logarithmic else found.edges
        width = edges[1] - edges[0]
        slots = {"less": edges[0] - 3 * width, INFINITY: edges[-1] + 3 * width}
        there = {"less": any(found.below.values()), INFINITY: any(found.infinite.values())}
        for index, name in enumerate(sets):
            colour, number = COLOURS[index % len(COLOURS)], found.number[name]
            style: dict[str, Any] = {"edgecolor": colour, "linewidth": 1.2}
            shade = {"facecolor": (*_to_rgb(colour), 0.22), **style}
            axes.stairs(found.counts[name] / number, edges, fill=True, label=name, **shade)
            beside = {"less": found.below[name], INFINITY: found.infinite[name]}
            for slot, count in beside.items():
                if there[slot]:
                    axes.bar(slots[slot], count / number, 2 * width, **shade)
        _label_bins(axes, found.logarithmic, {slots[s]: s for s, shown in there.items() if shown}, edges)
        axes.set(xlabel=label, ylabel="share of each set", ylim=(0, None))
        percent_axis(axes.yaxis)
        axes.legend(frameon=False)
    return figure


def _label_bins(axes: Any, logarithmic: bool, slots: Mapping[float, str], edges: np.ndarray) -> None:
    """Write powers of ten, or plain numbers, under the bins, and names under the bars beside them."""
    from matplotlib.ticker import MaxNLocator

    room = MaxNLocator(5, integer=logarithmic, steps=[1, 2, 5, 10]).tick_values(edges[0], edges[-1])
    apart = 5 * (edges[1] - edges[0])
    inside = [float(x) for x in room if edges[0] <= x <= edges[-1]]
    places = [x for x in inside if all(abs(x - slot) >= apart for slot in slots)]
    names = [f"$10^{{{x:.0f}}}$" if logarithmic else f"{x:g}" for x in places]
    axes.set_xticks([*places, *slots], [*names, *slots.values()])


def scatter_figure(
    sets: Mapping[str, tuple[Any, Any]],
    *,
    labels: tuple[str, str] = ("mutual information I (nats)", "expected pairwise KL divergence K (nats)"),
) -> Figure:
    """Draw K against I, one point for each input, with the lines K = I and K = 2 I.

    K is at least I, and 2 I where members nearly agree. Inputs with an infinite K, or with an I of 0, are
    drawn at the edge. Of more than 2000 inputs of a set as many are drawn, evenly by rank of K.

    Parameters
    ----------
    sets : dict
        I and K by the name of a set, (inputs,) each.
    labels : pair of str
        Labels of the axes.

    Examples
    --------
    >>> p = np.random.default_rng(0).dirichlet(np.ones(4), (5, 300))
    >>> i, k = (demur.decompose(p, measure=m).epistemic for m in ("average", "pairwise"))
    >>> figure = demur.report.scatter_figure({"inputs": (i, k)})
    """
    pairs = {n: (check_scores("I", i), check_scores("K", k)) for n, (i, k) in sets.items()}
    pooled = np.concatenate([values for pair in pairs.values() for values in pair])
    shown = pooled[(pooled > 0) & np.isfinite(pooled)]
    high = 2 * float(shown.max()) if len(shown) else 1.0
    low = max(float(shown.min()) / 2, high * 1e-10) if len(shown) else 0.1
    with drawing(4.2, 3.6) as (figure, axes):
        for index, (name, (i, k)) in enumerate(pairs.items()):
            some = spread_by_rank(k, _POINTS_PER_SET)
            colour = COLOURS[index % len(COLOURS)]
            style = {"s": 9, "marker": MARKERS[index % len(MARKERS)], "color": colour, "rasterized": True}
            i, k = np.maximum(i[some], low), np.clip(k[some], low, high)
            axes.scatter(i, k, alpha=0.45, linewidths=0, label=name, clip_on=False, zorder=3, **style)
        ends = np.array([low, high])
        axes.plot(ends, 2 * ends, "--", color="black", lw=0.8, label="K = 2 I: members nearly agree")
        axes.plot(ends, ends, ":", color="black", lw=0.8, label="K = I: the least that K can be")
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if any(np.isinf(k).any() for _, k in pairs.values()):
            axes.annotate(
                INFINITY, (0, 1), (-6, 0), "axes fraction", "offset points", ha="right", va="center"
            )
        axes.legend(frameon=False, loc="upper left", markerscale=1.5)
    return figure


def _to_rgb(colour: str) -> tuple[float, float, float]:
    """Return red, green and blue of a colour."""
    from matplotlib.colors import to_rgb

    return to_rgb(colour)
