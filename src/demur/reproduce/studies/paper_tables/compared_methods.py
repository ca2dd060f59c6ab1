"""Methods that are only compared with the reference: QUAM on some of the inputs, and scores of one pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur.atomic import copy_file
from demur.posteriors import QUAM, one_pass
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.stages import Stage
from demur.reproduce.studies.paper_tables.input_sets import InputSets
from demur.reproduce.studies.paper_tables.methods import SECONDS_BETWEEN_SAVES, Methods, write_sets
from demur.reproduce.studies.paper_tables.one_pass_networks import OnePassNetworks

_CHOICE_STREAM = 0x90A4
"""Separates the choice of the inputs that QUAM searches from other uses of the same seed."""
_SEARCHED_TOGETHER = 4
"""Inputs of a batch, after each of which the work may be saved."""
_SECONDS_PER_STEP = 0.02
"""Of a search, for the plan."""
_STUDY_KEYS = ("inputs", "sets", "whole_train")
"""Settings of QUAM in a study that are none of its own."""


class ComparedMethods:
    """The stages that score by these methods; the folder of each has `SET.npz` with the numbers of inputs.

    Parameters
    ----------
    methods
        The methods of the study.
    """

    def __init__(self, methods: Methods) -> None:
        self.methods, self.config = methods, methods.config
        self.encoding, self.inputs = methods.encoding, methods.encoding.inputs
        self.networks = OnePassNetworks(methods)

    def plan_scores(self, name: str) -> Stage:
        """Return the stage that scores by a method."""
        given = self.config.methods[name]
        facts = {**given, "seed": self.config.seed}
        if given["kind"] == "one-pass-network":
            return self.networks.plan_scores(name)
        if given["kind"] == "one-pass":
            before = [self.encoding.plan_encoding(0, each) for each in (*self.config.scored, "train")]
            return Stage(
                f"score/{name}", lambda folder: self._score_once(name, folder), facts, before, 60, 10
            )
        before = [self.plan_search(name, each) for each in given.get("sets", self.config.scored)]
        return Stage(f"score/{name}", lambda folder: self._collect(before, folder), facts, before, 1, 1)

    def plan_search(self, name: str, which: str) -> Stage:
        """Return the stage in which QUAM searches some inputs of a set."""
        given, rows = self.config.methods[name], self._choose_rows(name, which)
        facts: dict[str, Any] = {**given, "seed": self.config.seed}
        if given.get("layers", "last") == "last":
            before = [self.encoding.plan_encoding(0, each) for each in (which, "train")]
        else:
            before = [self.encoding.plan_weights(0)]
            facts["train"] = self._open_training(name).describe("train")
            if "attack" in self.config.sets[which]:
                before.append(self.encoding.plan_attack(which))
            else:
                facts["inputs"] = self.inputs.describe(which)
        seconds = len(rows) * given.get("targets", 10) * given.get("steps", 60) * _SECONDS_PER_STEP

        def make(folder: Path) -> None:
            self._search(name, which, folder)

        return Stage(f"search/{name}/{which}", make, facts, before, seconds, 1)

    # --- QUAM ------------------------------------------------------------------------------------

    def _choose_rows(self, name: str, which: str) -> np.ndarray:
        """Return which inputs of a set are searched: a random choice, since a search takes seconds."""
        given, size = self.config.methods[name], self.inputs.get_rows(which).size
        rng = np.random.default_rng([_CHOICE_STREAM, self.config.seed, size])
        return np.sort(rng.choice(size, min(size, given.get("inputs", size)), replace=False))

    def _open_training(self, name: str) -> InputSets:
        """Return the sets, with all inputs of `train` where the method asks for them."""
        if not self.config.methods[name].get("whole_train"):
            return self.inputs
        train = {key: value for key, value in self.config.sets["train"].items() if key != "take"}
        config = replace(self.config, sets={**self.config.sets, "train": train})
        return InputSets(config, self.inputs.data)

    def _search(self, name: str, which: str, folder: Path) -> None:
        """Score the chosen inputs of a set by QUAM, and write a file."""
        given = self.methods.get_settings(name)
        own = {key: value for key, value in given.items() if key not in _STUDY_KEYS}
        last = given.get("layers", "last") == "last"
        if last:
            model, data = self.methods.read_last_layer(), self.methods.read_features(["train"])
        else:
            import torch

            training = self._open_training(name)
            found = training.read_inputs("train"), training.read_labels("train")
            model, data = self.encoding.read_network(0), tuple(map(torch.from_numpy, found))
        rows, (values, labels) = self._choose_rows(name, which), self.methods.read_set(which, last)
        parts = np.split(rows, range(_SEARCHED_TOGETHER, len(rows), _SEARCHED_TOGETHER))
        with use_one_thread():
            posterior = QUAM(model, data, seed=self.config.seed, progress=False, **own)
            scores = demur.score(
                posterior, [(values[some], labels[some]) for some in parts],
                checkpoint=folder / "scoring.npz", every=SECONDS_BETWEEN_SAVES,
            )  # fmt: skip
        write_sets(folder, scores.columns, {which: rows})

    def _collect(self, searches: list[Stage], folder: Path) -> None:
        """Copy the files of all sets."""
        for each in searches:
            for path in self.methods.stages.complete(each).iterdir():
                copy_file(path, folder / path.name)

    # --- one pass --------------------------------------------------------------------------------

    def _score_once(self, name: str, folder: Path) -> None:
        """Score all sets by one pass, and write a file for each."""
        given, layer = self.methods.get_settings(name), self.methods.read_last_layer()
        train = self.methods.read_features(["train"])
        detectors = [_fit_detector(each, layer, train, given) for each in given["scores"]]
        for each in self.config.scored:
            loader = self.methods.read_features([each])
            columns = {"label": loader.labels, "deployed": self.methods.read_deployed(each)}
            with use_one_thread():
                columns |= {found.name: found.score(loader, progress=False) for found in detectors}
            write_sets(folder, columns, {each: np.arange(len(columns["deployed"]))})


def _fit_detector(score: str, layer: Any, train: Any, given: dict[str, Any]) -> one_pass.Detector:
    """Return a detector for inputs that are features."""
    if score == "feature_density":
        kind = given.get("covariance", "class")
        return one_pass.FeatureDensity.fit(layer, train, covariance=kind, progress=False)
    if score == "nearest_features":
        return one_pass.NearestFeatures.fit(layer, train, k=given.get("k", 50), progress=False)
    energy, largest, entropy = one_pass.Energy, one_pass.MaxLogit, one_pass.SoftmaxEntropy
    return {"energy": energy, "max_logit": largest, "softmax_entropy": entropy}[score](layer)
