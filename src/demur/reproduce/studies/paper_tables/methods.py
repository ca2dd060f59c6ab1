"""The methods of a study: what is fitted, and the posterior that is scored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from demur.posteriors import SWAG, CyclicalSGHMC, Features, HeadTraining, Laplace, LastLayer, Posterior
from demur.posteriors.posterior import select_members, split_members
from demur.reproduce.stages import Stage
from demur.reproduce.studies.paper_tables.encoding_stages import EncodingStages
from demur.stores import write_columns

_Order = Literal["batch", "member"]
_FEWEST_INPUTS_PER_BATCH, _LOGITS_PER_BATCH = 1024, 1 << 15
"""Inputs that are scored together: at least the first, and with few classes as many as have the second."""
SECONDS_BETWEEN_SAVES = 60.0
"""How often the progress of a fit or a score is saved."""


class _StoredLogits(Posterior):
    """Networks whose logits are on disk; a batch is an array of rows.

    Parameters
    ----------
    logits
        An array (inputs, classes) per member, mapped from files. The first is the deployed model.
    """

    def __init__(self, logits: list[np.ndarray]) -> None:
        self.logits, self.members = logits, len(logits)

    def __repr__(self) -> str:
        return f"StoredLogits({self.members} networks)"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        rows = np.asarray(batch)
        for run in split_members(
            select_members(members, self.members or 0), len(rows) * self.logits[0].shape[1]
        ):
            yield np.stack([self.logits[each][rows] for each in run])

    def deployed(self, batch: Any) -> Any:
        return np.asarray(self.logits[0][np.asarray(batch)])


class Methods:
    """The methods of a study.

    Parameters
    ----------
    encoding
        The stages that they build on.
    """

    def __init__(self, encoding: EncodingStages) -> None:
        self.encoding, self.config, self.stages = encoding, encoding.config, encoding.stages
        self._subsamples: dict[str, Any] = {}

    def list_networks(self, name: str) -> range:
        """Return which networks a method uses: those of an ensemble, or only the first."""
        given = self.config.methods[name]
        if given["kind"] != "ensemble":
            return range(1)
        first, last = given.get("networks", [0, self.encoding.network_count])
        if not 0 <= first < last <= self.encoding.network_count:
            raise ValueError(
                f"[methods.{name}]: networks: expected a range within 0 and {self.encoding.network_count}, "
                f"got {given['networks']}"
            )
        return range(first, last)

    def plan_encodings(self, name: str) -> list[Stage]:
        """Return the encoding stages that a method scores, by network and set."""
        return [
            self.encoding.plan_encoding(k, each)
            for k in self.list_networks(name)
            for each in self.config.scored
        ]

    def plan_fit(self, name: str) -> Stage | None:
        """Return the stage that fits a method, or None if nothing is fitted before members are drawn."""
        if self.config.methods[name]["kind"] != "last-layers":
            return None
        train = self.encoding.plan_encoding(0, "train")
        settings = self.get_settings(name)

        def make(folder: Path) -> None:
            layer, features = self.read_last_layer(), self.read_features(["train"])
            training = {key: value for key, value in settings.items() if key != "members"}
            found = LastLayer.fit(
                layer, features, settings.get("members", 10), training=HeadTraining(**training),
                seed=self.config.seed, path=folder / "fitting.safetensors", every=SECONDS_BETWEEN_SAVES,
            )  # fmt: skip
            found.save(folder / "heads.safetensors")
            (folder / "fitting.safetensors").unlink()

        size = self.encoding.inputs.get_rows("train").size
        seconds = size * settings.get("epochs", 20) * settings.get("members", 10) * 1e-4
        facts = {"method": settings, "seed": self.config.seed}
        return Stage(f"fit/{name}", make, facts, [train], seconds, 51)

    def get_settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a method as arguments of its posterior."""
        own = self.config.methods[name]
        return {key: value for key, value in own.items() if key not in ("kind", "paper")}

    def list_requirements(self, name: str) -> list[Stage]:
        """Return all stages that the scores of a method depend on."""
        kind, fit = self.config.methods[name]["kind"], self.plan_fit(name)
        fitted = kind in ("cyclical-sghmc", "laplace", "swag")
        more = [self.encoding.plan_encoding(0, "train")] if fitted else []
        return [*self.plan_encodings(name), *more, *([fit] if fit else [])]

    def build_posterior(
        self, name: str, sets: list[str], folder: Path, at_most: int | None = None
    ) -> tuple[Posterior, Any, _Order]:
        """Return the posterior, a loader of the sets one after the other, and the order of scoring.

        Parameters
        ----------
        name, sets
            The method, and the sets that it scores.
        folder
            Where a chain saves its state.
        at_most
            The most members to use; None: all of them.
        """
        kind, settings = self.config.methods[name]["kind"], self.get_settings(name)
        if kind == "ensemble":
            # One array per member, all sets one after the other.
            logits = [self._map_files("logits.npy", sets, k) for k in self.list_networks(name)]
            members = [np.concatenate(each) if len(each) > 1 else each[0] for each in logits]
            labels = np.concatenate(self._map_files("labels.npy", sets, self.list_networks(name)[0]))
            step = _count_rows_per_batch(members[0].shape[1])
            parts = np.split(np.arange(len(labels)), range(step, len(labels), step))
            return _StoredLogits(members), [(rows, labels[rows]) for rows in parts], "batch"
        loader, seed = self.read_features(sets), self.config.seed
        if kind == "last-layers":
            fit = self.plan_fit(name)
            assert fit is not None
            heads = self.stages.complete(fit) / "heads.safetensors"
            return LastLayer.load(heads, self.read_last_layer()), loader, "batch"
        if kind == "dropout":
            samples = min(settings["samples"], at_most or settings["samples"])
            found = LastLayer(self.read_last_layer(), dropout=settings["rate"], samples=samples, seed=seed)
            return found, loader, "batch"
        layer, train = self.read_last_layer(), self.read_features(["train"])
        if kind in ("laplace", "swag"):
            settings["samples"] = min(settings["samples"], at_most or settings["samples"])
        if kind == "laplace":
            return Laplace.fit(layer, train, seed=seed, **settings), loader, "batch"
        if kind == "swag":
            swag = SWAG.fit(layer, (np.array(train.values), train.labels), seed=seed, **settings)
            return LastLayer(layer, swag), loader, "batch"
        chain = CyclicalSGHMC(
            layer, (np.array(train.values), train.labels), keep=False, seed=seed,
            checkpoint=folder / "chain", every=SECONDS_BETWEEN_SAVES, **settings,
        )  # fmt: skip
        if at_most is None or at_most >= settings["samples"]:
            found = LastLayer(layer, chain)
            # Heads that fit in memory are drawn once for all inputs.
            return found, loader, "batch" if found.together >= settings["samples"] else "member"
        if name not in self._subsamples:
            # Evenly spaced along the chain, and few enough to keep in memory for all rules.
            places = range(0, settings["samples"], settings["samples"] // at_most)[:at_most]
            drawn = [chain.parameters(range(place, place + 1)) for place in places]
            self._subsamples[name] = tuple(
                np.concatenate([each[part] for each in drawn]) for part in ("weight", "bias")
            )
        return LastLayer(layer, self._subsamples[name]), loader, "batch"

    def read_deployed(self, name: str) -> np.ndarray:
        """Return the classes that the first network predicts for a set."""
        return np.asarray(self._map_files("logits.npy", [name])[0].argmax(1))

    def _map_files(self, file: str, sets: list[str], which: int = 0) -> list[np.ndarray]:
        """Return an array of each set, mapped from its file."""
        places = [self.stages.complete(self.encoding.plan_encoding(which, each)) for each in sets]
        return [np.load(place / file, mmap_mode="r") for place in places]

    def read_features(self, sets: list[str]) -> Features:
        """Return features and labels of sets, one after the other."""
        values, labels = (
            np.concatenate(self._map_files(file, sets)) for file in ("features.npy", "labels.npy")
        )
        return Features(values, labels, rows=_count_rows_per_batch(self.read_last_layer().out_features))

    def read_set(self, name: str, features: bool) -> tuple[Any, np.ndarray]:
        """Return inputs of the network, or of its last layer, and labels, -1 where they are unknown."""
        if features:
            found = self.read_features([name])
            assert found.labels is not None
            return found.values, found.labels
        import torch

        values, labels = self.encoding.read_network_inputs(name), self.encoding.inputs.read_labels(name)
        return torch.from_numpy(values), np.full(len(values), -1) if labels is None else labels

    def read_last_layer(self) -> Any:
        """Return the last layer of the first network."""
        import torch
        from safetensors.torch import load_file

        place = self.stages.complete(self.encoding.plan_encoding(0, self.config.scored[0]))
        state = load_file(place / "last_layer.safetensors")
        layer = torch.nn.Linear(state["weight"].shape[1], state["weight"].shape[0])
        layer.load_state_dict(state)
        return layer.eval()


def write_sets(folder: Path, columns: Any, rows: dict[str, np.ndarray], ending: str = "") -> None:
    """Write the columns of sets that were scored one after the other, with the numbers of their inputs."""
    start = 0
    for name, numbers in rows.items():
        stop = start + len(numbers)
        part = {column: values[start:stop] for column, values in columns.items()}
        part["input"] = numbers
        if (part["label"] < 0).all():
            del part["label"]
        write_columns(folder / f"{name}{ending}.npz", part, force=True)
        start = stop


def _count_rows_per_batch(classes: int) -> int:
    """Return how many inputs are scored together."""
    return max(_FEWEST_INPUTS_PER_BATCH, _LOGITS_PER_BATCH // classes)
