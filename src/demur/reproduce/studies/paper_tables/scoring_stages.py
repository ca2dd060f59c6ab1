"""Stages that score every set by every method."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur.reproduce.stages import Stage
from demur.reproduce.studies.paper_tables.compared_methods import ComparedMethods
from demur.reproduce.studies.paper_tables.methods import SECONDS_BETWEEN_SAVES, Methods, write_sets

MEASURES = ("pairwise", "average", "reverse", "bma")
CELLS = ("A1", "A2", "A3", "B1", "C1")
"""The cells of the table of measures that need a given model, here the deployed network."""
RULES = ("brier", "spherical", "zero_one")
"""Rules other than the log loss, for the comparison with labels from people."""
_MOST_MEMBERS_FOR_RULES = 100
"""Members that are scored by those rules: their means settle early, and these rules are slower."""
_SECONDS_PER_LOGIT = 1.5e-9
"""For a logit of the last layer and its share of the sums, on two cores, for the plan."""


class ScoringStages:
    """The stages that score.

    Parameters
    ----------
    methods
        The methods of the study.
    """

    def __init__(self, methods: Methods) -> None:
        self.methods, self.config, self.stages = methods, methods.config, methods.stages
        self.compared = ComparedMethods(methods)

    def plan_scores(self, name: str) -> Stage:
        """Return the stage that scores the sets by a method; its folder has `SET.npz`."""
        if name not in self.config.tabled:
            return self.compared.plan_scores(name)

        def make(folder: Path) -> None:
            self._score_sets(name, self.config.scored, folder, "log", (*MEASURES, *CELLS), "")

        return self._plan_stage(f"score/{name}", name, make, {})

    def plan_rules(self, name: str) -> Stage:
        """Return the stage that scores `id` by the other rules; its folder has `id-RULE.npz`."""

        def make(folder: Path) -> None:
            for rule in RULES:
                if not (folder / f"id-{rule}.npz").exists():
                    self._score_sets(name, ["id"], folder, rule, ("pairwise", "average"), f"-{rule}")

        return self._plan_stage(
            f"rules/{name}", name, make, {"rules": RULES, "members": _MOST_MEMBERS_FOR_RULES}
        )

    def _score_sets(
        self, name: str, sets: list[str], folder: Path, rule: str, measures: tuple[str, ...], ending: str
    ) -> None:
        """Score sets by a method, and write a file for each set."""
        at_most = None if rule == "log" else _MOST_MEMBERS_FOR_RULES
        posterior, loader, order = self.methods.build_posterior(name, sets, folder, at_most)
        scores = demur.score(
            posterior, loader, measures=measures, rule=rule, order=order,
            checkpoint=folder / f"scoring{ending}.npz", every=SECONDS_BETWEEN_SAVES,
        )  # fmt: skip
        rows = {each: np.arange(self.methods.encoding.inputs.get_rows(each).size) for each in sets}
        write_sets(folder, scores.columns, rows, ending)
        if (folder / "chain").is_dir():
            shutil.rmtree(folder / "chain")

    def _plan_stage(
        self, stage: str, name: str, make: Callable[[Path], object], facts: dict[str, Any]
    ) -> Stage:
        given = self.methods.get_settings(name)
        inputs = sum(self.methods.encoding.inputs.get_rows(each).size for each in self.config.scored)
        members = given.get("samples") or given.get("members") or len(self.methods.list_networks(name))
        seconds = inputs * members * 1000 * _SECONDS_PER_LOGIT
        facts = {"kind": self.config.methods[name]["kind"], **given, "seed": self.config.seed, **facts}
        return Stage(stage, make, facts, self.methods.list_requirements(name), seconds, inputs * 3e-4)
