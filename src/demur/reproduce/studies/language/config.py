"""The settings of the study, read from TOML and checked before anything runs.

title = "..."
[texts]               known, others (by name), number, characters, prefixes: see `TextSettings`
[ensembles.NAME]      models of transformers, or members to train: see `EnsembleSettings`
[specialists]         characters, members trained on one kind of text each: see `SpecialistSettings`
[limits]              what lists of the likeliest tokens certify: see `LimitSettings`
[choices], [samples]  recorded answers: see `AnswerSettings`; the study may do without
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from demur.reproduce import config_files

_CONFIGS = "demur.reproduce.studies.language"
"""The package that has the folder of configurations."""
_Settings = TypeVar("_Settings")


@dataclass(frozen=True)
class TextSettings:
    """Which texts are told apart.

    Attributes
    ----------
    known
        A file of texts of the training kind: JSON lines with a field ``text``, also gzipped.
    others
        Files of other texts by name.
    number
        How many texts of each file: the first ones that are long enough.
    characters
        Where each text is cut.
    prefixes
        Numbers of tokens; texts are told apart by so many of their first ones.
    """

    known: str
    others: dict[str, str]
    number: int = 300
    characters: int = 240
    prefixes: list[int] = field(default_factory=lambda: [4, 8, 16, 32, 64])


@dataclass(frozen=True)
class EnsembleSettings:
    """An ensemble: models from folders, or members that are trained.

    Attributes
    ----------
    title
        What it is called.
    models
        Folders of models of transformers with one tokenizer; the first has it.
    templates
        Ways to ask one model, with ``{}`` for the prompt: each is a member.
    limits_only
        Take it only for the limits of truncated lists.
    like, texts
        To train members: a folder with the configuration of the network and its tokenizer, and a file of
        texts.
    members, steps, batch, context, rate
        How many are trained, for how many steps, on how many contexts of so many tokens, at which rate.
    """

    title: str
    models: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    limits_only: bool = False
    like: str = ""
    texts: str = ""
    members: int = 3
    steps: int = 500
    batch: int = 32
    context: int = 128
    rate: float = 3e-3


@dataclass(frozen=True)
class SpecialistSettings:
    """A mixture of character-level models, each of which was trained on another kind of text.

    Attributes
    ----------
    title
        What it is called.
    models
        A file of their weights, .npz: see `character_models.read_character_models`.
    texts
        A file of the texts that they were trained on: JSON lines with ``text``, and in ``set`` the member.
    others
        Files of other texts by name.
    number
        How many texts of each member, and of each other file.
    prefixes
        Numbers of characters; texts are cut at the largest.
    """

    title: str
    models: str
    texts: str
    others: dict[str, str]
    number: int = 200
    prefixes: list[int] = field(default_factory=lambda: [4, 8, 16, 32])


@dataclass(frozen=True)
class LimitSettings:
    """What lists of the likeliest tokens certify: of how many texts and tokens, and how many are listed."""

    texts: int = 20
    tokens: int = 32
    tops: list[int] = field(default_factory=lambda: [5, 20])


@dataclass(frozen=True)
class AnswerSettings:
    """Recorded answers.

    Attributes
    ----------
    title, file
        What they are called, and where they are.
    accuracy
        The accuracies that a deferral is to promise.
    prompt, shots
        For choices, the setting in which the models are compared.
    """

    title: str
    file: str
    accuracy: list[float] = field(default_factory=lambda: [0.75, 0.9])
    prompt: str = ""
    shots: int = 0


@dataclass(frozen=True)
class LanguageConfig:
    """The settings.

    Attributes
    ----------
    name, title
        Name of the file without its suffix, and what the run is called.
    seed
        Of trained members and of the halves on which promises are checked.
    texts, ensembles, specialists, limits, choices, samples
        As in the file; None for what it leaves out.
    """

    name: str
    title: str
    seed: int
    texts: TextSettings
    ensembles: dict[str, EnsembleSettings]
    specialists: SpecialistSettings | None
    limits: LimitSettings | None
    choices: AnswerSettings | None
    samples: AnswerSettings | None


_OPTIONAL: dict[str, Any] = {
    "specialists": SpecialistSettings, "limits": LimitSettings, "choices": AnswerSettings,
    "samples": AnswerSettings,
}  # fmt: skip
"""Parts that a study may do without."""


def read_config(given: str, *, seed: int = 0) -> LanguageConfig:
    """Return a configuration by name or from a TOML file."""
    name, values = config_files.read_config_file(_CONFIGS, given)
    return _check_config(name, values, seed)


def _check_config(name: str, values: dict[str, Any], seed: int) -> LanguageConfig:
    """Return the configuration; raise a `ValueError` that names the first mistake in it."""
    known = {"title", "texts", "ensembles", *_OPTIONAL}
    for key in values:
        if key not in known:
            raise ValueError(f"{name}: expected one of {', '.join(sorted(known))}, got {key!r}")
    texts = _read_settings(f"{name}: [texts]", TextSettings, values.get("texts", {}))
    if not texts.others or min(texts.prefixes, default=0) < 1 or texts.number < 2:
        raise ValueError(f"{name}: [texts]: expected others, prefixes from 1 up and a number from 2 up")
    ensembles = {
        each: _read_settings(f"{name}: [ensembles.{each}]", EnsembleSettings, given)
        for each, given in values.get("ensembles", {}).items()
    }
    if not any(not each.limits_only for each in ensembles.values()):
        raise ValueError(f"{name}: expected [ensembles.NAME] that is not limits_only, found none")
    for each, given in ensembles.items():
        if bool(given.models) == bool(given.like) or bool(given.like) != bool(given.texts):
            raise ValueError(f"{name}: [ensembles.{each}]: expected models, or like and texts")
        if min(given.members, given.steps, given.batch, given.context) < 1 or given.rate <= 0:
            raise ValueError(f"{name}: [ensembles.{each}]: expected numbers above 0")
    rest = {
        key: None if key not in values else _read_settings(f"{name}: [{key}]", kind, values[key])
        for key, kind in _OPTIONAL.items()
    }
    given = rest["specialists"]
    if given is not None and (not given.others or min(given.prefixes, default=0) < 1 or given.number < 2):
        raise ValueError(f"{name}: [specialists]: expected others, prefixes from 1 up and a number from 2 up")
    return LanguageConfig(name, values.get("title", name), seed, texts, ensembles, **rest)


def _read_settings(where: str, kind: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """Return settings; raise unless they have the names and kinds of the dataclass."""
    fields = {each.name: each for each in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    for key, value in given.items():
        if key not in fields:
            raise ValueError(f"{where}: expected one of {', '.join(fields)}, got {key!r}")
        wanted = str(fields[key].type).partition("[")[0]
        kinds = {"float": (int, float), "int": int, "str": str, "bool": bool, "list": list, "dict": dict}
        if not isinstance(value, kinds[wanted]) or (isinstance(value, bool) and wanted != "bool"):
            raise ValueError(f"{where}: {key}: expected {fields[key].type}, got {value!r}")
    missing = [
        name
        for name, each in fields.items()
        if name not in given
        and each.default is dataclasses.MISSING
        and each.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{where}: expected {missing[0]}, found none")
    return kind(**given)
