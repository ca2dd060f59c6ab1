"""From inputs to what a network makes of them, on disk: features, last layer, logits, labels.

The folder of every stage here holds `logits.npy` (inputs, classes) and `labels.npy` (-1: unknown); where the
network is there also `features.npy` (inputs, features) and `last_layer.safetensors`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.attacks import projected_gradient
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.study import networks
from demur.reproduce.study.config import Config
from demur.reproduce.study.inputs import Inputs, array, content
from demur.reproduce.threads import one_thread


class Encoding:
    """The stages that encode a study's sets.

    Parameters
    ----------
    config, inputs, stages
        Of the study.
    """

    def __init__(self, config: Config, inputs: Inputs, stages: Stages) -> None:
        self.config, self.inputs, self.stages = config, inputs, stages

    @property
    def number(self) -> int:
        """How many networks there are."""
        network = self.config.network
        if self.config.source == "models":
            return len(network["models"])
        if self.config.source == "predictions":
            return len(array(self.inputs.path(network["predictions"]), "models"))
        if self.config.source == "features":
            return 1
        if "weights" in network:
            return networks.stored_number(self.inputs.path(network["weights"]))
        return int(network["members"])

    def stage(self, which: int, name: str) -> Stage:
        """Return the stage that runs a set through one of the networks."""
        return getattr(self, f"_{self.config.source}")(which, name)

    # --- one for each source ---------------------------------------------------------------------

    def _models(self, which: int, name: str) -> Stage:
        from demur.reproduce.encode import encode_stage

        network, rows = self.config.network, self.inputs.rows(name)
        weights = network.get("weights", {}).get(network["models"][which])
        return encode_stage(
            self.inputs.sets[name].take(rows),
            network["models"][which],
            weights=None if weights is None else self.inputs.path(weights),
            batch=network.get("batch", 32),
        )

    def _features(self, which: int, name: str) -> Stage:
        network = self.config.network
        file = self.inputs.path(network["features"])

        def make(folder: Path) -> None:
            weight, bias = (array(file, network[each]).astype(np.float32) for each in ("weight", "bias"))
            features = self.inputs.inputs(name)
            _write_encoded(folder, features, weight, bias, self.inputs.labels(name))

        facts = {**self.inputs.facts(name), "layer": [network["weight"], network["bias"]]}
        return Stage(f"encode/{name}", make, facts, megabytes=self._megabytes(name))

    def _predictions(self, which: int, name: str) -> Stage:
        file, key = self.inputs.path(self.config.network["predictions"]), self.config.sets[name]["key"]

        def make(folder: Path) -> None:
            rows = self.inputs.rows(name)
            logits = -array(file, f"{key}_q")[which, rows].astype(np.float32) / 16
            index = array(file, f"{key}_top5_index")[which, rows].astype(np.int64)
            np.put_along_axis(logits, index, array(file, f"{key}_top5_logp")[which, rows], -1)
            np.save(folder / "logits.npy", logits)
            _write_labels(folder, self.inputs.labels(name), len(rows))

        facts = {**self.inputs.facts(name), "which": which}
        return Stage(f"decode/{which}/{name}", make, facts, megabytes=self._megabytes(name))

    def _make(self, which: int, name: str) -> Stage:
        weights = self.weights(which)
        before = [weights]
        attacked = self.attack(name) if "attack" in self.config.sets[name] else None
        if attacked is not None:
            before.append(attacked)

        def make(folder: Path) -> None:
            import torch

            import demur

            model = self.network(which)
            given = (
                self.inputs.inputs(name)
                if attacked is None
                else np.load(self.stages.made(attacked) / "inputs.npy")
            )
            with one_thread():
                found = demur.posteriors.features(
                    model, list(torch.from_numpy(given).split(500)), progress=False
                )
            layer = found.layer
            weight, bias = (each.detach().numpy() for each in (layer.weight, layer.bias))
            _write_encoded(folder, found.values, weight, bias, self.inputs.labels(name))

        facts = self.inputs.facts(name) if attacked is None else {}
        return Stage(
            f"encode/{which}/{name}", make, facts, before, seconds=self.inputs.rows(name).size / 4000,
            megabytes=self.inputs.rows(name).size * 4e-4,
        )  # fmt: skip

    # --- networks that are made here -------------------------------------------------------------

    def weights(self, which: int) -> Stage:
        """Return the stage that has the weights of a network: trained, or taken from a file."""
        network = self.config.network
        if "weights" in network:
            file = self.inputs.path(network["weights"])
            facts = {"make": network["make"], "which": which, "file": content(file)}
            return Stage(f"weights/{which}", lambda folder: networks.unpack(file, which, folder), facts)
        training = network["training"]

        def make(folder: Path) -> None:
            model = networks.build(network["make"], self.config.seed, which)
            inputs, labels = self.inputs.inputs("train"), self.inputs.labels("train")
            if labels is None:
                raise ValueError("[sets.train]: expected labels to train networks with, found none")
            with one_thread():
                networks.train(
                    model, inputs, labels, seed=[self.config.seed, which], folder=folder, **training
                )
            networks.write(model, folder)

        facts = {
            "make": network["make"], "training": training, "seed": [self.config.seed, which],
            "train": self.inputs.facts("train"), "scale": network.get("scale", 1),
        }  # fmt: skip
        passes = self.inputs.rows("train").size * training["epochs"]
        return Stage(f"train/{which}", make, facts, seconds=passes / 6000, megabytes=1)

    def network(self, which: int) -> Any:
        """Return a network, ready to predict."""
        folder = self.stages.made(self.weights(which))
        return networks.read(self.config.network["make"], folder)

    def attack(self, name: str) -> Stage:
        """Return the stage that attacks the inputs of `id` with the first network in the white box."""
        given = self.config.sets[name]
        options = {"radius": given["radius"], "steps": given.get("steps", 20), "seed": self.config.seed}

        def make(folder: Path) -> None:
            model = self.network(0)
            inputs, labels = self.inputs.inputs("id"), self.inputs.labels("id")
            assert labels is not None
            parts = [slice(start, start + 500) for start in range(0, len(inputs), 500)]
            with one_thread():
                found = [projected_gradient(model, inputs[part], labels[part], **options) for part in parts]
            np.save(folder / "inputs.npy", np.concatenate(found))

        facts = {"set": self.inputs.facts("id"), "attack": given["attack"], **options}
        seconds = self.inputs.rows("id").size * options["steps"] / 3000
        return Stage(f"attack/{name}", make, facts, [self.weights(0)], seconds=seconds)

    def _megabytes(self, name: str) -> float:
        return self.inputs.rows(name).size * 1000 * 4e-6


def _write_encoded(
    folder: Path, features: np.ndarray, weight: np.ndarray, bias: np.ndarray, labels: np.ndarray | None
) -> None:
    """Write what a network whose last layer is known made of its inputs."""
    from safetensors.numpy import save_file

    # Safetensors writes an array as it lies in memory, whatever the order of its axes.
    features, weight, bias = (np.ascontiguousarray(each, np.float32) for each in (features, weight, bias))
    np.save(folder / "features.npy", features)
    np.save(folder / "logits.npy", features @ weight.T + bias)
    save_file({"weight": weight, "bias": bias}, folder / "last_layer.safetensors")
    _write_labels(folder, labels, len(features))


def _write_labels(folder: Path, labels: np.ndarray | None, number: int) -> None:
    """Write labels; -1 where nobody knows them."""
    np.save(folder / "labels.npy", np.full(number, -1) if labels is None else labels)
