"""The ways to draw models: what is fitted, and the posterior that scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from demur.posteriors import CyclicalSGHMC, Features, HeadTraining, LastLayer, Posterior
from demur.posteriors.posterior import select_members, split_members
from demur.reproduce.stages import Stage
from demur.reproduce.study.encoding import Encoding

_Order = Literal["batch", "member"]
_ROWS, NUMBERS = 1024, 1 << 15
"""Inputs that are scored together: so many at least, and where they have few classes, so many logits."""
EVERY = 60.0
"""Seconds between two writes of what is done."""


class StoredLogits(Posterior):
    """Networks whose logits are on disk; a batch is rows of them.

    Parameters
    ----------
    logits
        One (inputs, classes) a member, mapped from files. The first is the deployed model.
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
        The stages that they stand on.
    """

    def __init__(self, encoding: Encoding) -> None:
        self.encoding, self.config, self.stages = encoding, encoding.config, encoding.stages
        self._few: dict[str, Any] = {}

    def networks(self, name: str) -> range:
        """Return which networks a method asks for: those of an ensemble, or the first."""
        given = self.config.methods[name]
        if given["kind"] != "ensemble":
            return range(1)
        first, last = given.get("networks", [0, self.encoding.number])
        if not 0 <= first < last <= self.encoding.number:
            raise ValueError(
                f"[methods.{name}]: networks: expected a range within 0 and {self.encoding.number}, "
                f"got {given['networks']}"
            )
        return range(first, last)

    def encoded(self, name: str) -> list[Stage]:
        """Return the stages whose files a method scores, by network and set."""
        return [self.encoding.stage(k, each) for k in self.networks(name) for each in self.config.scored]

    def fit(self, name: str) -> Stage | None:
        """Return the stage that fits a method, where there is something to fit before members are drawn."""
        if self.config.methods[name]["kind"] != "last-layers":
            return None
        train = self.encoding.stage(0, "train")
        settings = self.settings(name)

        def make(folder: Path) -> None:
            layer, features = self.last_layer(), self.features(["train"])
            members = settings.pop("members", 10)
            found = LastLayer.fit(
                layer, features, members, training=HeadTraining(**settings), seed=self.config.seed,
                path=folder / "fitting.safetensors", every=EVERY,
            )  # fmt: skip
            found.save(folder / "heads.safetensors")
            (folder / "fitting.safetensors").unlink()

        size = self.encoding.inputs.rows("train").size
        seconds = size * settings.get("epochs", 20) * settings.get("members", 10) * 1e-4
        facts = {"method": settings, "seed": self.config.seed}
        return Stage(f"fit/{name}", make, facts, [train], seconds, 51)

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a method, as the posterior takes them."""
        own = self.config.methods[name]
        return {key: value for key, value in own.items() if key not in ("kind", "paper")}

    def before(self, name: str) -> list[Stage]:
        """Return all stages that scoring by a method reads."""
        kind, fit = self.config.methods[name]["kind"], self.fit(name)
        more = [self.encoding.stage(0, "train")] if kind == "cyclical-sghmc" else []
        return [*self.encoded(name), *more, *([fit] if fit else [])]

    def posterior(
        self, name: str, sets: list[str], folder: Path, at_most: int | None = None
    ) -> tuple[Posterior, Any, _Order]:
        """Return what scores, the loader of sets one after the other, and the order to go in.

        Parameters
        ----------
        name, sets
            Of the method, and what it scores.
        folder
            Where a chain keeps its state.
        at_most
            Members of methods that draw more of them.
        """
        kind, settings = self.config.methods[name]["kind"], self.settings(name)
        if kind == "ensemble":
            # One array a member, all sets in a row.
            logits = [self.files("logits.npy", sets, k) for k in self.networks(name)]
            members = [np.concatenate(each) if len(each) > 1 else each[0] for each in logits]
            labels = np.concatenate(self.files("labels.npy", sets, self.networks(name)[0]))
            step = _rows_of(members[0].shape[1])
            parts = np.split(np.arange(len(labels)), range(step, len(labels), step))
            return StoredLogits(members), [(rows, labels[rows]) for rows in parts], "batch"
        loader, seed = self.features(sets), self.config.seed
        if kind == "last-layers":
            fit = self.fit(name)
            assert fit is not None
            heads = self.stages.made(fit) / "heads.safetensors"
            return LastLayer.load(heads, self.last_layer()), loader, "batch"
        if kind == "dropout":
            samples = min(settings["samples"], at_most or settings["samples"])
            found = LastLayer(self.last_layer(), dropout=settings["rate"], samples=samples, seed=seed)
            return found, loader, "batch"
        layer, train = self.last_layer(), self.features(["train"])
        chain = CyclicalSGHMC(
            layer, (np.array(train.values), train.labels), keep=False, seed=seed,
            checkpoint=folder / "chain", every=EVERY, **settings,
        )  # fmt: skip
        if at_most is None or at_most >= settings["samples"]:
            found = LastLayer(layer, chain)
            # Heads that fit in memory are drawn once, for all inputs.
            return found, loader, "batch" if found.together >= settings["samples"] else "member"
        if name not in self._few:
            # Evenly along the chain; few enough to be held for all rules.
            places = range(0, settings["samples"], settings["samples"] // at_most)[:at_most]
            drawn = [chain.parameters(range(place, place + 1)) for place in places]
            self._few[name] = tuple(
                np.concatenate([each[part] for each in drawn]) for part in ("weight", "bias")
            )
        return LastLayer(layer, self._few[name]), loader, "batch"

    def files(self, file: str, sets: list[str], which: int = 0) -> list[np.ndarray]:
        """Return an array of each set, mapped."""
        places = [self.stages.made(self.encoding.stage(which, each)) for each in sets]
        return [np.load(place / file, mmap_mode="r") for place in places]

    def classes(self, name: str) -> int:
        """Return how many classes a method tells apart."""
        if self.config.methods[name]["kind"] == "ensemble":
            return self.files("logits.npy", self.config.scored[:1], self.networks(name)[0])[0].shape[1]
        return self.last_layer().out_features

    def features(self, sets: list[str]) -> Features:
        """Return features and labels of sets, one after the other."""
        values, labels = (np.concatenate(self.files(file, sets)) for file in ("features.npy", "labels.npy"))
        return Features(values, labels, rows=_rows_of(self.last_layer().out_features))

    def last_layer(self) -> Any:
        """Return the last layer of the first network."""
        import torch
        from safetensors.torch import load_file

        place = self.stages.made(self.encoding.stage(0, self.config.scored[0]))
        state = load_file(place / "last_layer.safetensors")
        layer = torch.nn.Linear(state["weight"].shape[1], state["weight"].shape[0])
        layer.load_state_dict(state)
        return layer.eval()


def _rows_of(classes: int) -> int:
    """Return how many inputs of so many classes are scored together."""
    return max(_ROWS, NUMBERS // classes)
