"""The stages of the study, from the features to the page of results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.planned import Planned
from demur.reproduce.precision import data, figure, members, tables, text
from demur.reproduce.precision.arithmetic import ARITHMETICS, EXACT
from demur.reproduce.results import add_section
from demur.reproduce.stages import Say, Stage, Stages
from demur.stores import read_columns, write_columns

_LEVELS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_FINE_LEVELS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
_QUICK_LEVELS = (1e-3, 1e-1, 1.0)
_ROWS = 256
"""Inputs that are scored at a time."""

_DRAWS = {"perturbed": 5, "last-layer-ensemble": 3, "mc-dropout": 3, "csg-hmc": 3}
_FITS = {
    "last-layer-ensemble": (members.fit_heads, members.heads_settings),
    "csg-hmc": (members.fit_chain, members.chain_settings),
}


def study(
    source: Path, out: Path, *, seed: int = 0, quick: bool = False, say: Say = lambda line: None
) -> Planned:
    """Return the study of a file of features; nothing is computed yet but what must be known to plan it.

    Parameters
    ----------
    source
        The .npz, or a folder that has it; see `data.read`.
    out
        The folder of the run.
    seed
        Of all draws.
    quick
        Few inputs, levels and draws, for a first look and for tests.
    """
    given = data.read(source, 400 if quick else None)
    stages = Stages(out, say)
    inputs, (classes, features) = len(given.known) + len(given.strange), given.weight.shape
    numbers = members.MEMBERS * inputs * classes
    seconds = numbers * (3e-7 + 4e-11 * features)  # for each level, as measured on two cores
    megabytes = (len(ARITHMETICS) + 1) * 2 * inputs * 8e-6
    size = members.MEMBERS * given.weight.size * 4e-6
    scored = []
    for name, draws in _DRAWS.items():
        levels = _FINE_LEVELS if name == "perturbed" else _LEVELS
        levels = _QUICK_LEVELS if quick else levels
        for draw in range(2 if quick else draws):
            own = 1000 * seed + draw
            facts: dict[str, Any] = {
                "data": given.mark,
                "quick": quick,
                "seed": own,
                "members": members.MEMBERS,
            }
            before = []
            if name in _FITS:
                fit, settings = _FITS[name]
                make = partial(_fit_stage, fit, given, own, quick)
                before = [
                    Stage(
                        f"fit/{name}/{draw}",
                        make,
                        facts | settings(quick, len(given.fit)),
                        seconds=size,
                        megabytes=size,
                    )
                ]
            score = partial(_score_stage, stages, given, name, before, own, levels, draw == 0)
            facts = facts | {"levels": levels, "arithmetics": [each.name for each in ARITHMETICS]}
            scored.append(
                Stage(
                    f"score/{name}/{draw}",
                    score,
                    facts,
                    before,
                    seconds=len(levels) * seconds,
                    megabytes=len(levels) * megabytes,
                )
            )
    labels = np.arange(inputs) >= len(given.known)
    last = Stage(
        "results", partial(_results_stage, stages, scored, labels), {"quick": quick}, scored,
        seconds=10, megabytes=1,
    )  # fmt: skip
    return Planned(stages, last)


def _fit_stage(fit: Callable[..., None], given: data.Data, seed: int, quick: bool, folder: Path) -> None:
    """Fit members to the images that are there for it."""
    fit(given, folder, members.MEMBERS, seed, quick=quick)


def _score_stage(
    stages: Stages,
    given: data.Data,
    name: str,
    before: list[Stage],
    seed: int,
    levels: tuple[float, ...],
    checked: bool,
    folder: Path,
) -> None:
    """Write the scores of one draw of members, a file for each level."""
    if name == "perturbed":
        drawn: Any = members.perturbed(given, members.MEMBERS, seed)
    elif name == "mc-dropout":
        drawn = members.Dropout(given, members.MEMBERS, seed)
    else:
        drawn = members.read_heads(given, stages.made(before[0]))
    for level in levels:
        path = folder / f"{level:.0e}.npz"
        if not path.exists():
            write_columns(path, scores(drawn.at(level), given, checked))


def scores(logits: members.Logits, given: data.Data, checked: bool) -> dict[str, np.ndarray]:
    """Return I and K of all inputs of the test by all arithmetics; `nll` and `right` of known images."""
    import torch

    columns: dict[str, list[np.ndarray]] = {}

    def add(name: str, values: Any) -> None:
        columns.setdefault(name, []).append(values.to(torch.float64).numpy())

    test = torch.from_numpy(given.test)
    with torch.no_grad():
        for start in range(0, len(test), _ROWS):
            places = np.arange(start, min(start + _ROWS, len(test)))
            z = logits(test[places], places, torch.float32)
            for arithmetic in ARITHMETICS:
                for measure, values in zip("IK", arithmetic(z), strict=True):
                    add(f"{arithmetic.name}|{measure}", values)
            if checked:
                double = logits(test[places], places, torch.float64)
                for measure, values in zip("IK", EXACT.scores(double), strict=True):
                    add(f"{tables.CHECK}|{measure}", values)
            average = torch.logsumexp(torch.log_softmax(z, -1), 0) - np.log(len(z))
            labels = torch.from_numpy(np.resize(given.known_label, len(test))[places])
            add("nll", -average[torch.arange(len(places)), labels])
            add("right", average.argmax(-1) == labels)
    found = {name: np.concatenate(parts) for name, parts in columns.items()}
    for name in ("nll", "right"):
        found[name][len(given.known) :] = np.nan  # textures have no class
    return found


def _results_stage(stages: Stages, scored: list[Stage], positive: np.ndarray, folder: Path) -> None:
    """Write the tables, the figures and the section of the page."""
    found: dict[tuple[str, float], list[dict[str, np.ndarray]]] = {}
    for stage in scored:
        name = stage.name.split("/")[1]
        for level in stage.facts["levels"]:
            columns = read_columns(stages.made(stage) / f"{level:.0e}.npz")
            found.setdefault((name, level), []).append(columns)
    curves, gaps, checks, fits = tables.all_of(found, positive)
    for name, table in (("curves", curves), ("gaps", gaps), ("check", checks), ("members", fits)):
        write_columns(folder / f"{name}.csv", tables.columns(table), force=True)
    figure.write(curves, folder)
    sizes = int((~positive).sum()), int(positive.sum())
    (folder / "section.md").write_text(text.section(curves, gaps, checks, fits, sizes), "utf-8")


def add_to_page(files: list[Path], page: Path) -> None:
    """Put the study's section into the page of results."""
    by_name = {path.name: path for path in files}
    pictures = {f"precision-{name}": by_name[name] for name in ("textures.png", "posteriors.png")}
    add_section(page, "precision", by_name["section.md"].read_text("utf-8"), pictures)
