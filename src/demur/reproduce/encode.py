"""From images and a network to features, logits and the last layer on disk, as a stage that survives a kill.

logits.npy                (images, classes), float32
features.npy              (images, features), float32: what enters the last linear layer
labels.npy                (images,), int64; -1 where nobody knows
ids.npy                   (images,), names of the files
last_layer.safetensors    weight (classes, features) and bias (classes,) of the last linear layer
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from demur.posteriors.last_layer import LastLayer
from demur.progress import progress_bar
from demur.reproduce.models import Network, open_network
from demur.reproduce.pictures import ImageSet, decoded, pillow
from demur.reproduce.stages import Stage, write_text

EVERY = 10.0
"""Seconds between two entries of how far it has come: what a kill may cost."""

_AHEAD = 3
"""Batches that are decoded while the network works."""

_PROGRESS, _LAYER = "progress.json", "last_layer.safetensors"

_SPEED = 7e9
"""Operations a second of one core, for a rough plan: what small networks reach without an accelerator."""

_DECODING = 0.01
"""Seconds to decode and prepare one image on one core, for a rough plan."""


def encode_stage(
    images: ImageSet,
    spec: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    batch: int = 32,
    workers: int | None = None,
    device: str = "cpu",
    estimate: bool = False,
    progress: bool = True,
) -> Stage:
    """Return the stage that sends a set of images through a network.

    Its key depends on names and sizes of the image files and on their labels (not on the bytes in them: a
    file that changes must change in size), on the network's layers, numbers and preprocessing, and on
    `batch`, since the last digits may; not on versions of libraries, workers or the device. The network is
    opened once for that, and tried on one grey image: what does not fit is told before the work.

    Parameters
    ----------
    images
        The set.
    spec, weights
        As for `open_network`.
    batch
        Images that go through the network together. Batches are always of the same rows, wherever a run was
        killed, so that the files are the same to the byte.
    workers
        Threads that decode images while the network works; None: one for each core, at most 8.
    device
        Where the network runs, as PyTorch names it.
    estimate
        Time one batch for the plan; else the time is a rough guess from the network's operations.
    progress
        Show how far it has come, on a terminal.
    """
    if batch < 1:
        raise ValueError(f"batch: expected at least 1 image, got {batch}")
    workers = min(8, os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers: expected at least 1, got {workers}")
    found = tried(spec, None if weights is None else str(weights), _stamp(weights))
    facts = {"images": images.mark, "network": found.fingerprint, "batch": batch}
    numbers = len(images) * (found.classes + found.features) + found.classes * (found.features + 1)
    text = len(images) * (8 + 4 * max(map(len, images.ids)))
    cores = os.cpu_count() or 1
    seconds = len(images) * max(found.operations / (_SPEED * cores), _DECODING / min(workers, cores))

    def run(rows: slice | None = None) -> Encoding:
        network = open_network(spec, weights)
        if network.fingerprint != found.fingerprint:
            raise ValueError(f"{spec}: expected the network that was planned with, got another: start again")
        network.model.to(device)
        some = images if rows is None else images.take(range(*rows.indices(len(images))))
        return Encoding(some, network, batch, workers)

    if estimate:
        seconds = len(images) / min(batch, len(images)) * run(slice(batch)).timed()
    return Stage(
        f"encode/{images.name}/{found.name}",
        lambda folder: run().write(folder, found, progress),
        facts,
        seconds=seconds,
        megabytes=(4 * numbers + text) / 1e6,
    )


class Tried(NamedTuple):
    """What a network is like."""

    name: str
    fingerprint: str
    classes: int
    features: int
    operations: int


def _stamp(weights: str | os.PathLike[str] | None) -> tuple[int, int] | None:
    """Return what tells whether a file has changed."""
    if weights is None or not os.path.isfile(weights):
        return None
    found = os.stat(weights)
    return found.st_mtime_ns, found.st_size


@functools.cache
def tried(spec: str, weights: str | None, stamp: Any) -> Tried:
    """Open a network, send one grey image through it, and return what it is like; the network is let go."""
    network = open_network(spec, weights)
    source = _source_of(network)
    tensor = prepared(pillow().new("RGB", (320, 256), (124, 116, 104)), network, "a grey image")
    with _operations_counted(network.model) as counted:
        through(network, source, tensor[None])
    layer = source.layer
    return Tried(network.name, network.fingerprint, layer.out_features, layer.in_features, sum(counted))


@contextlib.contextmanager
def _operations_counted(model: Any) -> Iterator[list[int]]:
    """Collect how many additions and multiplications convolutions and linear layers do: nearly all."""
    from torch import nn

    counted: list[int] = []

    def count(layer: Any, _: Any, out: Any) -> None:
        # Each number that comes out is a product with one row of the weights.
        counted.append(2 * out.numel() * layer.weight[0].numel())

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    handles = [each.register_forward_hook(count) for each in model.modules() if isinstance(each, kinds)]
    try:
        yield counted
    finally:
        for handle in handles:
            handle.remove()


def _source_of(network: Network) -> LastLayer:
    """Return what gives features and logits of a network; raise where it does not end in a linear layer."""
    try:
        # Only how it finds the features is used; the rate of dropout is not.
        return LastLayer(network.model, dropout=0.5)
    except ValueError as error:
        raise ValueError(f"{network.name}: {error}") from error


def through(network: Network, source: LastLayer, tensor: Any) -> tuple[Any, Any]:
    """Return features and logits of a batch."""
    try:
        return source.features(tensor)
    except ValueError as error:
        raise ValueError(f"{network.name}: {error}") from error
    except RuntimeError as error:
        raise ValueError(
            f"{network.name}: expected a network that takes images of shape {tuple(tensor.shape[1:])}, as "
            f"its preprocessing makes them, got {str(error).splitlines()[0]}"
        ) from error


def prepared(image: Any, network: Network, what: object) -> Any:
    """Return an image as the network takes it; raise where the preprocessing gives something else."""
    import torch

    tensor = network.preprocess(image)
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or tensor.ndim != 3:
        shape = f" {tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else ""
        raise ValueError(
            f"{network.name}: expected its preprocessing to return a float tensor (3, height, width) of "
            f"{what}, got {type(tensor).__name__}{shape}"
        )
    return tensor


class Encoding:
    """A set of images on its way through a network.

    Parameters
    ----------
    images, network
        What goes through what.
    batch, workers
        Images that go together, and threads that decode them.
    """

    def __init__(self, images: ImageSet, network: Network, batch: int, workers: int) -> None:
        self.images, self.network, self.batch, self.workers = images, network, batch, workers
        self.source = _source_of(network)

    def write(self, folder: Path, expected: Tried, progress: bool) -> None:
        """Write all files; go on from what a run that was killed has entered as done."""
        images = self.images
        if (folder / _LAYER).exists() and not (folder / _PROGRESS).exists():
            return  # killed after the last file
        widths = {"features": expected.features, "logits": expected.classes}
        files, done = _opened(folder, len(images), widths)
        last = time.monotonic()
        with progress_bar(len(images), f"images, {self.network.name}", hidden=not progress) as show:
            show(min(done * self.batch, len(images)))
            for number, (rows, found) in enumerate(self.results(done), done + 1):
                for name, values in found.items():
                    files[name][rows] = values
                if time.monotonic() - last >= EVERY:
                    _enter(folder, files, number)
                    last = time.monotonic()
                show(min(rows.stop, len(images)))
        _enter(folder, files, -(-len(images) // self.batch))
        labels = np.full(len(images), -1, np.int64) if images.labels is None else images.labels
        np.save(folder / "labels.npy", labels.astype(np.int64))
        np.save(folder / "ids.npy", np.array(images.ids))
        self.write_layer(folder / _LAYER)
        (folder / _PROGRESS).unlink()

    def write_layer(self, path: Path) -> None:
        """Write the last layer, whole or not at all: it is the last file."""
        from safetensors.torch import save_file

        layer = self.source.layer
        bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
        parts = {"weight": layer.weight, "bias": bias}
        temporary = path.with_name(f".{path.name}.tmp")
        save_file({name: each.detach().cpu().float().contiguous() for name, each in parts.items()}, temporary)
        os.replace(temporary, path)

    def results(self, done: int = 0) -> Iterator[tuple[slice, dict[str, np.ndarray]]]:
        """Yield rows of batches with their features and logits, from a batch on."""
        for rows, tensor in self.decoded(done):
            both = through(self.network, self.source, tensor)
            found = {
                name: values.float().cpu().numpy()
                for name, values in zip(("features", "logits"), both, strict=True)
            }
            wrong = ~(np.isfinite(found["features"]).all(1) & np.isfinite(found["logits"]).all(1))
            if wrong.any():
                path = self.images.paths[rows.start + int(np.flatnonzero(wrong)[0])]
                raise ValueError(f"{self.network.name}: expected finite features of {path}, got others")
            yield rows, found

    def decoded(self, done: int) -> Iterator[tuple[slice, Any]]:
        """Yield rows of batches with their images as tensors, decoded ahead by threads."""
        import torch

        paths, count = self.images.paths, len(self.images)
        slices = iter(
            slice(i, min(i + self.batch, count)) for i in range(done * self.batch, count, self.batch)
        )
        pool = ThreadPoolExecutor(self.workers)

        def begun(rows: slice) -> tuple[slice, list[Future[Any]]]:
            return rows, [pool.submit(self.image, path) for path in paths[rows]]

        try:
            waiting = deque(begun(rows) for rows in itertools.islice(slices, _AHEAD))
            while waiting:
                rows, futures = waiting.popleft()
                tensors = [each.result() for each in futures]
                waiting.extend(begun(more) for more in itertools.islice(slices, 1))
                shapes = {tuple(each.shape) for each in tensors}
                if len(shapes) > 1:
                    raise ValueError(
                        f"{self.network.name}: expected its preprocessing to give tensors of one shape, got "
                        f"{' and '.join(map(str, sorted(shapes)[:2]))}"
                    )
                yield rows, torch.stack(tensors)
        finally:
            pool.shutdown(cancel_futures=True)

    def image(self, path: Path) -> Any:
        """Return one image as the network takes it."""
        return prepared(decoded(path), self.network, path)

    def timed(self) -> float:
        """Return the seconds that this set takes, after a first pass that is not timed."""
        list(self.results())
        begun = time.perf_counter()
        list(self.results())
        return time.perf_counter() - begun


def _opened(folder: Path, rows: int, widths: dict[str, int]) -> tuple[dict[str, np.memmap], int]:
    """Return the files to write rows into, and how many batches of them are done."""
    paths = {name: folder / f"{name}.npy" for name in widths}
    if (folder / _PROGRESS).exists():
        files: dict[str, Any] = {name: np.lib.format.open_memmap(path, "r+") for name, path in paths.items()}
        return files, int(json.loads((folder / _PROGRESS).read_text("utf-8"))["batches"])
    create: Callable[..., Any] = functools.partial(np.lib.format.open_memmap, mode="w+", dtype=np.float32)
    files = {name: create(path, shape=(rows, widths[name])) for name, path in paths.items()}
    _enter(folder, files, 0)
    return files, 0


def _enter(folder: Path, files: dict[str, np.memmap], batches: int) -> None:
    """Say that so many batches are done, once they are on disk."""
    for file in files.values():
        file.flush()
    write_text(folder / _PROGRESS, json.dumps({"batches": batches}) + "\n")
