"""Scores of one pass that train a network of their own: SNGP, DUQ and DUE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import demur
from demur.posteriors.heads.parameters import find_last_linear
from demur.posteriors.one_pass import DUE, DUQ, SNGP, NetworkTraining
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.stages import Stage
from demur.reproduce.studies.paper_tables import trained_networks
from demur.reproduce.studies.paper_tables.config import NETWORK_TRAINING_KEYS
from demur.reproduce.studies.paper_tables.methods import SECONDS_BETWEEN_SAVES, Methods, write_sets

_METHODS = {"sngp": SNGP, "duq": DUQ, "due": DUE}
_FILE = "network.safetensors"
_TOGETHER = 1000
"""Inputs that are scored together."""
_PASSES_PER_SECOND = 1500
"""Training inputs of a small network with its head, for the plan."""
_SECONDS_PER_INPUT = 1e-3
"""To score one input, for the plan."""


class OnePassNetworks:
    """The stages that train and score these methods.

    Where networks are built here, each method trains one of that architecture, with its own head in place of
    the last layer. Otherwise it trains its head on features of the first network.

    Parameters
    ----------
    methods
        The methods of the study.
    """

    def __init__(self, methods: Methods) -> None:
        self.methods, self.config = methods, methods.config
        self.encoding, self.inputs = methods.encoding, methods.encoding.inputs
        self._on_features = self.config.source != "make"

    def plan_fit(self, name: str) -> Stage:
        """Return the stage that trains a method."""
        given = self.methods.get_settings(name)
        facts: dict[str, Any] = {"method": given, "seed": self.config.seed}
        before = [self.encoding.plan_encoding(0, "train")] if self._on_features else []
        if not self._on_features:
            network = self.config.network
            facts |= {"make": network["make"], "scale": network.get("scale", 1)}
            facts["train"] = self.inputs.describe("train")

        def make(folder: Path) -> None:
            self._fit(given, folder)

        training = NetworkTraining(**_select_training(given))
        seconds = self.inputs.get_rows("train").size * training.epochs / _PASSES_PER_SECOND
        return Stage(f"fit/{name}", make, facts, before, seconds, 5)

    def plan_scores(self, name: str) -> Stage:
        """Return the stage that scores all sets by a method; its folder has `SET.npz`."""
        fit, facts = self.plan_fit(name), {}
        sets = self.config.scored
        if self._on_features:
            before = [self.encoding.plan_encoding(0, each) for each in sets]
        else:
            attacked = [each for each in sets if "attack" in self.config.sets[each]]
            before = [self.encoding.plan_attack(each) for each in attacked]
            facts = {each: self.inputs.describe(each) for each in sets if each not in attacked}

        def make(folder: Path) -> None:
            detector = self._load(name)
            for each in sets:
                if not (folder / f"{each}.npz").exists():
                    columns = self._score(detector, each)
                    write_sets(folder, columns, {each: np.arange(len(columns["deployed"]))})

        seconds = sum(self.inputs.get_rows(each).size for each in sets) * _SECONDS_PER_INPUT
        return Stage(f"score/{name}", make, facts, [fit, *before], seconds, 5)

    def _fit(self, given: dict[str, Any], folder: Path) -> None:
        """Train a network; an interrupted training resumes from its file in the folder."""
        import torch

        if self._on_features:
            data: Any = self.methods.read_features(["train"])
        else:
            data = torch.from_numpy(self.inputs.read_inputs("train")), self.inputs.read_labels("train")
        own = {key: value for key, value in given.items() if key not in ("method", *NETWORK_TRAINING_KEYS)}
        model, classes = self._build_extractor()
        with use_one_thread():
            found = _METHODS[given["method"]].fit(
                model, data, classes=classes, training=NetworkTraining(**_select_training(given)),
                seed=self.config.seed, checkpoint=folder / "training.safetensors",
                every=SECONDS_BETWEEN_SAVES, progress=False, **own,
            )  # fmt: skip
        found.save(folder / _FILE)
        (folder / "training.safetensors").unlink()

    def _build_extractor(self) -> tuple[Any, int]:
        """Return an untrained network without its last layer, and the number of classes."""
        import torch

        if self._on_features:
            return torch.nn.Identity(), self.methods.read_last_layer().out_features
        model = trained_networks.build_network(self.config.network["make"], self.config.seed, 0)
        last = find_last_linear(model, None)
        name = next(name for name, each in model.named_modules() if each is last)
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, torch.nn.Identity())
        return model, last.out_features

    def _load(self, name: str) -> SNGP | DUQ | DUE:
        """Return a method as it was trained."""
        file = self.methods.stages.complete(self.plan_fit(name)) / _FILE
        return _METHODS[self.config.methods[name]["method"]].load(file, self._build_extractor()[0])

    def _score(self, detector: SNGP | DUQ | DUE, name: str) -> dict[str, Any]:
        """Return the columns of a set: the score, K where there are members, and predicted classes."""
        values, labels = self.methods.read_set(name, self._on_features)
        parts = [values[start : start + _TOGETHER] for start in range(0, len(values), _TOGETHER)]
        with use_one_thread():
            if isinstance(detector, DUQ):
                classes = np.concatenate([detector.classify(part) for part in parts])
                found = {detector.name: detector.score(parts, progress=False)}
            else:
                scores = demur.score(
                    detector, parts, measures=["pairwise"], columns=[detector], progress=False
                )
                classes = scores.predictions
                found = {each: scores.columns[each] for each in (detector.name, "pairwise_epistemic")}
        return {"label": labels, "prediction": classes, "deployed": classes, **found}


def _select_training(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that say how a network is trained."""
    return {key: value for key, value in given.items() if key in NETWORK_TRAINING_KEYS}
