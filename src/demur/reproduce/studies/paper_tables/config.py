"""The settings of a study, read from TOML and checked before anything runs.

title = "..."
[network]        one of `models`, `make`, `features`, `predictions`; `module:function` runs that code
[sets.NAME]      inputs: train, id, ood-..., adversarial-...
[methods.NAME]   posteriors: ensemble, last-layers, dropout, cyclical-sghmc, laplace, swag; quam; one-pass,
                 one-pass-network
[splits]         the number of splits, and the images per split in each task
[people]         optional: labels from people for the inputs of id
reference = ...  optional: the method that every other is compared with, on the inputs that both scored
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from demur.report.run_sets import kind_of
from demur.reproduce import config_files

_NETWORK_KEYS = {
    "models": {"models", "weights", "batch"},
    "make": {"make", "weights", "members", "training", "scale"},
    "features": {"features", "weight", "bias"},
    "predictions": {"predictions", "models"},
}
_SET_KEYS = {
    "images", "labels", "published", "idx", "npz", "key", "modulo", "remainders", "rows", "take", "without",
    "of", "mask", "mask_key", "each", "attack", "radius", "steps", "stand_in_for", "called", "paper",
}  # fmt: skip
NETWORK_TRAINING_KEYS = ("epochs", "batch", "rate", "momentum", "weight_decay", "optimizer")
"""How a method of one pass trains a network of its own."""
_ONE_PASS_NETWORKS = {
    "sngp": {"features", "length_scale", "bound", "samples"},
    "duq": {"size", "length_scale", "penalty"},
    "due": {"inducing", "length_scale", "bound", "draws", "samples"},
}
_METHOD_KEYS = {
    "ensemble": {"networks"},
    "last-layers": {
        "members", "epochs", "batch", "rate", "weight_decay", "optimizer", "momentum", "start", "noise",
    },
    "dropout": {"rate", "samples"},
    "cyclical-sghmc": {
        "samples", "cycles", "steps", "step_size", "friction", "exploration", "discard", "batch_size",
        "prior_scale", "prior_mean", "temperature",
    },
    "laplace": {"samples", "structure", "prior_precision"},
    "swag": {"samples", "rank", "scale", "epochs", "rate", "momentum", "weight_decay", "batch_size"},
    "quam": {
        "layers", "targets", "steps", "keep_every", "penalty", "growth", "growth_every", "rate",
        "weight_decay", "batch_size", "loss_inputs", "bound", "temperature", "inputs", "sets", "whole_train",
    },
    "one-pass": {"scores", "covariance", "k"},
    "one-pass-network": {"method", *NETWORK_TRAINING_KEYS, *set().union(*_ONE_PASS_NETWORKS.values())},
}  # fmt: skip
_TOP_LEVEL_KEYS = {"title", "network", "sets", "methods", "splits", "people", "classes", "note", "reference"}
_COMPARED_ONLY = ("quam", "one-pass", "one-pass-network")
"""Kinds of methods that are compared with the reference, and have no rows in the paper's tables: they score a
part of the inputs, or have no measures."""
_ONE_PASS_SCORES = ("feature_density", "nearest_features", "energy", "max_logit", "softmax_entropy")


_CONFIGS = "demur.reproduce.studies.paper_tables"
"""The package that has the folder of configurations."""


@dataclass(frozen=True)
class TablesConfig:
    """The settings.

    Attributes
    ----------
    name
        Name of the file, without its suffix.
    source
        How the network is given: a key of `_NETWORK_KEYS`.
    network, splits, people
        As in the file; `people` is None if there are no labels from people.
    sets, methods
        As in the file, by name.
    reference
        The method that others are compared with; None: no such comparison.
    """

    name: str
    title: str
    source: str
    network: dict[str, Any]
    sets: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    splits: dict[str, int]
    people: dict[str, Any] | None = None
    classes: str | None = None
    note: str = ""
    seed: int = 0
    reference: str | None = None

    @property
    def scored(self) -> list[str]:
        """Sets whose inputs are scored: all except `train` and the sets drawn from `id`."""
        return [name for name, given in self.sets.items() if name != "train" and "of" not in given]

    @property
    def derived(self) -> list[str]:
        """Sets that are drawn from `id`."""
        return [name for name, given in self.sets.items() if "of" in given]

    @property
    def tabled(self) -> list[str]:
        """The methods that the paper's tables and the report have."""
        return [name for name, given in self.methods.items() if given["kind"] not in _COMPARED_ONLY]

    @property
    def fits(self) -> bool:
        """Whether a method is fitted to `train`."""
        return any(given["kind"] not in ("ensemble", "dropout") for given in self.methods.values())


def list_configs() -> list[str]:
    """Return the names of the configurations that come with demur."""
    return config_files.list_configs(_CONFIGS)


def read_config(given: str, *, seed: int = 0, models: list[str] | None = None) -> TablesConfig:
    """Return a configuration by name or from a TOML file; `models` replaces those of the file."""
    name, values = config_files.read_config_file(_CONFIGS, given)
    if models:
        if "models" not in values.get("network", {}):
            raise ValueError(f"{given}: --models: expected settings that start from images, got others")
        values["network"]["models"] = models
    return _check_config(name, values, seed)


def _check_config(name: str, values: dict[str, Any], seed: int) -> TablesConfig:
    """Return the configuration; raise a `ValueError` that names the first mistake in it."""
    _check_keys("", values, _TOP_LEVEL_KEYS)
    for key in ("title", "network", "sets", "methods"):
        if key not in values:
            raise ValueError(f"{name}: expected {key}, found none")
    network, sets, methods = values["network"], values["sets"], values["methods"]
    kinds = [kind for kind in _NETWORK_KEYS if kind in network]
    if "predictions" in kinds:
        kinds = ["predictions"]
    if len(kinds) != 1:
        raise ValueError(
            f"{name}: [network]: expected one of {', '.join(_NETWORK_KEYS)}, got {kinds or 'none'}"
        )
    _check_keys("network", network, _NETWORK_KEYS[kinds[0]])
    for each, given in sets.items():
        _check_keys(f"sets.{each}", given, _SET_KEYS)
        if each != "train" and kind_of(each) is None:
            raise ValueError(
                f"{name}: [sets.{each}]: expected train, id, ood-NAME or adversarial-NAME as a name"
            )
        if "without" in given and given["without"] not in sets:
            raise ValueError(f"{name}: [sets.{each}]: without: expected a set, got {given['without']!r}")
    if "id" not in sets:
        raise ValueError(f"{name}: expected [sets.id], found none")
    for each, given in methods.items():
        if given.get("kind") not in _METHOD_KEYS:
            raise ValueError(
                f"{name}: [methods.{each}]: kind: expected one of {', '.join(_METHOD_KEYS)}, "
                f"got {given.get('kind')!r}"
            )
        _check_keys(f"methods.{each}", given, _METHOD_KEYS[given["kind"]] | {"kind", "paper"})
        if given["kind"] != "ensemble" and kinds == ["predictions"]:
            raise ValueError(f"{name}: [methods.{each}]: stored predictions have no last layer")
    found = TablesConfig(
        name, values["title"], kinds[0], network, sets, methods, values.get("splits", {"number": 3}),
        values.get("people"), values.get("classes"), values.get("note", ""), seed, values.get("reference"),
    )  # fmt: skip
    _check_comparison(found)
    if found.fits and "train" not in sets:
        raise ValueError(f"{name}: expected [sets.train] to fit last layers to, found none")
    return found


def _check_comparison(config: TablesConfig) -> None:
    """Raise a `ValueError` if there is something to compare with a reference and none that fits."""
    others = [name for name in config.methods if name not in config.tabled]
    if config.reference not in (*config.tabled, *([] if others else [None])):
        because = f", since {others[0]} is only compared with it" if others else ""
        raise ValueError(
            f"{config.name}: reference: expected one of {', '.join(config.tabled)}{because}, "
            f"got {config.reference!r}"
        )
    for name in others:
        given, where = config.methods[name], f"{config.name}: [methods.{name}]"
        for each in given.get("sets", []):
            if each not in config.scored:
                raise ValueError(f"{where}: sets: expected scored sets, got {each!r}")
        if given["kind"] == "one-pass" and not set(given.get("scores", ["none"])) <= set(_ONE_PASS_SCORES):
            raise ValueError(
                f"{where}: scores: expected some of {', '.join(_ONE_PASS_SCORES)}, got {given.get('scores')}"
            )
        if given["kind"] == "one-pass-network":
            if given.get("method") not in _ONE_PASS_NETWORKS:
                raise ValueError(
                    f"{where}: method: expected one of {', '.join(_ONE_PASS_NETWORKS)}, "
                    f"got {given.get('method')!r}"
                )
            allowed = {"kind", "paper", "method", *NETWORK_TRAINING_KEYS}
            _check_keys(f"methods.{name}", given, allowed | _ONE_PASS_NETWORKS[given["method"]])
        if config.source != "make" and (given.get("layers", "last") != "last" or given.get("whole_train")):
            raise ValueError(
                f"{where}: layers: expected a network that is built here, got its last layer only"
            )


def _check_keys(where: str, given: Mapping[str, Any], allowed: set[str]) -> None:
    """Raise a `ValueError` if a key is unknown."""
    for name in given:
        if name not in allowed:
            place = f"[{where}]: " if where else ""
            raise ValueError(f"{place}expected one of {', '.join(sorted(allowed))}, got {name!r}")
