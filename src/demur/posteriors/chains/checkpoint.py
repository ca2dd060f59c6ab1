"""The folder of a chain: its samples and its last states, from which an interrupted run resumes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from demur import atomic
from demur.posteriors.chains.stepper import ChainState
from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.reading import read_json
from demur.run_settings import list_changes

_STATES_KEPT = 2
"""The last state, and the one before it for a run that scores samples before the last state."""


class ChainCheckpoint:
    """The files of one chain, each complete or not there.

    Parameters
    ----------
    path
        The folder; it is created if needed, and stays when the chain is done.
    method, facts
        What identifies the chain. A folder of another chain is refused.
    every
        Seconds between states.
    """

    def __init__(
        self, path: str | os.PathLike[str], method: str, facts: dict[str, Any], every: float
    ) -> None:
        self.path, self.method, self.every = Path(path), method, every
        facts = json.loads(json.dumps(facts))
        self.path.mkdir(parents=True, exist_ok=True)
        known = self.path / "chain.json"
        if known.exists():
            try:
                found = read_json(known)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                raise ValueError(
                    f"checkpoint: expected a folder of this chain. Got {str(path)!r}, whose {known.name} is "
                    "damaged. Remove it or choose another name."
                )
            if found != facts:
                raise ValueError(
                    f"checkpoint: expected a folder of this chain. Got {str(path)!r}, of one with another "
                    f"{', '.join(sorted(list_changes(found, facts)))}. Remove it or choose another name."
                )
        elif any(self.path.iterdir()):
            raise ValueError(
                f"checkpoint must be a folder of this chain, or an empty one. Got {str(path)!r} with other "
                "files."
            )
        else:
            atomic.write_text(known, json.dumps(facts))
        self._last = time.monotonic()

    def due(self) -> bool:
        """Return whether it is time to write a state."""
        return time.monotonic() - self._last >= self.every

    def write_state(self, state: ChainState) -> None:
        """Write a state, and remove old ones."""
        tensors = {f"parameters.{name}": value for name, value in state.parameters.items()}
        tensors |= {f"momenta.{name}": value for name, value in state.momenta.items()}
        write_tensors(self.path / f"state-{state.step:09d}.safetensors", tensors, {"method": self.method})
        for old in sorted(self.path.glob("state-*"))[:-_STATES_KEPT]:
            old.unlink(missing_ok=True)
        self._last = time.monotonic()

    def read_states(self, like: ChainState) -> list[ChainState]:
        """Return the saved states, in order, on the device of another state."""
        found = []
        for path in sorted(self.path.glob("state-*.safetensors")):
            tensors, _ = read_tensors(path, self.method)
            parts = [
                {name: self._pick(path, tensors, f"{part}.{name}", value) for name, value in own.items()}
                for part, own in (("parameters", like.parameters), ("momenta", like.momenta))
            ]
            step = path.stem.removeprefix("state-")
            if not step.isdecimal():
                raise self._foreign(path)
            found.append(ChainState(int(step), *parts))
        return found

    def _pick(self, path: Path, tensors: dict[str, Any], name: str, like: Any) -> Any:
        """Return a tensor of a file; raise unless it is there and has the shape and dtype of another."""
        value = tensors.get(name)
        if value is None or value.shape != like.shape or value.dtype != like.dtype:
            raise self._foreign(path)
        return value.to(like.device)

    def _foreign(self, path: Path) -> ValueError:
        return ValueError(
            f"checkpoint: expected files of this chain. Got {str(path)!r}, of another. Remove it: the chain "
            "resumes from the state before."
        )

    def write_sample(self, sample: int, parameters: dict[str, Any]) -> None:
        """Write a sample."""
        write_tensors(self._sample_path(sample), parameters, {"method": self.method})

    def read_sample(self, sample: int, like: ChainState) -> dict[str, Any] | None:
        """Return a saved sample, on the device of a state; None where there is none."""
        path = self._sample_path(sample)
        if not path.exists():
            return None
        tensors, _ = read_tensors(path, self.method)
        return {name: self._pick(path, tensors, name, value) for name, value in like.parameters.items()}

    def _sample_path(self, sample: int) -> Path:
        return self.path / f"sample-{sample:06d}.safetensors"
