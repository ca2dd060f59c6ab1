"""The settings of the study, read from TOML and checked before anything runs.

title = "..."
seeds = 3            repetitions, each with other training inputs and other fits
[network]            hidden, prior_scale, steps, rate, batch: see `networks.Design`
[problems.NAME]      kind = "images", "rows", "digits" or "diabetes": see `problems`
[methods.NAME]       a method of `methods.METHODS`, with settings that replace its defaults
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Any

from demur.reproduce import config_files
from demur.reproduce.studies.inference.methods import METHODS, REFERENCE
from demur.reproduce.studies.inference.networks import Design
from demur.reproduce.studies.inference.problems import KINDS

_CONFIGS = "demur.reproduce.studies.inference"
"""The package that has the folder of configurations."""
_TOP_LEVEL_KEYS = {"title", "seeds", "network", "problems", "methods"}


@dataclass(frozen=True)
class InferenceConfig:
    """The settings.

    Attributes
    ----------
    name, title
        Name of the file without its suffix, and what the run is called.
    seeds, seed
        Number of repetitions, and the first seed.
    design
        The network.
    problems, methods
        Settings by name, as in the file.
    """

    name: str
    title: str
    problems: dict[str, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    seeds: int = 3
    seed: int = 0
    design: Design = field(default_factory=Design)

    @property
    def needs_data(self) -> bool:
        """Whether a problem reads files of the user's."""
        return any(KINDS[given["kind"]].reads_files for given in self.problems.values())


def list_configs() -> list[str]:
    """Return the names of the configurations that come with demur."""
    return config_files.list_configs(_CONFIGS)


def read_config(given: str, *, seeds: int | None = None, seed: int = 0) -> InferenceConfig:
    """Return a configuration by name or from a TOML file; `seeds` replaces that of the file."""
    name, values = config_files.read_config_file(_CONFIGS, given)
    if seeds is not None:
        values["seeds"] = seeds
    return _check_config(name, values, seed)


def _check_config(name: str, values: dict[str, Any], seed: int) -> InferenceConfig:
    """Return the configuration; raise a `ValueError` that names the first mistake in it."""
    _check_keys(name, values, _TOP_LEVEL_KEYS)
    for key in ("problems", "methods"):
        if not isinstance(values.get(key), dict) or not values[key]:
            raise ValueError(f"{name}: expected [{key}.NAME], found none")
    seeds = values.get("seeds", InferenceConfig.seeds)
    if not isinstance(seeds, int) or seeds < 2:
        raise ValueError(f"seeds must be at least 2, to tell differences from chance. Got {seeds!r}.")
    for each, given in values["problems"].items():
        if given.get("kind") not in KINDS:
            raise ValueError(
                f"{name}: [problems.{each}]: kind: expected one of {', '.join(KINDS)}, "
                f"got {given.get('kind')!r}"
            )
        kind = KINDS[given["kind"]]
        _check_keys(f"{name}: [problems.{each}]", given, {"kind", *kind.settings})
        missing = [key for key in kind.required if key not in given]
        if missing:
            raise ValueError(f"{name}: [problems.{each}]: expected {missing[0]}, found none")
    for each, given in values["methods"].items():
        if each not in METHODS:
            raise ValueError(
                f"{name}: [methods.{each}]: expected one of {', '.join(METHODS)} as a name, got {each!r}"
            )
        known = set(inspect.signature(METHODS[each].fit).parameters) - {"task"}
        _check_keys(f"{name}: [methods.{each}]", given, known)
    if REFERENCE not in values["methods"]:
        raise ValueError(
            f"{name}: expected [methods.{REFERENCE}], which the others are judged by, found none"
        )
    network = values.get("network", {})
    _check_keys(f"{name}: [network]", network, {each.name for each in dataclasses.fields(Design)})
    return InferenceConfig(
        name, values.get("title", name), values["problems"], values["methods"], seeds, seed, Design(**network)
    )


def _check_keys(where: str, given: dict[str, Any], allowed: set[str]) -> None:
    """Raise a `ValueError` if a key is unknown."""
    for name in given:
        if name not in allowed:
            raise ValueError(f"{where}: expected one of {', '.join(sorted(allowed))}, got {name!r}")
