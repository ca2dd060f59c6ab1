"""Posteriors whose workers can be found and killed, and data for them."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest


class Killer:
    """Kills processes that have left their number in a folder, one after the other, while it is entered.

    Between two kills, three batches have begun: with two workers, one of them has been finished, so that the
    job moves on however slow the machine is.
    """

    def __init__(self, folder: Path, most: int, *, every: float = 0.4, seed: int = 0) -> None:
        self.folder, self.most, self.every = folder, most, every
        self.killed: list[int] = []
        self._random, self._over = random.Random(seed), threading.Event()

    def __enter__(self) -> "Killer":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last = 0
        while len(self.killed) < self.most and not self._over.wait(
            self.every * self._random.uniform(0.5, 1.5)
        ):
            begun = sum(path.stat().st_size for path in self.folder.iterdir())
            found = [int(path.name) for path in self.folder.iterdir()]
            alive = [pid for pid in found if pid not in self.killed and _is_there(pid)]
            if alive and begun >= last + 3:
                last = begun
                self.killed.append(self._random.choice(alive))
                os.kill(self.killed[-1], signal.SIGKILL)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def note_process(folder: Path, seconds: float):
    """A function of a network and its inputs that notes each call of its process, and takes some time."""

    def forward(model, inputs):
        with (folder / str(os.getpid())).open("a") as file:
            file.write("x")
        time.sleep(seconds)
        return model(*inputs.values()) if isinstance(inputs, dict) else model(inputs)

    return forward


def wait_for_machines(ray, count: int) -> None:
    """Wait until Ray knows that so many machines are alive."""
    deadline = time.monotonic() + 120
    while sum(each["Alive"] for each in ray.nodes()) != count:
        assert time.monotonic() < deadline, ray.nodes()
        time.sleep(0.2)


def heads_with_dropout(forward=None, *, features=16, classes=5, samples=8):
    """A posterior of a last layer with dropout, and inputs, labels and ids for it."""
    torch = pytest.importorskip("torch")
    from demur.posteriors import LastLayer

    torch.manual_seed(0)
    layer = torch.nn.Linear(features, classes)
    return LastLayer(layer, dropout=0.3, samples=samples, forward=forward)


def batches(inputs=1000, features=16, size=50, classes=5):
    """Batches of inputs, labels and ids."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(inputs, features)).astype(np.float32)
    labels, ids = rng.integers(classes, size=inputs), np.array([f"input-{k}" for k in range(inputs)])
    return [(x[k : k + size], labels[k : k + size], ids[k : k + size]) for k in range(0, inputs, size)]


def assert_same_bytes(ours, theirs) -> None:
    """Raise unless two Scores have the same columns with the same bytes."""
    assert list(ours.columns) == list(theirs.columns)
    for name, values in theirs.columns.items():
        assert ours.columns[name].dtype == values.dtype, name
        assert ours.columns[name].tobytes() == values.tobytes(), name
    assert (ours.members, ours.table.classes, ours.outcome) == (
        theirs.members, theirs.table.classes, theirs.outcome,
    )  # fmt: skip
