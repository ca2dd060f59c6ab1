"""The input of a network's last layer, computed once for a data set and cached in a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from demur.checksums import sum_array
from demur.posteriors import networks
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.networks import preserve_random_state
from demur.predictions import arrays
from demur.progress import progress_bar
from demur.scoring.batches import InputBatch, iterate_batches, preserve_generators
from demur.scoring.checkpoint import Checkpoint

_VALUES, _INDEX = "features.bin", "index.npz"


class Features:
    """Features of a data set, with labels and ids: a loader for ``demur.score`` and ``LastLayer.fit``.

    Parameters
    ----------
    values
        (inputs, features), in memory or mapped from a file.
    labels, ids
        (inputs,) each, labels also (inputs, numbers); None where there are none.
    layer
        The layer that takes the features, as the model of ``LastLayer``; None where there is none.
    rows
        Inputs per batch.
    mark
        A text that identifies these features; None: it is derived from the values.

    Examples
    --------
    >>> features = demur.posteriors.Features(np.zeros((5, 4)), labels=np.arange(5), rows=2)
    >>> [values.shape for values, labels in features]
    [(2, 4), (2, 4), (1, 4)]
    """

    def __init__(
        self, values: Any, labels: Any = None, ids: Any = None, *, layer: Any = None, rows: int = 1024,
        mark: str | None = None,
    ) -> None:  # fmt: skip
        self.values = values if isinstance(values, np.ndarray) else arrays.to_numpy(values)
        if self.values.ndim != 2 or self.values.dtype.kind != "f":
            raise ValueError(
                "values must be numbers of shape (inputs, features). "
                f"Got {self.values.dtype} of shape {self.values.shape}."
            )
        self.labels, self.ids = (None if each is None else np.asarray(each) for each in (labels, ids))
        for name, each, axes in (("labels", self.labels, 2), ("ids", self.ids, 1)):
            if each is not None and (each.shape[:1] != self.values.shape[:1] or each.ndim > axes):
                raise ValueError(
                    f"{name} must be one for each input, shape {self.values.shape[:1]}. Got {each.shape}."
                )
        self.layer, self.rows = layer, rows
        self._mark = mark

    def __repr__(self) -> str:
        inputs, size = self.values.shape
        return f"Features({inputs} inputs, {size} features, {self.values.dtype})"

    def __len__(self) -> int:
        return -(-len(self.values) // self.rows)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.values), self.rows):
            some = slice(start, start + self.rows)
            labels = None if self.labels is None else self.labels[some]
            # A copy, since a network could otherwise write to the file.
            values = np.array(self.values[some])
            if self.ids is not None:
                yield values, labels, self.ids[some]
            else:
                yield values if labels is None else (values, labels)

    @property
    def mark(self) -> str:
        """A text that identifies these features."""
        if self._mark is None:
            self._mark = fingerprint(self.values, self.labels)
        return self._mark


def features(
    model: Any,
    loader: Iterable[Any],
    *,
    cache: str | os.PathLike[str] | None = None,
    layer: str | None = None,
    forward: networks.Forward | None = None,
    dtype: str | None = None,
    rows: int = 1024,
    every: float = 10.0,
    progress: bool = True,
) -> Features:
    """Compute the input of the last layer, once for a whole data set.

    Parameters
    ----------
    model, layer, forward
        As for ``LastLayer``.
    loader
        As for ``demur.score``, without shuffling: it must bring the same batches each time.
    cache
        A folder for the features. After an interruption, the same call resumes from it; once it is complete,
        the network does not run at all. The loader is read in any case, and a folder for other inputs, or for
        another network, is refused, as is one whose numbers changed. None: the features stay in memory.
    dtype
        The type of the stored numbers, such as ``"float16"``; None: that of the network.
    rows
        Inputs per batch when the features are read.
    every
        Seconds between writes of the folder's index.
    progress
        Show a progress bar, on a terminal.

    Returns
    -------
    Features
        A loader for posteriors of the last layer alone, ``LastLayer(found.layer, ...)``.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> found = demur.posteriors.features(model, [torch.randn(10, 4)])
    >>> posterior = demur.posteriors.LastLayer(found.layer, dropout=0.2, samples=50)
    >>> demur.score(posterior, found, progress=False)["pairwise"].epistemic.shape
    (10,)
    """
    # Used only to find the features; the rate of dropout does not matter.
    source = LastLayer(model, dropout=0.5, layer=layer, forward=forward)
    kind = None if dtype is None else np.dtype(dtype)
    if kind is not None and kind.kind != "f":
        raise ValueError(f"dtype must be a floating type, such as 'float16'. Got {dtype!r}.")
    settings = {
        "kind": "features",
        "model": fingerprint(model),
        "layer": next(name for name, each in model.named_modules() if each is source.layer),
        "dtype": None if kind is None else kind.str,
    }
    store = _FeatureStore(cache, settings, every)
    try:
        total = len(loader)  # pyright: ignore[reportArgumentType]
    except TypeError:
        total = None
    bar = progress_bar(total, "batches", hidden=not progress)
    with preserve_random_state(), preserve_generators(loader), contextlib.closing(store), bar as show:
        done = 0
        for done, batch in enumerate(iterate_batches(loader, label_axes=2), 1):
            if done > len(store.marks):
                store.add(batch, _cast(source.features(batch.inputs)[0], kind))
            else:
                store.check(done - 1, batch)
            show(done)
        store.finish(done)
    mark = fingerprint(settings, store.marks)
    return Features(store.values(), *store.read_labels_and_ids(), layer=source.layer, rows=rows, mark=mark)


def _cast(found: Any, kind: np.dtype | None) -> np.ndarray:
    """Return features in this dtype; raise where it cannot hold them."""
    import torch

    values = found.float() if found.dtype == torch.bfloat16 else found
    values = values.cpu().numpy()
    with np.errstate(over="ignore"):
        cast = values if kind is None else values.astype(kind)
    if not np.isfinite(cast).all():
        large = float(np.abs(values).max())
        raise ValueError(f"Features must be finite numbers of type {cast.dtype}. Got up to {large:.3g}.")
    return cast


class _FeatureStore:
    """Batches of features, in a folder or in memory.

    Numbers are appended to one file. The index, which is replaced as a whole, says how many of them are
    valid: what an interrupted run wrote after that is cut off.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, settings: dict[str, Any], every: float) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.index = Checkpoint(None if self.folder is None else self.folder / _INDEX, settings, every)
        found = self.index.read()
        self.marks: list[int] = found["marks"].tolist() if found else []
        self.checksums: list[int] = found["checksums"].tolist() if "checksums" in found else []
        self.inputs, self.size = (int(found[name]) if found else 0 for name in ("inputs", "size"))
        self.kind = np.dtype(str(found["dtype"])) if found else None
        self.complete = bool(found["complete"]) if found else False
        self.columns = {name: [found[name]] for name in ("labels", "ids") if name in found}
        self.parts: list[np.ndarray] = []
        self.file: Any = None
        if self.folder is not None and found:
            path, expected = self.folder / _VALUES, self.inputs * self.size * _count_bytes(self.kind)
            there = path.stat().st_size if path.exists() else 0
            if there < expected:
                raise ValueError(
                    f"cache: expected {expected} bytes in {str(path)!r}, as its index says. Got {there}. "
                    "Remove the folder."
                )

    def check(self, index: int, batch: InputBatch) -> None:
        """Raise unless a batch is the one whose features are stored."""
        if self.marks[index] != batch.full_mark:
            raise ValueError(
                f"cache: expected the inputs whose features it holds. Got others at input {batch.position}. "
                "Switch off shuffling and random augmentation, or choose another folder."
            )
        if self.folder is not None and index < len(self.checksums):  # older folders have none
            path, row = self.folder / _VALUES, self.size * _count_bytes(self.kind)
            stored = np.fromfile(
                path, self.kind or np.uint8, batch.size * self.size, offset=batch.position * row
            )
            if sum_array(stored) != self.checksums[index]:
                raise ValueError(
                    f"cache: expected in {str(path)!r} what was written to it. Got other numbers for inputs "
                    f"{batch.position} to {batch.position + batch.size - 1}. Remove the folder."
                )

    def add(self, batch: InputBatch, values: np.ndarray) -> None:
        """Append the features of a batch."""
        if self.complete:
            raise ValueError(f"cache: expected {self.inputs} inputs, as it holds. Got more. {_ADVICE}")
        if len(values) != batch.size:
            raise ValueError(f"Expected features of {batch.size} inputs. Got {len(values)}.")
        if self.kind is None:
            self.kind, self.size = values.dtype, values.shape[1]
        if self.folder is None:
            self.parts.append(values)
        else:
            if self.file is None:
                self.file = open(self.folder / _VALUES, "r+b" if self.marks else "wb")  # noqa: SIM115
                self.file.truncate(self.inputs * self.size * _count_bytes(self.kind))
                self.file.seek(0, os.SEEK_END)
            self.file.write(np.ascontiguousarray(values).data)
        for name, column in (("labels", batch.labels), ("ids", batch.ids)):
            if self.marks and (column is None) != (name not in self.columns):
                raise ValueError(f"{name} must be in every batch or in none. Got both.")
            if column is not None:
                self.columns.setdefault(name, []).append(column)
        if self.folder is not None and len(self.checksums) == len(self.marks):
            self.checksums.append(sum_array(values.reshape(-1)))
        self.marks.append(batch.full_mark)
        self.inputs += batch.size
        if self.index.due():
            self.write(complete=False)

    def write(self, *, complete: bool) -> None:
        """Write the index of what the file holds."""
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
        numbers = {"inputs": self.inputs, "size": self.size, "complete": complete}
        columns = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        kind = np.array("" if self.kind is None else self.kind.str)
        entries = {name: np.array(value) for name, value in numbers.items()}
        lists = {"marks": np.array(self.marks), "checksums": np.array(self.checksums, np.int64)}
        self.index.write({**lists, "dtype": kind, **entries, **columns})

    def finish(self, batches: int) -> None:
        """Mark the folder as complete, after this many batches."""
        if batches != len(self.marks):
            raise ValueError(
                f"cache: expected {len(self.marks)} batches, as it holds. Got {batches}. {_ADVICE}"
            )
        if not self.complete:
            self.write(complete=True)
        self.complete = True

    def close(self) -> None:
        """Close the file; after an error, first write the index of what it holds."""
        if self.file is not None:
            if not self.complete:
                self.write(complete=False)
            self.file.close()

    def values(self) -> np.ndarray:
        """Return all features."""
        if self.folder is None:
            return np.concatenate(self.parts)
        assert self.kind is not None
        return np.memmap(self.folder / _VALUES, self.kind, "r", shape=(self.inputs, self.size))

    def read_labels_and_ids(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the labels and ids of all inputs."""
        labels, ids = (
            np.concatenate(self.columns[name]) if name in self.columns else None for name in ("labels", "ids")
        )
        return labels, ids


_ADVICE = "Choose another folder."


def _count_bytes(kind: np.dtype | None) -> int:
    """Return the size of one number in bytes; 0 before the dtype is known."""
    return 0 if kind is None else kind.itemsize
