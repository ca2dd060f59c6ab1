"""The stages of the study, from the features to the results page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from demur.atomic import write_text
from demur.reproduce.records import convert_to_columns
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.precision import feature_file, figures, members, section, tables
from demur.reproduce.studies.precision.formulas import EXACT, FORMULAS
from demur.stores import read_columns, write_columns

_LEVELS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_FINE_LEVELS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
_QUICK_LEVELS = (1e-3, 1e-1, 1.0)
_QUICK_INPUTS, _QUICK_DRAWS = 400, 2
_INPUTS_PER_BATCH = 256

_DRAWS = {"perturbed": 5, "last-layer-ensemble": 3, "mc-dropout": 3, "csg-hmc": 3}
_FITS = {
    "last-layer-ensemble": (members.fit_heads, members.get_heads_settings),
    "csg-hmc": (members.fit_chain, members.get_chain_settings),
}


def describe_study(source: Path, out: Path, *, seed: int = 0, quick: bool = False) -> Study:
    """Read and check the features; return the study.

    Parameters
    ----------
    source
        The .npz file, or a folder that has it; see `feature_file.read_features`.
    out
        The folder of the run.
    seed
        Fixes all draws.
    quick
        Few inputs, levels and draws, for a first look and for tests.
    """
    given = feature_file.read_features(source, _QUICK_INPUTS if quick else None)
    planner = _Planner(given, Stages(out), seed, quick)
    scored = [
        planner.plan_scores(name, draw)
        for name, draws in _DRAWS.items()
        for draw in range(_QUICK_DRAWS if quick else draws)
    ]
    positive = np.arange(len(given.test)) >= len(given.known)
    make = partial(_write_results, planner.stages, scored, positive)
    facts = {"quick": quick, "version": section.VERSION}
    last = Stage("results", make, facts, scored, seconds=10, megabytes=1)
    pictures = {f"precision-{name}": name for name in ("textures.png", "posteriors.png")}
    return Study("precision", planner.stages, [last], pictures=pictures)


class _Planner:
    """Plans the stages of one draw of members."""

    def __init__(self, given: feature_file.FeatureData, stages: Stages, seed: int, quick: bool) -> None:
        self.given, self.stages, self.seed, self.quick = given, stages, seed, quick

    def plan_scores(self, name: str, draw: int) -> Stage:
        """Return the stage that scores a draw of members, a file for each level."""
        given, inputs = self.given, len(self.given.test)
        classes, features = given.weight.shape
        levels = _FINE_LEVELS if name == "perturbed" else _LEVELS
        levels = _QUICK_LEVELS if self.quick else levels
        seed = 1000 * self.seed + draw
        facts = {"data": given.mark, "quick": self.quick, "seed": seed, "members": members.MEMBERS}
        fit = self._plan_fit(name, draw, facts) if name in _FITS else None

        def make(folder: Path) -> None:
            if name == "perturbed":
                drawn: Any = members.perturb_weights(given, members.MEMBERS, seed)
            elif name == "mc-dropout":
                drawn = members.ScaledDropout(given, members.MEMBERS, seed)
            else:
                assert fit is not None
                drawn = members.read_heads(given, self.stages.complete(fit))
            for level in levels:
                path = folder / f"{level:.0e}.npz"
                if not path.exists():
                    write_columns(path, _compute_scores(drawn.scale(level), given, checked=draw == 0))

        # Seconds for each level, as measured on two cores.
        seconds = members.MEMBERS * inputs * classes * (3e-7 + 4e-11 * features)
        megabytes = (len(FORMULAS) + 1) * 2 * inputs * 8e-6
        facts |= {"levels": levels, "arithmetics": [each.name for each in FORMULAS]}
        return Stage(
            f"score/{name}/{draw}", make, facts, [fit] if fit else [],
            seconds=len(levels) * seconds, megabytes=len(levels) * megabytes,
        )  # fmt: skip

    def _plan_fit(self, name: str, draw: int, facts: dict[str, Any]) -> Stage:
        """Return the stage that fits a draw of members."""
        fit, get_settings = _FITS[name]
        size = members.MEMBERS * self.given.weight.size * 4e-6

        def make(folder: Path) -> None:
            fit(self.given, folder, members.MEMBERS, facts["seed"], quick=self.quick)

        facts = facts | get_settings(self.quick, len(self.given.fit))
        return Stage(f"fit/{name}/{draw}", make, facts, seconds=size, megabytes=size)


def _compute_scores(
    logits: members.Logits, given: feature_file.FeatureData, *, checked: bool
) -> dict[str, np.ndarray]:
    """Return I and K of all test inputs by all formulas, and `nll` and `right` of known images.

    Parameters
    ----------
    checked
        Also compute I and K from logits in float64.
    """
    import torch

    columns: dict[str, list[np.ndarray]] = {}

    def add(name: str, values: Any) -> None:
        columns.setdefault(name, []).append(values.to(torch.float64).numpy())

    test = torch.from_numpy(given.test)
    with torch.no_grad():
        for start in range(0, len(test), _INPUTS_PER_BATCH):
            places = np.arange(start, min(start + _INPUTS_PER_BATCH, len(test)))
            z = logits(test[places], places, torch.float32)
            for formula in FORMULAS:
                for measure, values in zip("IK", formula(z), strict=True):
                    add(f"{formula.name}|{measure}", values)
            if checked:
                double = logits(test[places], places, torch.float64)
                for measure, values in zip("IK", EXACT.compute(double), strict=True):
                    add(f"{tables.FLOAT64_LOGITS}|{measure}", values)
            average = torch.logsumexp(torch.log_softmax(z, -1), 0) - np.log(len(z))
            labels = torch.from_numpy(np.resize(given.known_label, len(test))[places])
            add("nll", -average[torch.arange(len(places)), labels])
            add("right", average.argmax(-1) == labels)
    found = {name: np.concatenate(parts) for name, parts in columns.items()}
    for name in ("nll", "right"):
        found[name][len(given.known) :] = np.nan  # textures have no class
    return found


def _write_results(stages: Stages, scored: list[Stage], positive: np.ndarray, folder: Path) -> None:
    """Write the tables, the figures and the section of the results page."""
    found: dict[tuple[str, float], list[dict[str, np.ndarray]]] = {}
    for stage in scored:
        name = stage.name.split("/")[1]
        for level in stage.facts["levels"]:
            columns = read_columns(stages.complete(stage) / f"{level:.0e}.npz")
            found.setdefault((name, level), []).append(columns)
    curves, gaps, checks, fits = tables.build_tables(found, positive)
    for name, table in (("curves", curves), ("gaps", gaps), ("check", checks), ("members", fits)):
        write_columns(folder / f"{name}.csv", convert_to_columns(table), force=True)
    figures.write_figures(curves, folder)
    sizes = int((~positive).sum()), int(positive.sum())
    write_text(folder / "section.md", section.compose_section(curves, gaps, checks, fits, sizes))
