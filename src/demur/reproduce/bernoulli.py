"""The Bernoulli study: six posteriors over the parameter of a coin, and three that one measure confuses.

Schweighofer et al. (2023), appendix "Illustrative Example: Bernoulli Distribution", after Wimmer et al.
(2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from demur.decompose import decompose
from demur.predictions import Beta, Deltas, SecondOrder, Uniform
from demur.report import bernoulli_figure, explorer, figures
from demur.report.bernoulli_figure import Panel
from demur.stores import make_directory, write_columns

_MEASURES = ("average", "pairwise", "reverse")
_Study = Beta | Uniform | Deltas

POSTERIORS: dict[str, _Study] = {
    "uniform(0,1)": Uniform(0.0, 1.0),
    "beta(5,5)": Beta(5.0, 5.0),
    "beta(0.4,0.4)": Beta(0.4, 0.4),
    "uniform(0.3,0.7)": Uniform(0.3, 0.7),
    "uniform(0.5,0.9)": Uniform(0.5, 0.9),
    "deltas(0,1)": Deltas([0.0, 1.0]),
}


class Results(NamedTuple):
    """What the study found and where it is."""

    study: list[Panel]
    twins: list[Panel]
    files: list[Path]


def run(out: Path, *, force: bool = False) -> Results:
    """Compute the study; write tables, figures and explorer to a directory, which must be new or empty.

    Parameters
    ----------
    out
        The directory.
    force
        Write into a directory that has files in it.
    """
    figures.require_matplotlib("the figures")
    make_directory(out, force=force)
    study = [panel(name, posterior) for name, posterior in POSTERIORS.items()]
    alike = [panel(name, posterior) for name, posterior in twins().items()]
    files = [out / "bernoulli.csv", out / "twins.csv"]
    write_columns(files[0], _columns(study), force=force)
    write_columns(files[1], _columns(alike), force=force)
    files += figures.save(bernoulli_figure.draw_posteriors(study), out, "bernoulli")
    files += figures.save(bernoulli_figure.draw_posteriors(alike), out, "twins")
    files.append(explorer.write_explorer(out / "explorer.html"))
    return Results(study, alike, files)


def twins() -> dict[str, _Study]:
    """Return a uniform, a Beta and a mixture of deltas that are one under the current measure.

    All have mean 1/2, so one total; the free parameter of each is where its expected entropy agrees too.
    """
    uniform = Uniform(0.1, 0.9)
    target = float(decompose(uniform).aleatoric)

    def balanced_beta(log_a: float) -> Beta:
        return Beta(math.exp(log_a), math.exp(log_a))

    def balanced_deltas(point: float) -> Deltas:
        return Deltas([point, 1 - point])

    a = math.exp(_root(lambda x: _excess(balanced_beta(x), target), -3.0, 5.0))
    point = _root(lambda x: _excess(balanced_deltas(x), target), 0.01, 0.49)
    return {
        "uniform(0.1,0.9)": uniform,
        f"beta({a!r},{a!r})": Beta(a, a),
        f"deltas({point!r},{1 - point!r})": balanced_deltas(point),
    }


def _excess(posterior: SecondOrder, target: float) -> float:
    """Return by how much the expected entropy is above the target."""
    return float(decompose(posterior).aleatoric) - target


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is 0, to the last digits."""
    from scipy import optimize

    find: Any = optimize.brentq
    return float(find(function, low, high, xtol=1e-15, rtol=1e-15))


def panel(name: str, posterior: _Study) -> Panel:
    """Return a posterior with its uncertainties, ready to be drawn."""
    parts = {}
    for measure in _MEASURES:
        found = decompose(posterior, measure=measure)
        parts[measure] = (float(found.total), float(found.aleatoric), float(found.epistemic))
    masses = None
    if isinstance(posterior, Deltas):
        masses = (posterior.points, np.full(len(posterior.points), 1 / len(posterior.points)))
    return Panel(name, title(posterior), float(posterior.mean), _density(posterior), masses, parts)


def title(posterior: _Study) -> str:
    """Write a posterior as a formula."""
    if isinstance(posterior, Uniform):
        return rf"$\mathcal{{U}}\,[{_short(posterior.lo)},\,{_short(posterior.hi)}]$"
    if isinstance(posterior, Beta):
        return rf"$\mathrm{{Beta}}\,({_short(posterior.a)},\,{_short(posterior.b)})$"
    first, second = (_short(point) for point in posterior.points)
    return rf"$\frac{{1}}{{2}}\,\delta_{{{first}}} + \frac{{1}}{{2}}\,\delta_{{{second}}}$"


def _short(value: np.ndarray) -> str:
    """Write a parameter with four digits at most."""
    return f"{float(value):.4g}"


def _density(posterior: _Study) -> tuple[np.ndarray, np.ndarray] | None:
    """Return places and density for a curve; None for point masses."""
    if isinstance(posterior, Deltas):
        return None
    if isinstance(posterior, Uniform):
        lo, hi = float(posterior.lo), float(posterior.hi)
        return np.array([lo, lo, hi, hi]), np.array([0, 1, 1, 0]) / (hi - lo)
    from scipy.special import betaln, xlog1py, xlogy

    # Closer together at the ends, where the density may rise steeply.
    places = (1 - np.cos(np.linspace(0, np.pi, 802)))[1:-1] / 2
    a, b = float(posterior.a), float(posterior.b)
    return places, np.exp(xlogy(a - 1, places) + xlog1py(b - 1, -places) - betaln(a, b))


def _columns(panels: Sequence[Panel]) -> dict[str, np.ndarray]:
    """Return the table: a row for each posterior and measure."""
    rows = [(each.name, measure, *each.parts[measure]) for each in panels for measure in _MEASURES]
    names = ("posterior", "measure", "total", "aleatoric", "epistemic")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
