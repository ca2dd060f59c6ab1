"""Trains the members of a deep ensemble in parallel, and writes each to a file once it is done."""

from __future__ import annotations

import atexit
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from demur import atomic
from demur.posteriors import networks
from demur.posteriors.fingerprint import describe_code, fingerprint
from demur.posteriors.posterior import check_count, check_seed
from demur.posteriors.tensor_files import load_state, read_tensors, write_tensors
from demur.progress import progress_bar
from demur.reading import read_json
from demur.run_settings import describe_changes

_METHOD = "DeepEnsemble.fit"
_SETTINGS = "ensemble.json"
_TEMPORARY = "demur-ensemble-"
"""How names of temporary folders begin; machine and process follow."""


@dataclass(frozen=True)
class Member:
    """The member that a training function trains.

    Attributes
    ----------
    index
        Its number, from 0.
    seed
        Its own seed, below 2**32. The generators of Python, NumPy and PyTorch are already seeded with it; use
        it for others, such as that of a ``DataLoader``.
    """

    index: int
    seed: int


@dataclass(frozen=True)
class _Fit:
    """What the training of all members has in common.

    Parameters
    ----------
    factory, train, seed, threads
        As for ``DeepEnsemble.fit``.
    folder
        The folder for the members.
    temporary
        Whether it goes when this process ends.
    """

    factory: Callable[[], Any]
    train: Callable[[Any, Member], Any]
    seed: int
    threads: int | None
    folder: Path
    temporary: bool

    def member(self, k: int) -> Member:
        """Return the number and seed of a member."""
        return Member(k, networks.derive_seed(self.seed, k) >> 31)

    def path(self, k: int) -> Path:
        """Return the file of a member."""
        return self.folder / f"member-{k:04d}.safetensors"

    def make_model(self, k: int) -> Any:
        """Make a member's untrained network, with all generators seeded for it."""
        _seed_all(self.member(k).seed)
        model = self.factory()
        networks.check_network("What factory returns", model)
        return model

    def train_member(self, k: int) -> Any:
        """Train a member, write it to its file, and return it."""
        with networks.preserve_random_state(), networks.set_threads(self.threads):
            model = self.make_model(k)
            shapes = _list_shapes(model)
            found = self.train(model, self.member(k))
            found = networks.unwrap_compiled(model if found is None else found)
            networks.check_network("What train returns", found)
        now = _list_shapes(found)
        if others := [
            n for n in {**shapes, **now} if shapes.get(n, "none") not in (now.get(n, "none"), None)
        ]:
            raise ValueError(
                "train must return a network with the parameters that factory made. "
                f"Got others, as {others[0]!r}. Build in factory whatever train changes."
            )
        write_tensors(self.path(k), found.state_dict(), {"method": _METHOD, "member": str(k)})
        return found

    def read(self, k: int) -> Any:
        """Read a member from its file."""
        tensors, _ = read_tensors(self.path(k), _METHOD)
        with networks.preserve_random_state():
            model = self.make_model(k)
        load_state(f"For {str(self.path(k))!r}, what factory returns", model, tensors)
        return model

    def settings(self) -> dict[str, Any]:
        """Return what must be unchanged for another run to resume."""
        own = {name: fingerprint(describe_code(getattr(self, name))) for name in ("factory", "train")}
        return {"format": "demur ensemble 1", "seed": self.seed, "threads": self.threads, **own}


def fit_members(
    factory: Callable[[], Any], train: Callable[[Any, Member], Any], members: int, *, seed: int,
    folder: str | os.PathLike[str] | None, processes: int | None, threads: int | None, progress: bool,
) -> list[Any]:  # fmt: skip
    """Train the members that the folder does not hold, and return all of them."""
    check_count("members", members)
    if threads is not None:
        check_count("threads", threads)
    for name, function in (("factory", factory), ("train", train)):
        if not callable(function):
            raise TypeError(f"{name} must be a function. Got {type(function).__name__}.")
    if processes is not None and (not isinstance(processes, int) or processes < 0):
        raise ValueError(f"processes must be 0 or more, where 0 trains in this process. Got {processes!r}.")
    with _open_folder(folder) as place:
        fit = _Fit(factory, train, check_seed(seed), threads, place, folder is None)
        _check_settings(place / _SETTINGS, fit.settings())
        missing = [k for k in range(members) if not fit.path(k).exists()]
        with progress_bar(members, "members", hidden=not progress) as show:
            show(members - len(missing))
            count = min(len(missing), _count_trainings(threads) if processes is None else processes)
            # Functions that cannot be sent to other processes are refused on any number of cores.
            sent = _pickle_fit(fit) if processes is None or processes > 1 else b""
            run = (
                _train_in_turn(fit, missing) if count <= 1 else _train_in_parallel(fit, sent, missing, count)
            )
            for done, _ in enumerate(run, members - len(missing) + 1):
                show(done)
        for left in place.glob(".member-*"):  # from runs that were killed while writing
            left.unlink(missing_ok=True)
        return [fit.read(k) for k in range(members)]


def _train_in_turn(fit: _Fit, missing: list[int]) -> Iterator[int]:
    """Train members one after the other in this process; yield the number of each when it is done."""
    for k in missing:
        try:
            fit.train_member(k)
        except Exception as error:
            raise _make_error(k, f"{type(error).__name__}: {error}", fit) from error
        yield k


def _train_in_parallel(fit: _Fit, payload: bytes, missing: list[int], count: int) -> Iterator[int]:
    """Train members in processes of their own; after a failure, wait for those that are running."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    failures: list[RuntimeError] = []
    with ProcessPoolExecutor(
        count, get_context("spawn"), _end_with_parent, (fit.folder if fit.temporary else None,)
    ) as pool:
        tasks = {pool.submit(_train_in_child, payload, k): k for k in missing}
        for task in as_completed(tasks):
            if task.cancelled():
                continue
            k = tasks[task]
            try:
                wrong = task.result()
            except BrokenProcessPool:
                pool.shutdown(wait=False, cancel_futures=True)
                raise _make_error(
                    k, "its process ended without a word. It may have been killed, for instance for lack of "
                    "memory; or the script starts work when it is imported: put the call of fit under "
                    "if __name__ == '__main__'", fit,
                ) from None  # fmt: skip
            if wrong is None:
                yield k
                continue
            failures.append(_make_error(k, wrong[0], fit))
            failures[-1].add_note(wrong[1])
            for other in tasks:
                other.cancel()
    if failures:
        raise failures[0]


def _train_in_child(payload: bytes, k: int) -> tuple[str, str] | None:
    """Train one member in this process; return the error and its traceback, or None."""
    try:
        pickle.loads(payload).train_member(k)
    except Exception as error:
        # As text, since not every exception can be pickled.
        return f"{type(error).__name__}: {error}", traceback.format_exc()
    return None


def _end_with_parent(temporary: Path | None) -> None:
    """End this process when its parent ends, even if that is killed; nobody then needs a temporary folder."""
    parent = parent_process()
    if parent is not None:

        def wait() -> None:
            connection.wait([parent.sentinel])
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()


def _make_error(k: int, why: str, fit: _Fit) -> RuntimeError:
    """Return an error for a member that says how to resume."""
    until = " until this process ends" if fit.temporary else ""
    return RuntimeError(
        f"Training of member {k} failed: {why.rstrip('.')}. Members that were done are kept{until}: the same "
        f"call with folder={str(fit.folder)!r} trains only the missing ones."
    )


def _pickle_fit(fit: _Fit) -> bytes:
    """Pickle a fit for other processes; raise where they could not import its functions."""
    for name in ("factory", "train"):
        function = getattr(fit, name)
        advice = (
            f"{name} must be a function that other processes can import: defined in a file, with def, and "
            "not inside another function; functools.partial may bind arguments. Or train in this process: "
            "processes=0."
        )
        inner = getattr(function, "func", function)
        at_prompt = not hasattr(sys.modules.get("__main__"), "__file__")
        if getattr(inner, "__module__", None) == "__main__" and at_prompt:
            raise ValueError(f"{advice} Got one of a notebook or prompt.")
        try:
            pickle.dumps(function)
        except Exception as error:
            raise ValueError(f"{advice} Got {function!r}: {error}.") from None
    return pickle.dumps(fit)


@contextmanager
def _open_folder(given: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Create the folder; without a name, a temporary one that is removed at the end.

    After a failure of training, that is the end of this process: until then the members in it can be used.
    """
    if given is not None:
        place = Path(given)
        place.mkdir(parents=True, exist_ok=True)
        yield place
        return
    prefix = f"{_TEMPORARY}{atomic.name_machine()}-"
    _remove_leftovers(prefix)
    place = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
    try:
        yield place
    except RuntimeError:
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)


def _remove_leftovers(prefix: str) -> None:
    """Remove temporary folders of processes that were killed: nobody else can."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        process = left.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and not atomic.is_running(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a new folder; raise where those of an existing one differ."""
    if not path.exists():
        atomic.write_text(path, json.dumps(settings, indent=1) + "\n")
        return
    try:
        others = describe_changes(read_json(path), settings)
    except (ValueError, AttributeError, TypeError):
        others = f"{path.name} cannot be read"
    if others:
        raise ValueError(
            f"folder: expected members with the same settings. Got {str(path.parent)!r}: {others}. Choose "
            f"another folder, or remove {path.name} to keep its members all the same."
        )


def _seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy and PyTorch, on all devices."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def _count_trainings(threads: int | None) -> int:
    """Return how many members this machine can train at a time, with this many threads each."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, there // (threads or 1))


def _list_shapes(model: Any) -> dict[str, tuple[int, ...] | None]:
    """Return the shapes of a network's parameters and buffers; None for a lazy one without a shape yet."""
    from torch.nn.parameter import is_lazy

    return {name: None if is_lazy(each) else tuple(each.shape) for name, each in model.state_dict().items()}
