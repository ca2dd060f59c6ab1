"""Configurations of studies: those in a study's folder `configs`, which come with demur, and users' own."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any


def list_configs(package: str) -> list[str]:
    """Return the names of the configurations that come with a study, by the name of its package."""
    folder = files(package) / "configs"
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))


def read_config_file(package: str, given: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the values of a configuration, given by name or as a TOML file."""
    path = Path(given)
    known = list_configs(package)
    if given in known:
        text = (files(package) / "configs" / f"{given}.toml").read_text("utf-8")
    elif path.suffix == ".toml" and path.is_file():
        text = path.read_text("utf-8")
    else:
        raise ValueError(f"config: expected one of {', '.join(known)}, or a .toml file, got {given!r}")
    try:
        return path.stem, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{given}: expected TOML, got something else: {error}") from error
