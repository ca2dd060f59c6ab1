"""`ParameterSamples`, the base class of methods whose members are one network with other parameters."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

from demur.posteriors import networks
from demur.posteriors.chains.gradients import CallWithParameters
from demur.posteriors.posterior import Posterior, select_members, split_members
from demur.posteriors.tensor_files import read_tensors, write_tensors


class ParameterSamples(Posterior):
    """Members that share a network's architecture, each with parameters of its own.

    A subclass calls ``_set_up`` and defines ``_draw_samples``.
    """

    def _set_up(self, model: Any, forward: networks.Forward | None, members: int) -> None:
        networks.check_network("model", model)
        self.model, self.members, self._call = model, members, CallWithParameters(model, forward)
        self._samples: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.members} samples)"

    @abstractmethod
    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        """Return the parameters of all samples by name, with the samples along the first axis."""

    def fit(self, *, progress: bool = True) -> Self:
        """Draw all samples and keep them. `predict` and `demur.score` call this where needed."""
        self._hold_samples(progress)
        return self

    def _hold_samples(self, progress: bool = True) -> None:
        """Draw all samples, unless they are there."""
        if self._samples is None:
            self._samples = self._draw_samples(progress)

    def parameters(self, members: range | None = None) -> dict[str, Any]:
        """Return the parameters of samples by name, with the samples along the first axis."""
        wanted = select_members(members, self.members or 0)
        self._hold_samples()
        samples = self._samples or {}
        # A slice is no copy.
        index = slice(wanted.start, wanted.stop, wanted.step) if wanted.step > 0 else list(wanted)
        return {name: value[index] for name, value in samples.items()}

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        wanted = select_members(members, self.members or 0)
        inputs = networks.move_to_model(batch, self.model)
        start = numbers = 0
        while start < len(wanted):
            run = next(split_members(wanted[start:], numbers)) if numbers else wanted[start : start + 1]
            parameters = self.parameters(run)
            with networks.suspend_training([self.model]), networks.preserve_random_state():
                found = [
                    networks.extract_predictions(
                        self._call({n: v[k] for n, v in parameters.items()}, networks.copy_inputs(inputs))
                    )
                    for k in range(len(run))
                ]
            start += len(run)
            chunk = networks.stack_members(found)
            if self._predicts_in_chunks:
                numbers = chunk[0].numel() if hasattr(chunk, "numel") else chunk.values[0].numel()
            yield chunk

    @property
    def _predicts_in_chunks(self) -> bool:
        """Whether several samples are at hand at a time."""
        return True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the samples to a safetensors file."""
        write_tensors(path, self.parameters(), {"method": type(self).__name__})

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: Any, *, forward: networks.Forward | None = None
    ) -> Self:
        """Read samples that ``save`` wrote, for a model of the same architecture; needs no data."""
        tensors, facts = read_tensors(path, cls.__name__)
        own = find_sampled(model, {name: value.shape[1:] for name, value in tensors.items()})
        self = cls.__new__(cls)
        self._set_up(model, forward, len(next(iter(tensors.values()))))
        self._samples = {name: value.to(own[name].device) for name, value in tensors.items()}
        self._restore(facts)
        return self

    def _restore(self, facts: dict[str, str]) -> None:
        """Take up what a file says about its samples."""


def find_sampled(model: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters and buffers of a model by name; raise unless it has those of a file."""
    networks.check_network("model", model)
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    wrong = [name for name, shape in shapes.items() if name not in own or own[name].shape != shape]
    if wrong:
        raise ValueError(
            f"model must have the parameters that were sampled. {wrong[0]!r} is missing or has another shape."
        )
    return own
