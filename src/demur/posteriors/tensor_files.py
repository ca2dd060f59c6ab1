"""Reads and writes the tensors of a posterior as a safetensors file, which never holds code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from demur import atomic
from demur.checksums import sum_arrays
from demur.posteriors import networks
from demur.reading import open_regular, parse_json

_FORMAT = "demur posterior 1"
_CHECKSUM = "checksum"


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Any], facts: dict[str, str]) -> None:
    """Write tensors and facts about them; an existing file is replaced as a whole."""
    from safetensors.torch import save_file

    # Tensors that share memory are refused: each gets its own.
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    facts = {**facts, _CHECKSUM: _sum_content(own, facts)}
    with atomic.write_file(path) as temporary:
        # One entry: several are written in an order that changes from run to run.
        save_file(own, temporary, {_FORMAT: json.dumps(facts, sort_keys=True)})


def read_tensors(path: str | os.PathLike[str], method: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read a file that ``write_tensors`` wrote for a method; any other file is a ValueError."""
    from safetensors import SafetensorError, safe_open

    expected = f"Expected a file written by {method}.save. Got {os.fspath(path)!r}"
    if not Path(path).exists():
        raise FileNotFoundError(f"{expected}, which does not exist.")
    try:
        open_regular(path).close()
        with safe_open(path, framework="pt") as file:
            facts = parse_json((file.metadata() or {}).get(_FORMAT, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{expected}: {error}.") from None
    if not isinstance(facts, dict) or not all(isinstance(each, str) for each in facts.values()):
        facts = {}
    if facts.get("method") != method:
        raise ValueError(f"{expected}, of {facts.get('method', 'something else')}.")
    if facts.pop(_CHECKSUM, None) not in (None, _sum_content(tensors, facts)):  # older files have none
        raise ValueError(f"{expected}, which was changed since it was written. Remove it or write it again.")
    return tensors, facts


def _sum_content(tensors: dict[str, Any], facts: dict[str, str]) -> str:
    """Return the checksum of tensors of any dtype, with their names, dtypes and shapes, and of the facts."""
    import torch

    found: dict[str, Any] = {f"fact {name}": value for name, value in facts.items()}
    for name, tensor in tensors.items():
        found[f"{name} {tensor.dtype} {tuple(tensor.shape)}"] = tensor.reshape(-1).view(torch.uint8).numpy()
    return f"{sum_arrays(found):08x}"


def load_state(name: str, model: Any, state: dict[str, Any]) -> None:
    """Load parameters and buffers into a network; raise where it has others."""
    networks.check_network(name, model)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())  # PyTorch's has several lines
        raise ValueError(f"{name} must have the architecture that was saved. {reason}") from None


def pack_weights(weights: Any) -> dict[str, Any]:
    """Return the weights of members as an entry for a file; empty where there are none."""
    import torch

    return {} if weights is None else {"weights": torch.from_numpy(weights)}
