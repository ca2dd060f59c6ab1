"""The training data and the settings of a search, as the tensors and facts of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from demur.posteriors.adversarial.head_search import HeadSearch
from demur.posteriors.adversarial.network_search import NetworkSearch
from demur.posteriors.adversarial.plan import Search
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.heads.features import Features
from demur.posteriors.heads.parameters import find_last_linear
from demur.reading import parse_json

_INPUTS = "inputs "
"""Begins the names of inputs that come as a mapping."""


def pack_search(search: Search) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the training data as tensors, and what the deployed network is recognised by."""
    import torch

    if isinstance(search, HeadSearch):
        training = search.training
        data = {"features": torch.tensor(training.values), "labels": torch.tensor(training.labels)}
        return {**data, **search.source.layer.state_dict()}, {}
    assert isinstance(search, NetworkSearch)
    inputs, targets = search.minibatches.inputs, search.minibatches.targets
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    tensors = {f"{_INPUTS}{name}": value for name, value in named.items()}
    return {**tensors, "targets": targets}, {"model": _identify(search.model)}


def unpack_training(
    tensors: dict[str, Any], facts: dict[str, str], settings: dict[str, Any], model: Any, path: Any
) -> Any:
    """Return the training data; raise unless the model is the one that was saved.

    Parameters
    ----------
    tensors, facts, path
        The file.
    settings
        Those of the posterior.
    model
        The user's network.
    """
    last = settings.get("layers", "last") == "last"
    data = {name: value for name, value in tensors.items() if name.startswith(_INPUTS)}
    if ({"features", "labels"} - set(tensors)) if last else (not data or "targets" not in tensors):
        raise ValueError(
            f"Expected a file written by QUAM.save. Got {os.fspath(path)!r}, without training data."
        )
    if last:
        training = Features(tensors.pop("features").numpy(), tensors.pop("labels").numpy())
        layer = find_last_linear(model, settings["layer"])
        if fingerprint(dict(layer.state_dict())) != fingerprint(tensors):
            raise ValueError(f"model must have the last layer that {os.fspath(path)!r} holds. Got another.")
        return training
    if facts.get("model") != _identify(model):
        raise ValueError(
            f"model must have the parameters and buffers that it had when {os.fspath(path)!r} was written. "
            "Got others."
        )
    named = {name.removeprefix(_INPUTS): value for name, value in data.items()}
    return named.get("", named), tensors["targets"]


def read_settings(facts: dict[str, str], names: set[str], path: Any) -> dict[str, Any]:
    """Return the settings in a file; raise unless they are those of a posterior, by these names."""
    try:
        found = parse_json(facts.get("settings", ""))
    except ValueError:
        found = None
    if not isinstance(found, dict) or set(found) - {"layers"} != names:
        raise ValueError(f"Expected a file written by QUAM.save. Got {os.fspath(path)!r}, of other settings.")
    return found


def _identify(model: Any) -> str:
    """Return a text that changes with any parameter or buffer of a network."""
    return fingerprint(dict(model.state_dict()))
