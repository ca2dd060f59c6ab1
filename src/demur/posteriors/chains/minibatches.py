"""Minibatches of training data: the batch of any step, the same however a chain got to that step."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from demur.posteriors import networks
from demur.posteriors.fingerprint import fingerprint
from demur.scoring.batch_parts import ID_NAMES, LABEL_NAMES, pop_first
from demur.scoring.batches import find_generators, preserve_generators


class Minibatches(Protocol):
    """The batches of all passes over a data set."""

    size: int
    """The number of inputs in the data set."""
    batches_per_pass: int
    """The number of batches in one pass over the data set."""

    def at(self, step: int) -> tuple[Any, Any]:
        """Return inputs and targets of a step, counted from 0."""
        ...


def make_minibatches(data: Any, batch_size: int, seed: int) -> Minibatches:
    """Return the batches of a pair of arrays, a ``Dataset`` or a ``DataLoader``."""
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive integer. Got {batch_size!r}.")
    if isinstance(data, tuple) and len(data) == 2:
        return ArrayMinibatches(*data, batch_size, seed)
    from torch.utils.data import DataLoader

    if not isinstance(data, DataLoader):
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(
            data, tuple | list | str | Mapping
        ):
            raise TypeError(
                "data must be a pair (inputs, targets), a torch Dataset or a DataLoader, of a known size. "
                f"Got {type(data).__name__}."
            )
        size = len(data)
        data = DataLoader(data, batch_size=min(batch_size, max(size, 1)), shuffle=size > 0, drop_last=True)
    return _LoaderMinibatches(data, seed)


def describe_data(minibatches: Minibatches) -> list[Any]:
    """Return what a checkpoint recognises the data by; of a loader, only its size and its first batch."""
    if isinstance(minibatches, ArrayMinibatches):
        return [minibatches.size, fingerprint(minibatches.inputs, minibatches.targets)]
    return [minibatches.size, fingerprint(minibatches.at(0))]


def read_whole(data: Any, batch_size: int, seed: int) -> list[tuple[Any, Any]]:
    """Return all inputs and targets, each once, in batches; a loader is read once, in its own batches."""
    from torch.utils.data import DataLoader

    given = make_minibatches(data, batch_size, seed)
    if isinstance(given, ArrayMinibatches):
        return given.split_in_order()
    if not isinstance(data, DataLoader):
        given = _LoaderMinibatches(DataLoader(data, batch_size=batch_size), seed)
    found = [given.at(step) for step in range(given.batches_per_pass)]
    count = sum(len(targets) for _, targets in found)
    if count != given.size:
        raise ValueError(
            f"data must bring each of its {given.size} inputs once in a pass. Got {count}. "
            "Set drop_last=False on the loader, and give it no sampler of its own."
        )
    return found


def _index_rows(values: Any, index: Any) -> Any:
    """Return some rows of a tensor, or of each tensor in a mapping."""
    if isinstance(values, Mapping):
        return {name: _index_rows(value, index) for name, value in values.items()}
    # Faster than indexing by brackets.
    return values.index_select(0, index)


class ArrayMinibatches:
    """Batches of arrays in memory, in a new random order in each pass.

    All batches have the same size; the inputs left over at the end of a pass are skipped in that pass.
    """

    def __init__(self, inputs: Any, targets: Any, batch_size: int, seed: int) -> None:
        import torch

        if targets is None:
            raise ValueError("data must have targets: give a pair (inputs, targets). Got None for them.")

        def tensors(values: Any) -> Any:
            if isinstance(values, Mapping):
                return {name: tensors(value) for name, value in values.items()}
            found = torch.as_tensor(values)
            # PyTorch cannot select rows of these.
            return found.long() if found.dtype in (torch.uint16, torch.uint32, torch.uint64) else found

        self.inputs, self.targets, self.seed = tensors(inputs), tensors(targets), seed
        parts = [*(self.inputs.values() if isinstance(self.inputs, Mapping) else [self.inputs]), self.targets]
        sizes = [len(part) if part.ndim else 0 for part in parts]
        if len(set(sizes)) != 1 or sizes[0] == 0:
            raise ValueError(f"data must have as many targets as inputs, at least one. Got {sizes}.")
        self.size = sizes[0]
        self.batch_size = min(batch_size, self.size)
        self.batches_per_pass = self.size // self.batch_size
        self._order: tuple[int, Any] = (-1, None)

    def at(self, step: int) -> tuple[Any, Any]:
        import torch

        if self.batch_size == self.size:
            return self.inputs, self.targets
        index = torch.from_numpy(self.find_rows(step))
        return _index_rows(self.inputs, index), _index_rows(self.targets, index)

    def split_in_order(self) -> list[tuple[Any, Any]]:
        """Return all inputs and targets in batches, in their own order, the last one smaller."""
        import torch

        parts = torch.arange(self.size).split(self.batch_size)
        return [(_index_rows(self.inputs, rows), _index_rows(self.targets, rows)) for rows in parts]

    def find_rows(self, step: int) -> np.ndarray:
        """Return the numbers of the inputs in the batch of a step."""
        import torch

        whole = self.batch_size == self.size
        epoch, place = (0, 0) if whole else divmod(step, self.batches_per_pass)
        if self._order[0] != epoch:
            source = torch.Generator().manual_seed(networks.derive_seed(self.seed, 1, epoch))
            order = torch.arange(self.size) if whole else torch.randperm(self.size, generator=source)
            self._order = (epoch, order.numpy())
        return self._order[1][place * self.batch_size : (place + 1) * self.batch_size]


class _LoaderMinibatches:
    """Batches of a ``DataLoader``, iterated over again and again.

    All random generators, those of the loader included, are seeded before each batch, so that shuffling and
    random augmentation are the same in every run.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        self.loader, self.seed = loader, seed
        try:
            self.size, self.batches_per_pass = len(loader.dataset), len(loader)
        except TypeError:
            raise TypeError(
                "data must have a known size, which scales the likelihood. Got a loader of "
                f"{type(loader.dataset).__name__} without a length."
            ) from None
        if min(self.size, self.batches_per_pass) < 1:
            raise ValueError("data must have inputs. Got a loader without batches.")
        self._next, self._batches = -1, iter(())

    def at(self, step: int) -> tuple[Any, Any]:
        if step != self._next or step % self.batches_per_pass == 0:
            start = step - step % self.batches_per_pass
            with self._seed_loader(start, 0):
                self._batches = iter(self.loader)
            for passed in range(start, step):
                self._take(passed)
        found = self._take(step)
        self._next = step + 1
        return _split_pair(found)

    def _take(self, step: int) -> Any:
        """Return the next batch of the loader, which is that of a step."""
        with self._seed_loader(step, 1):
            found = next(self._batches, None)
        if found is None:
            raise ValueError(
                f"data must bring {self.batches_per_pass} batches in each pass, as len says. Got fewer."
            )
        return found

    @contextlib.contextmanager
    def _seed_loader(self, *place: int) -> Iterator[None]:
        """Seed all random generators for one batch, and restore them afterwards."""
        import torch

        seed = networks.derive_seed(self.seed, 2, *place)
        with networks.preserve_random_state(), preserve_generators(self.loader):
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.default_generator.manual_seed(seed)
            for generator in find_generators(self.loader):
                generator.manual_seed(seed)
            yield


def _split_pair(batch: Any) -> tuple[Any, Any]:
    """Return the inputs and targets of a batch."""
    if isinstance(batch, Mapping):
        rest = dict(batch)
        targets = pop_first(rest, LABEL_NAMES)
        pop_first(rest, ID_NAMES)
        if targets is not None and rest:
            return rest, targets
    elif isinstance(batch, tuple | list) and len(batch) in (2, 3):
        return batch[0], batch[1]
    raise ValueError(
        "A batch must be (inputs, targets), (inputs, targets, ids), or a mapping with 'labels'. "
        f"Got {type(batch).__name__}."
    )
