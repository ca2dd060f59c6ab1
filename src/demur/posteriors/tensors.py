"""Tensors of a posterior in a safetensors file: no code in it, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FORMAT = "demur posterior 1"


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Any], facts: dict[str, str]) -> None:
    """Write tensors, and facts about them; an existing file is replaced."""
    from safetensors.torch import save_file

    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    # Tensors that share memory are refused: each gets its own.
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        # One entry: several are written in an order that changes from run to run.
        save_file(own, scratch, {FORMAT: json.dumps(facts, sort_keys=True)})
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def read_tensors(path: str | os.PathLike[str], method: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read what ``write_tensors`` wrote for a method; any other file is a ValueError."""
    from safetensors import SafetensorError, safe_open

    expected = f"Expected a file written by {method}.save. Got {os.fspath(path)!r}"
    if not Path(path).exists():
        raise FileNotFoundError(f"{expected}, which does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(FORMAT, "{}"))
            if facts.get("method") != method:
                raise ValueError(f"{expected}, of {facts.get('method', 'something else')}.")
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{expected}: {error}.") from None
