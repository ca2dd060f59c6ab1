"""Draws the figures of the mathematics page, each for light and for dark pages.

python docs/figures/mathematics.py --out docs/_static
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import demur

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Theme(NamedTuple):
    """Colours on light or dark paper; Okabe and Ito's, told apart with any colour vision."""

    ink: str
    faint: str
    predictor: str
    truth: str
    aleatoric: str
    epistemic: str


THEMES = {
    "light": Theme("#1f2328", "#b4bac1", "#0072B2", "#D55E00", "#a3aab2", "#009E73"),
    "dark": Theme("#d6dae0", "#5a626c", "#56B4E9", "#E69F00", "#858d96", "#2fc99a"),
}

MEMBERS = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4]])  # those of the page's examples
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])  # where a certain prediction is drawn

POSTERIOR = (1.5, 3)  # Beta, of the probability of a Bernoulli outcome
GIVEN = {"predictor": 0.2, "truth": 0.6}  # the posterior's mode, and a model that stands off it
SIDES = ("given", "bma", "each")
FORMULAS = {
    "A1": r"$\mathrm{CE}(q, q')$",
    "A2": r"$\mathrm{CE}(q, \bar p)$",
    "A3": r"$\mathbb{E}_j\,\mathrm{CE}(q, p_j)$",
    "B1": r"$\mathrm{CE}(\bar p, q')$",
    "B2": r"$\mathrm{H}(\bar p)$",
    "B3": r"$\mathbb{E}_j\,\mathrm{CE}(\bar p, p_j)$",
    "C1": r"$\mathbb{E}_i\,\mathrm{CE}(p_i, q')$",
    "C2": r"$\mathbb{E}_i\,\mathrm{CE}(p_i, \bar p)$",
    "C3": r"$\mathbb{E}_i\mathbb{E}_j\,\mathrm{CE}(p_i, p_j)$",
}
LETTERS = {"B3": " (M)", "C2": " (I)", "C3": " (K)"}


def relation(theme: Theme) -> Figure:
    """Draw which divergences I, M and K average, among three members in the triangle of all predictions."""
    from matplotlib.figure import Figure

    places, average = MEMBERS @ CORNERS, MEMBERS.mean(axis=0) @ CORNERS
    pairs = [(places[i], places[j]) for i in range(3) for j in range(3) if i != j]
    panels = [
        ("average", "I: mutual information", r"$\mathrm{KL}(p_i \Vert \bar p)$", theme.predictor,
         [(p, average) for p in places]),
        ("reverse", "M: reverse mutual information", r"$\mathrm{KL}(\bar p \Vert p_j)$", theme.truth,
         [(average, p) for p in places]),
        ("pairwise", "K: expected pairwise divergence", r"$\mathrm{KL}(p_i \Vert p_j)$", theme.epistemic,
         pairs),
    ]  # fmt: skip
    figure = Figure(figsize=(8.2, 3.2))
    for column, (measure, title, divergence, colour, arrows) in enumerate(panels):
        axes = figure.add_axes((0.005 + 0.345 * column, 0.0, 0.3, 1.0))
        axes.set(xlim=(-0.12, 1.12), ylim=(-0.32, 1.13), aspect="equal")
        axes.axis("off")
        axes.plot(*CORNERS[[0, 1, 2, 0]].T, color=theme.faint, lw=1.0, solid_joinstyle="round")
        for begin, end in arrows:
            draw_arrow(axes, begin, end, colour, 0.16 if measure == "pairwise" else 0.0)
        draw_predictions(axes, places, average, theme, measure != "pairwise")
        value = float(demur.decompose(MEMBERS, measure=measure).epistemic)
        axes.text(0.5, 1.04, title, ha="center", color=theme.ink, fontsize=11)
        axes.text(
            0.5, -0.27, f"mean of {divergence} = {value:.4f}", ha="center", color=theme.ink, fontsize=11
        )
    for place, sign in ((0.3275, "+"), (0.6725, "=")):
        figure.text(place, 0.45, sign, ha="center", va="center", color=theme.ink, fontsize=22)
    return figure


def draw_arrow(axes: Axes, begin: np.ndarray, end: np.ndarray, colour: str, bend: float) -> None:
    """Draw an arrow from who draws the outcome to who is charged for it."""
    style = {
        "arrowstyle": "-|>,head_width=0.22,head_length=0.45",
        "connectionstyle": f"arc3,rad={bend}",
        "color": colour,
        "lw": 1.6,
        "shrinkA": 7,
        "shrinkB": 7,
    }
    axes.annotate("", xy=tuple(end), xytext=tuple(begin), arrowprops=style)


def draw_predictions(
    axes: Axes, places: np.ndarray, average: np.ndarray, theme: Theme, averaged: bool
) -> None:
    """Draw the members, their average if it takes part, and the names of the corners."""

    def label(text: str, place: np.ndarray, offset: tuple[float, float], colour: str, size: float) -> None:
        axes.annotate(
            text, tuple(place), offset, textcoords="offset points", ha="center", va="center",
            color=colour, fontsize=size,
        )  # fmt: skip

    if averaged:
        axes.plot(*average, "D", color=theme.ink, ms=6.5, mec="none")
        label(r"$\bar p$", average, (0, -13), theme.ink, 12)
    for index, (place, offset) in enumerate(zip(places, ((-14, 5), (14, 5), (0, 14)), strict=True)):
        axes.plot(*place, "o", color=theme.ink, ms=8, mec="none")
        label(f"$p_{index + 1}$", place, offset, theme.ink, 12)
    for name, corner, offset in zip("123", CORNERS, ((0, -9), (0, -9), (26, -2)), strict=True):
        label(f"class {name}", corner, offset, theme.ink, 9)


def beta_members(count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Return members (count, 2) and weights that stand for the posterior, by Gauss-Jacobi quadrature."""
    from scipy.special import roots_jacobi

    a, b = POSTERIOR
    nodes, weights = roots_jacobi(count, b - 1, a - 1)
    theta = (1 + nodes) / 2
    return np.stack([theta, 1 - theta], axis=1), weights / weights.sum()


def cells() -> dict[str, demur.Decomposition]:
    """Return the decomposition of the Bernoulli posterior in each cell of the table of measures."""
    members, weights = beta_members()

    def side(which: str, name: str) -> Any:
        return np.array([GIVEN[name], 1 - GIVEN[name]]) if which == "given" else which

    return {
        f"{'ABC'[i]}{j + 1}": demur.decompose(
            members,
            weights=weights,
            measure=demur.Measure(side(predictor, "predictor"), side(truth, "truth")),
        )
        for i, predictor in enumerate(SIDES)
        for j, truth in enumerate(SIDES)
    }


def table(theme: Theme) -> Figure:
    """Draw the nine cells of the table of measures for one Bernoulli posterior, a small panel each."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(8.2, 7.7))
    outer = figure.add_gridspec(3, 3, left=0.135, right=0.985, top=0.9, bottom=0.105, hspace=0.2, wspace=0.08)
    found = cells()
    widest = max(float(cell.total) for cell in found.values())
    for name in found:
        above, below = outer["ABC".index(name[0]), int(name[1]) - 1].subgridspec(
            2, 1, height_ratios=(3, 1), hspace=0.28
        ).subplots()  # fmt: skip
        draw_cell(above, name, theme)
        draw_bar(below, found[name], LETTERS.get(name, ""), widest, theme)
    rows = ("A: given q", "B: average", "C: each\nmember")
    columns = ("1: given q'", "2: average", "3: each member")
    for index, (row, column) in enumerate(zip(rows, columns, strict=True)):
        box = outer[index, index].get_position(figure)
        middle = (box.y0 + box.y1) / 2 + 0.03
        figure.text(0.125, middle, row, ha="right", va="center", fontsize=11, color=theme.predictor)
        figure.text((box.x0 + box.x1) / 2, 0.912, column, ha="center", fontsize=11, color=theme.truth)
    figure.text(0.125, 0.912, "predictor \\ truth", ha="right", color=theme.ink, fontsize=9)
    below = "probability of the outcome under the model, from 0 to 1"
    figure.text(0.56, 0.052, below, ha="center", color=theme.ink, fontsize=9.5)
    title = f"Posterior Beta{POSTERIOR}, given q = {GIVEN['predictor']} and q' = {GIVEN['truth']}"
    figure.text(0.56, 0.962, title, ha="center", color=theme.ink, fontsize=11.5)
    handles = [
        Patch(color=theme.predictor, label="predictor: draws the outcome (up)"),
        Patch(color=theme.truth, label="truth: is charged for it (down)"),
        Patch(color=theme.aleatoric, label="aleatoric (nats)"),
        Patch(color=theme.epistemic, label="epistemic (nats)"),
    ]
    figure.legend(
        handles=handles, loc="lower center", ncols=4, frameon=False, labelcolor=theme.ink, fontsize=9.5,
        handlelength=1.2, columnspacing=1.4,
    )  # fmt: skip
    return figure


def draw_cell(axes: Axes, name: str, theme: Theme) -> None:
    """Draw the predictor of a cell above the line and its truth below it."""
    draw_side(axes, SIDES["ABC".index(name[0])], GIVEN["predictor"], theme.predictor, 1.0)
    draw_side(axes, SIDES[int(name[1]) - 1], GIVEN["truth"], theme.truth, -1.0)
    axes.axhline(0, color=theme.ink, lw=0.8)
    axes.set(xlim=(-0.02, 1.02), ylim=(-1.08, 1.08), yticks=[])
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(colors=theme.ink, length=2.5, labelsize=8, pad=1.5)
    axes.spines[:].set_color(theme.faint)
    axes.patch.set_visible(False)
    axes.text(
        0.975, 0.93, f"{name}  {FORMULAS[name]}", transform=axes.transAxes, ha="right", va="top",
        color=theme.ink, fontsize=10,
    )  # fmt: skip


def draw_side(axes: Axes, which: str, given: float, colour: str, up: float) -> None:
    """Draw one side's models: a stem for a single one, the posterior's density for each member."""
    from scipy.stats import beta

    if which == "each":
        theta = np.linspace(0, 1, 201)
        density = up * beta.pdf(theta, *POSTERIOR) / 2.4
        axes.fill_between(theta, density, 0, color=colour, alpha=0.3, lw=0)
        axes.plot(theta, density, color=colour, lw=1.4)
        return
    place = given if which == "given" else beta.mean(*POSTERIOR)
    axes.plot([place, place], [0, 0.62 * up], color=colour, lw=1.8, solid_capstyle="butt")
    axes.plot(place, 0.62 * up, "o" if which == "given" else "D", color=colour, ms=6, mec="none")


def draw_bar(axes: Axes, cell: demur.Decomposition, letter: str, widest: float, theme: Theme) -> None:
    """Draw the parts of a cell side by side, with the sum above them."""
    aleatoric, epistemic = float(cell.aleatoric), float(cell.epistemic)
    axes.barh(0, aleatoric, color=theme.aleatoric, height=0.8)
    axes.barh(0, epistemic, left=aleatoric, color=theme.epistemic, height=0.8)
    axes.set(xlim=(-0.02 * widest, 1.02 * widest), ylim=(-0.45, 1.75))
    axes.axis("off")
    axes.text(
        0, 0.62, f"{float(cell.total):.4f} = {aleatoric:.4f} + {epistemic:.4f}{letter}",
        color=theme.ink, fontsize=9,
    )  # fmt: skip


FIGURES = {"relation": relation, "table": table}


def main() -> None:
    """Write every figure as SVG, the same bytes each time."""
    import matplotlib

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/_static"))
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "demur", "mathtext.fontset": "dejavusans"}):
        for name, draw in FIGURES.items():
            for theme, colours in THEMES.items():
                path = folder / f"{name}-{theme}.svg"
                draw(colours).savefig(path, transparent=True, metadata={"Date": None})
                print(path)


if __name__ == "__main__":
    main()
