"""Gradient descent that, after an interruption, resumes to the same bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demur.posteriors import networks
from demur.posteriors.chains.minibatches import Minibatches
from demur.posteriors.fit_files import FitFile
from demur.progress import progress_bar


@dataclass(frozen=True)
class Descent:
    """Gradient descent in which what a step draws depends on its number alone.

    Parameters
    ----------
    optimizer
        An optimizer of PyTorch.
    minibatches, place
        The batch of each step, and the device and dtype to move it to.
    steps
        How many steps there are in all.
    compute_loss
        A function of a batch and the number of its step, from 0, that returns a loss to minimise. The random
        generators are seeded for it.
    find_rate
        A function of the number of a step that returns its learning rate.
    seed
        The seed of all steps.
    """

    optimizer: Any
    minibatches: Minibatches
    place: tuple[Any, Any]
    steps: int
    compute_loss: Callable[[tuple[Any, Any], int], Any]
    find_rate: Callable[[int], float]
    seed: int

    def take_step(self, step: int) -> None:
        """Take one step; raise where its loss is not finite."""
        rate = self.find_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        inputs, targets = (networks.move_inputs(each, *self.place) for each in self.minibatches.at(step))
        networks.seed_device(networks.derive_seed(self.seed, 3, step), self.place[0])
        self.optimizer.zero_grad()
        loss = self.compute_loss((inputs, targets), step)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(
                f"Expected a finite loss at step {step + 1} of {self.steps}. Got {loss.item()}. Lower rate, "
                f"which is {rate:g} there, or check data and model for numbers that are not finite."
            )
        loss.backward()
        self.optimizer.step()


class TrainingFile:
    """A safetensors file with the state of a training run; it stays when the run is done.

    Parameters
    ----------
    path
        The file; None: nothing is written.
    method
        The posterior that is trained.
    settings
        What must be unchanged for a run to resume. A file with other settings is refused.
    every
        Seconds between writes.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, method: str, settings: dict[str, Any], every: float
    ) -> None:
        self._file = FitFile(path, method, settings, every, argument="checkpoint")

    def read(self) -> tuple[int, dict[str, Any]]:
        """Return the number of steps done, and the tensors written then; 0 and none for a new run."""
        tensors, facts, _ = self._file.read()
        return int(facts.get("step", 0)), tensors

    def run(
        self,
        steps: int,
        take_step: Callable[[int], None],
        pack: Callable[[], dict[str, Any]],
        restore: Callable[[dict[str, Any]], None],
        *,
        progress: bool,
    ) -> None:
        """Take the steps that are left, and write the state every so many seconds and at the end.

        Parameters
        ----------
        steps
            How many steps there are in all.
        take_step
            Takes the step of a number, counted from 0; what it draws must depend on that number alone.
        pack, restore
            Return the state as tensors by name, and take it up from such tensors.
        progress
            Show a progress bar, on a terminal.
        """
        done, tensors = self.read()
        if done:
            restore(tensors)
        with progress_bar(steps, "steps", hidden=not progress) as show:
            for step in range(done, steps):
                take_step(step)
                show(step + 1)
                if self._file.path is not None and (self._file.due() or step + 1 == steps):
                    self.write(step + 1, pack())

    def write(self, step: int, tensors: dict[str, Any]) -> None:
        """Write the state after so many steps, replacing the file as a whole."""
        self._file.write(tensors, finished=False, facts={"step": str(step)})


def pack_optimizer(optimizer: Any) -> dict[str, Any]:
    """Return the state of an optimizer of PyTorch as tensors by name."""
    import torch

    return {
        f"optimizer {i} {name}": torch.as_tensor(value)
        for i, entries in optimizer.state_dict()["state"].items()
        for name, value in entries.items()
        if value is not None
    }


def restore_optimizer(optimizer: Any, tensors: dict[str, Any]) -> None:
    """Restore what ``pack_optimizer`` returned, from among other tensors."""
    entries: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer "):
            _, i, entry = name.split(" ")
            entries.setdefault(int(i), {})[entry] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": entries, "param_groups": groups})
