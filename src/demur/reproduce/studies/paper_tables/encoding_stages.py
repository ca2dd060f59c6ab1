"""Stages that run sets of inputs through networks: features, last layer, logits, labels.

The folder of every encoding stage has `logits.npy` (inputs, classes) and `labels.npy` (-1: unknown). If the
network itself is available, it also has `features.npy` (inputs, features) and `last_layer.safetensors`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from demur.reproduce.networks.attacks import attack_by_projected_gradient
from demur.reproduce.networks.threads import use_one_thread
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.paper_tables import trained_networks
from demur.reproduce.studies.paper_tables.config import TablesConfig
from demur.reproduce.studies.paper_tables.input_sets import InputSets, hash_file, read_array


class EncodingStages:
    """The stages that run the sets of a study through its networks.

    Parameters
    ----------
    config, inputs, stages
        The settings, the inputs and the stages of the study.
    """

    def __init__(self, config: TablesConfig, inputs: InputSets, stages: Stages) -> None:
        self.config, self.inputs, self.stages = config, inputs, stages
        self._planners = {
            "models": self._plan_images,
            "features": self._plan_features,
            "predictions": self._plan_predictions,
            "make": self._plan_built_network,
        }

    @property
    def network_count(self) -> int:
        """The number of networks."""
        network = self.config.network
        if self.config.source == "models":
            return len(network["models"])
        if self.config.source == "predictions":
            return len(read_array(self.inputs.find_path(network["predictions"]), "models"))
        if self.config.source == "features":
            return 1
        if "weights" in network:
            return trained_networks.count_stored_networks(self.inputs.find_path(network["weights"]))
        return int(network["members"])

    def plan_encoding(self, which: int, name: str) -> Stage:
        """Return the stage that runs a set through one of the networks."""
        return self._planners[self.config.source](which, name)

    # --- one method per source ---------------------------------------------------------------------

    def _plan_images(self, which: int, name: str) -> Stage:
        from demur.reproduce.networks.encode_images import plan_encoding

        network, rows = self.config.network, self.inputs.get_rows(name)
        weights = network.get("weights", {}).get(network["models"][which])
        return plan_encoding(
            self.inputs.image_sets[name].take(rows),
            network["models"][which],
            weights=None if weights is None else self.inputs.find_path(weights),
            batch=network.get("batch", 32),
        )

    def _plan_features(self, which: int, name: str) -> Stage:
        network = self.config.network
        file = self.inputs.find_path(network["features"])

        def make(folder: Path) -> None:
            weight, bias = (read_array(file, network[each]).astype(np.float32) for each in ("weight", "bias"))
            features = self.inputs.read_inputs(name)
            _write_encoded(folder, features, weight, bias, self.inputs.read_labels(name))

        facts = {**self.inputs.describe(name), "layer": [network["weight"], network["bias"]]}
        return Stage(f"encode/{name}", make, facts, megabytes=self._estimate_megabytes(name))

    def _plan_predictions(self, which: int, name: str) -> Stage:
        file, key = self.inputs.find_path(self.config.network["predictions"]), self.config.sets[name]["key"]

        def make(folder: Path) -> None:
            rows = self.inputs.get_rows(name)
            logits = -read_array(file, f"{key}_q")[which, rows].astype(np.float32) / 16
            index = read_array(file, f"{key}_top5_index")[which, rows].astype(np.int64)
            np.put_along_axis(logits, index, read_array(file, f"{key}_top5_logp")[which, rows], -1)
            np.save(folder / "logits.npy", logits)
            _write_labels(folder, self.inputs.read_labels(name), len(rows))

        facts = {**self.inputs.describe(name), "which": which}
        return Stage(f"decode/{which}/{name}", make, facts, megabytes=self._estimate_megabytes(name))

    def _plan_built_network(self, which: int, name: str) -> Stage:
        weights = self.plan_weights(which)
        before = [weights]
        attacked = self.plan_attack(name) if "attack" in self.config.sets[name] else None
        if attacked is not None:
            before.append(attacked)

        def make(folder: Path) -> None:
            import torch

            import demur

            model, given = self.read_network(which), self.read_network_inputs(name)
            with use_one_thread():
                found = demur.posteriors.features(
                    model, list(torch.from_numpy(given).split(500)), progress=False
                )
            layer = found.layer
            weight, bias = (each.detach().numpy() for each in (layer.weight, layer.bias))
            _write_encoded(folder, found.values, weight, bias, self.inputs.read_labels(name))

        facts = self.inputs.describe(name) if attacked is None else {}
        return Stage(
            f"encode/{which}/{name}", make, facts, before, seconds=self.inputs.get_rows(name).size / 4000,
            megabytes=self.inputs.get_rows(name).size * 4e-4,
        )  # fmt: skip

    # --- networks that are built here -------------------------------------------------------------

    def plan_weights(self, which: int) -> Stage:
        """Return the stage that trains a network, or extracts its weights from a file."""
        network = self.config.network
        if "weights" in network:
            file = self.inputs.find_path(network["weights"])
            facts = {"make": network["make"], "which": which, "file": hash_file(file)}
            return Stage(
                f"weights/{which}",
                lambda folder: trained_networks.extract_weights(file, which, folder),
                facts,
            )
        training = network["training"]

        def make(folder: Path) -> None:
            model = trained_networks.build_network(network["make"], self.config.seed, which)
            inputs, labels = self.inputs.read_inputs("train"), self.inputs.read_labels("train")
            if labels is None:
                raise ValueError("[sets.train]: expected labels to train networks with, found none")
            with use_one_thread():
                trained_networks.train_network(
                    model, inputs, labels, seed=[self.config.seed, which], folder=folder, **training
                )
            trained_networks.write_weights(model, folder)

        facts = {
            "make": network["make"], "training": training, "seed": [self.config.seed, which],
            "train": self.inputs.describe("train"), "scale": network.get("scale", 1),
        }  # fmt: skip
        passes = self.inputs.get_rows("train").size * training["epochs"]
        return Stage(f"train/{which}", make, facts, seconds=passes / 6000, megabytes=1)

    def read_network(self, which: int) -> Any:
        """Return a network in evaluation mode."""
        folder = self.stages.complete(self.plan_weights(which))
        return trained_networks.read_network(self.config.network["make"], folder)

    def read_network_inputs(self, name: str) -> np.ndarray:
        """Return the inputs of a set as the network takes them; attacked ones where the set has them."""
        if "attack" not in self.config.sets[name]:
            return self.inputs.read_inputs(name)
        return np.load(self.stages.complete(self.plan_attack(name)) / "inputs.npy")

    def plan_attack(self, name: str) -> Stage:
        """Return the stage that attacks the inputs of `id`, white-box, on the first network."""
        given = self.config.sets[name]
        options = {"radius": given["radius"], "steps": given.get("steps", 20), "seed": self.config.seed}

        def make(folder: Path) -> None:
            model = self.read_network(0)
            inputs, labels = self.inputs.read_inputs("id"), self.inputs.read_labels("id")
            assert labels is not None
            parts = [slice(start, start + 500) for start in range(0, len(inputs), 500)]
            with use_one_thread():
                found = [
                    attack_by_projected_gradient(model, inputs[part], labels[part], **options)
                    for part in parts
                ]
            np.save(folder / "inputs.npy", np.concatenate(found))

        facts = {"set": self.inputs.describe("id"), "attack": given["attack"], **options}
        seconds = self.inputs.get_rows("id").size * options["steps"] / 3000
        return Stage(f"attack/{name}", make, facts, [self.plan_weights(0)], seconds=seconds)

    def _estimate_megabytes(self, name: str) -> float:
        return self.inputs.get_rows(name).size * 1000 * 4e-6


def _write_encoded(
    folder: Path, features: np.ndarray, weight: np.ndarray, bias: np.ndarray, labels: np.ndarray | None
) -> None:
    """Write features, last layer, logits and labels."""
    from safetensors.numpy import save_file

    # Safetensors writes an array in memory order, whatever the order of its axes.
    features, weight, bias = (np.ascontiguousarray(each, np.float32) for each in (features, weight, bias))
    np.save(folder / "features.npy", features)
    np.save(folder / "logits.npy", features @ weight.T + bias)
    save_file({"weight": weight, "bias": bias}, folder / "last_layer.safetensors")
    _write_labels(folder, labels, len(features))


def _write_labels(folder: Path, labels: np.ndarray | None, number: int) -> None:
    """Write labels; -1 where they are unknown."""
    np.save(folder / "labels.npy", np.full(number, -1) if labels is None else labels)
