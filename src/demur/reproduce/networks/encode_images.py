"""A stage that runs images through a network and keeps features, logits and the last layer on disk.

logits.npy                (images, classes), float32
features.npy              (images, features), float32: what enters the last linear layer
labels.npy                (images,), int64; -1 where unknown
ids.npy                   (images,), file names
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

from demur.atomic import write_file, write_text
from demur.posteriors.last_layer import LastLayer
from demur.progress import progress_bar
from demur.reading import read_json
from demur.reproduce.data.image_folders import ImageSet, decode_image, require_pillow
from demur.reproduce.networks.pretrained import PretrainedNetwork, open_network
from demur.reproduce.stages import Stage

SECONDS_BETWEEN_SAVES = 10.0
"""How often progress is saved: what an interruption may cost."""

_BATCHES_AHEAD = 3
"""Batches that are decoded while the network works."""

_PROGRESS_FILE, _LAYER_FILE = "progress.json", "last_layer.safetensors"

_OPERATIONS_PER_SECOND = 7e9
"""Of one core, for the plan: what small networks reach without an accelerator."""

_DECODING_SECONDS = 0.01
"""To decode and prepare one image on one core, for the plan."""


def plan_encoding(
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
    """Return the stage that runs a set of images through a network.

    Its key depends on the names and sizes of the image files and on their labels (not on their bytes: a
    change that keeps the size goes unnoticed), on the network's layers, parameters and preprocessing, and on
    `batch`, since the last digits may depend on it; not on versions of libraries, workers or the device. The
    network is opened once and tried on one grey image, so that misfits are reported before the work starts.

    Parameters
    ----------
    images
        The set.
    spec, weights
        As for `open_network`.
    batch
        Images that go through the network together. Batches always have the same rows, wherever a run was
        interrupted, so that the files are the same to the byte.
    workers
        Threads that decode images while the network works; None: one per core, at most 8.
    device
        Where the network runs, as PyTorch names it.
    estimate
        Time one batch for the plan; otherwise the time is estimated from the network's operations.
    progress
        Show a progress bar on a terminal.
    """
    if batch < 1:
        raise ValueError(f"batch: expected at least 1 image, got {batch}")
    workers = min(8, os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers: expected at least 1, got {workers}")
    found = measure_network(spec, None if weights is None else str(weights), _stamp_file(weights))
    facts = {"images": images.mark, "network": found.fingerprint, "batch": batch}
    numbers = len(images) * (found.classes + found.features) + found.classes * (found.features + 1)
    text = len(images) * (8 + 4 * max(map(len, images.ids)))
    cores = os.cpu_count() or 1
    seconds = len(images) * max(
        found.operations / (_OPERATIONS_PER_SECOND * cores), _DECODING_SECONDS / min(workers, cores)
    )

    def run(rows: slice | None = None) -> _ImageEncoder:
        network = open_network(spec, weights)
        if network.fingerprint != found.fingerprint:
            raise ValueError(f"{spec}: expected the network that was planned with, got another: start again")
        network.model.to(device)
        some = images if rows is None else images.take(range(*rows.indices(len(images))))
        return _ImageEncoder(some, network, batch, workers)

    if estimate:
        seconds = len(images) / min(batch, len(images)) * run(slice(batch)).measure_seconds()
    return Stage(
        f"encode/{images.name}/{found.name}",
        lambda folder: run().write(folder, found, progress),
        facts,
        seconds=seconds,
        megabytes=(4 * numbers + text) / 1e6,
    )


class _NetworkSize(NamedTuple):
    """What the plan needs to know of a network."""

    name: str
    fingerprint: str
    classes: int
    features: int
    operations: int


def _stamp_file(weights: str | os.PathLike[str] | None) -> tuple[int, int] | None:
    """Return the time and size of a file, which show whether it has changed."""
    if weights is None or not os.path.isfile(weights):
        return None
    found = os.stat(weights)
    return found.st_mtime_ns, found.st_size


@functools.cache
def measure_network(spec: str, weights: str | None, stamp: Any) -> _NetworkSize:
    """Open a network, run one grey image through it, and return its size."""
    network = open_network(spec, weights)
    source = _find_last_layer(network)
    tensor = _preprocess(require_pillow().new("RGB", (320, 256), (124, 116, 104)), network, "a grey image")
    with _count_operations(network.model) as counted:
        _run_batch(network, source, tensor[None])
    layer = source.layer
    return _NetworkSize(
        network.name, network.fingerprint, layer.out_features, layer.in_features, sum(counted)
    )


@contextlib.contextmanager
def _count_operations(model: Any) -> Iterator[list[int]]:
    """Collect the operations of convolutions and linear layers, which are nearly all."""
    from torch import nn

    counted: list[int] = []

    def count(layer: Any, _: Any, out: Any) -> None:
        # Each output is a product with one row of the weights.
        counted.append(2 * out.numel() * layer.weight[0].numel())

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    handles = [each.register_forward_hook(count) for each in model.modules() if isinstance(each, kinds)]
    try:
        yield counted
    finally:
        for handle in handles:
            handle.remove()


def _find_last_layer(network: PretrainedNetwork) -> LastLayer:
    """Return what computes features and logits; raise if the network does not end in a linear layer."""
    try:
        # Only its way of finding the features is used, not the dropout rate.
        return LastLayer(network.model, dropout=0.5)
    except ValueError as error:
        raise ValueError(f"{network.name}: {error}") from error


def _run_batch(network: PretrainedNetwork, source: LastLayer, tensor: Any) -> tuple[Any, Any]:
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


def _preprocess(image: Any, network: PretrainedNetwork, what: object) -> Any:
    """Return an image as input of the network; raise if the preprocessing returns something else."""
    import torch

    tensor = network.preprocess(image)
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or tensor.ndim != 3:
        shape = f" {tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else ""
        raise ValueError(
            f"{network.name}: expected its preprocessing to return a float tensor (3, height, width) of "
            f"{what}, got {type(tensor).__name__}{shape}"
        )
    return tensor


class _ImageEncoder:
    """Runs a set of images through a network.

    Parameters
    ----------
    images, network
        The images, and what they are run through.
    batch, workers
        Images that go together, and threads that decode them.
    """

    def __init__(self, images: ImageSet, network: PretrainedNetwork, batch: int, workers: int) -> None:
        self.images, self.network, self.batch, self.workers = images, network, batch, workers
        self.source = _find_last_layer(network)

    def write(self, folder: Path, expected: _NetworkSize, progress: bool) -> None:
        """Write all files, resuming from the progress that an interrupted run saved."""
        images = self.images
        if (folder / _LAYER_FILE).exists() and not (folder / _PROGRESS_FILE).exists():
            return  # interrupted after the last file
        widths = {"features": expected.features, "logits": expected.classes}
        files, done = _open_arrays(folder, len(images), widths)
        last = time.monotonic()
        with progress_bar(len(images), f"images, {self.network.name}", hidden=not progress) as show:
            show(min(done * self.batch, len(images)))
            for number, (rows, found) in enumerate(self.encode_batches(done), done + 1):
                for name, values in found.items():
                    files[name][rows] = values
                if time.monotonic() - last >= SECONDS_BETWEEN_SAVES:
                    _save_progress(folder, files, number)
                    last = time.monotonic()
                show(min(rows.stop, len(images)))
        _save_progress(folder, files, -(-len(images) // self.batch))
        labels = np.full(len(images), -1, np.int64) if images.labels is None else images.labels
        np.save(folder / "labels.npy", labels.astype(np.int64))
        np.save(folder / "ids.npy", np.array(images.ids))
        self._write_layer(folder / _LAYER_FILE)
        (folder / _PROGRESS_FILE).unlink()

    def _write_layer(self, path: Path) -> None:
        """Write the last layer, which is the last file."""
        from safetensors.torch import save_file

        layer = self.source.layer
        bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
        parts = {"weight": layer.weight, "bias": bias}
        with write_file(path) as temporary:
            save_file(
                {name: each.detach().cpu().float().contiguous() for name, each in parts.items()}, temporary
            )

    def encode_batches(self, done: int = 0) -> Iterator[tuple[slice, dict[str, np.ndarray]]]:
        """Yield the rows of each batch with its features and logits, after those that are done."""
        for rows, tensor in self._decode_batches(done):
            both = _run_batch(self.network, self.source, tensor)
            found = {
                name: values.float().cpu().numpy()
                for name, values in zip(("features", "logits"), both, strict=True)
            }
            wrong = ~(np.isfinite(found["features"]).all(1) & np.isfinite(found["logits"]).all(1))
            if wrong.any():
                path = self.images.paths[rows.start + int(np.flatnonzero(wrong)[0])]
                raise ValueError(
                    f"{self.network.name}: expected finite features of {path}, got infinite ones or NaN"
                )
            yield rows, found

    def _decode_batches(self, done: int) -> Iterator[tuple[slice, Any]]:
        """Yield the rows of each batch with its images as a tensor, decoded ahead by threads."""
        import torch

        paths, count = self.images.paths, len(self.images)
        slices = iter(
            slice(i, min(i + self.batch, count)) for i in range(done * self.batch, count, self.batch)
        )
        pool = ThreadPoolExecutor(self.workers)

        def submit(rows: slice) -> tuple[slice, list[Future[Any]]]:
            return rows, [pool.submit(self._read_image, path) for path in paths[rows]]

        try:
            waiting = deque(submit(rows) for rows in itertools.islice(slices, _BATCHES_AHEAD))
            while waiting:
                rows, futures = waiting.popleft()
                tensors = [each.result() for each in futures]
                waiting.extend(submit(more) for more in itertools.islice(slices, 1))
                shapes = {tuple(each.shape) for each in tensors}
                if len(shapes) > 1:
                    raise ValueError(
                        f"{self.network.name}: expected its preprocessing to give tensors of one shape, got "
                        f"{' and '.join(map(str, sorted(shapes)[:2]))}"
                    )
                yield rows, torch.stack(tensors)
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_image(self, path: Path) -> Any:
        """Return one image as input of the network."""
        return _preprocess(decode_image(path), self.network, path)

    def measure_seconds(self) -> float:
        """Return the seconds that this set takes, after a first pass that is not measured."""
        list(self.encode_batches())
        begun = time.perf_counter()
        list(self.encode_batches())
        return time.perf_counter() - begun


def _open_arrays(folder: Path, rows: int, widths: dict[str, int]) -> tuple[dict[str, np.memmap], int]:
    """Return the arrays on disk to write rows into, and how many batches are done."""
    paths = {name: folder / f"{name}.npy" for name in widths}
    progress = folder / _PROGRESS_FILE
    if progress.exists():
        try:
            files: dict[str, Any] = {n: np.lib.format.open_memmap(path, "r+") for n, path in paths.items()}
            done = read_json(progress)["batches"]
            shapes = {name: file.shape for name, file in files.items()}
            if type(done) is not int or done < 0 or shapes != {n: (rows, widths[n]) for n in widths}:
                raise ValueError("other sizes")
        except Exception as error:  # a damaged array fails in NumPy in many ways
            raise ValueError(f"{folder}: expected an interrupted run, got {error}: remove it") from error
        return files, done
    create: Callable[..., Any] = functools.partial(np.lib.format.open_memmap, mode="w+", dtype=np.float32)
    files = {name: create(path, shape=(rows, widths[name])) for name, path in paths.items()}
    _save_progress(folder, files, 0)
    return files, 0


def _save_progress(folder: Path, files: dict[str, np.memmap], batches: int) -> None:
    """Record how many batches are done, once they are on disk."""
    for file in files.values():
        file.flush()
    write_text(folder / _PROGRESS_FILE, json.dumps({"batches": batches}) + "\n")
