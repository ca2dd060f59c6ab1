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
from demur.reproduce.records import name_columns
from demur.stores import make_directory, write_columns

_MEASURES = ("average", "pairwise", "reverse")
_Posterior = Beta | Uniform | Deltas

POSTERIORS: dict[str, _Posterior] = {
    "uniform(0,1)": Uniform(0.0, 1.0),
    "beta(5,5)": Beta(5.0, 5.0),
    "beta(0.4,0.4)": Beta(0.4, 0.4),
    "uniform(0.3,0.7)": Uniform(0.3, 0.7),
    "uniform(0.5,0.9)": Uniform(0.5, 0.9),
    "deltas(0,1)": Deltas([0.0, 1.0]),
}


class BernoulliResults(NamedTuple):
    """Uncertainties of the posteriors, and the files that were written."""

    study: list[Panel]
    twins: list[Panel]
    files: list[Path]


def run_bernoulli(out: Path, *, force: bool = False) -> BernoulliResults:
    """Compute the study; write tables, figures and the explorer to a directory.

    Parameters
    ----------
    out
        The directory, which must be new or empty.
    force
        Allow a directory that has files in it.
    """
    figures.require_matplotlib("the figures")
    make_directory(out, force=force)
    study = [build_panel(name, posterior) for name, posterior in POSTERIORS.items()]
    alike = [build_panel(name, posterior) for name, posterior in _find_twins().items()]
    files = [out / "bernoulli.csv", out / "twins.csv"]
    write_columns(files[0], _list_rows(study), force=force)
    write_columns(files[1], _list_rows(alike), force=force)
    files += figures.save(bernoulli_figure.draw_posteriors(study), out, "bernoulli")
    files += figures.save(bernoulli_figure.draw_posteriors(alike), out, "twins")
    files.append(explorer.write_explorer(out / "explorer.html"))
    return BernoulliResults(study, alike, files)


def _find_twins() -> dict[str, _Posterior]:
    """Return a uniform, a Beta and a mixture of deltas that the current measure cannot tell apart.

    All have mean 1/2, hence the same total; the free parameter of each makes the expected entropy agree too.
    """
    uniform = Uniform(0.1, 0.9)
    target = float(decompose(uniform).aleatoric)

    def build_beta(log_a: float) -> Beta:
        return Beta(math.exp(log_a), math.exp(log_a))

    def build_deltas(point: float) -> Deltas:
        return Deltas([point, 1 - point])

    a = math.exp(_find_root(lambda x: _compute_excess(build_beta(x), target), -3.0, 5.0))
    point = _find_root(lambda x: _compute_excess(build_deltas(x), target), 0.01, 0.49)
    return {
        "uniform(0.1,0.9)": uniform,
        f"beta({a!r},{a!r})": Beta(a, a),
        f"deltas({point!r},{1 - point!r})": build_deltas(point),
    }


def _compute_excess(posterior: SecondOrder, target: float) -> float:
    """Return by how much the expected entropy is above the target."""
    return float(decompose(posterior).aleatoric) - target


def _find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a function, to the last digits."""
    from scipy import optimize

    find: Any = optimize.brentq
    return float(find(function, low, high, xtol=1e-15, rtol=1e-15))


def build_panel(name: str, posterior: _Posterior) -> Panel:
    """Return a posterior with its uncertainties, as the figure takes it."""
    parts = {}
    for measure in _MEASURES:
        found = decompose(posterior, measure=measure)
        parts[measure] = (float(found.total), float(found.aleatoric), float(found.epistemic))
    masses = None
    if isinstance(posterior, Deltas):
        masses = (posterior.points, np.full(len(posterior.points), 1 / len(posterior.points)))
    return Panel(
        name, _write_formula(posterior), float(posterior.mean), _compute_density(posterior), masses, parts
    )


def _write_formula(posterior: _Posterior) -> str:
    """Return a posterior as a formula."""
    if isinstance(posterior, Uniform):
        return rf"$\mathcal{{U}}\,[{_round_parameter(posterior.lo)},\,{_round_parameter(posterior.hi)}]$"
    if isinstance(posterior, Beta):
        return rf"$\mathrm{{Beta}}\,({_round_parameter(posterior.a)},\,{_round_parameter(posterior.b)})$"
    first, second = (_round_parameter(point) for point in posterior.points)
    return rf"$\frac{{1}}{{2}}\,\delta_{{{first}}} + \frac{{1}}{{2}}\,\delta_{{{second}}}$"


def _round_parameter(value: np.ndarray) -> str:
    """Return a parameter with at most four digits."""
    return f"{float(value):.4g}"


def _compute_density(posterior: _Posterior) -> tuple[np.ndarray, np.ndarray] | None:
    """Return positions and density for a curve; None for point masses."""
    if isinstance(posterior, Deltas):
        return None
    if isinstance(posterior, Uniform):
        lo, hi = float(posterior.lo), float(posterior.hi)
        return np.array([lo, lo, hi, hi]), np.array([0, 1, 1, 0]) / (hi - lo)
    from scipy.special import betaln, xlog1py, xlogy

    # Closer together at the ends, where the density may be steep.
    places = (1 - np.cos(np.linspace(0, np.pi, 802)))[1:-1] / 2
    a, b = float(posterior.a), float(posterior.b)
    return places, np.exp(xlogy(a - 1, places) + xlog1py(b - 1, -places) - betaln(a, b))


def _list_rows(panels: Sequence[Panel]) -> dict[str, np.ndarray]:
    """Return the table, a row for each posterior and measure."""
    rows = [(each.name, measure, *each.parts[measure]) for each in panels for measure in _MEASURES]
    names = ("posterior", "measure", "total", "aleatoric", "epistemic")
    return name_columns(names, rows)
