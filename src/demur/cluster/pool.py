"""Workers that may die at any time, and the work that is given to them until all of it is done.

A piece of work whose worker died, or whose result was lost with a machine, is done again by another; a dead
worker is replaced. So work must be idempotent. Only errors of the work itself end the job.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from demur.cluster.deaths import describe_death, refuse_if_hopeless

_AT_ONCE = 2
"""Pieces of work that a worker has at a time: one runs, and the data of the next one come meanwhile."""

_SECONDS_UNTIL_COMPLAINT = 60.0
"""Without any worker, after which the user is told."""

LOST = "lost"
"""The receipt of renewable work whose references were lost with a machine."""


@dataclass(eq=False)
class Piece:
    """One piece of work.

    Attributes
    ----------
    name
        What messages call it: the inputs that it is about.
    task
        What the worker is to do: small.
    references
        Large arguments, as references of Ray: the worker gets what they stand for.
    part
        What a worker has to have loaded for it; None where any worker will do.
    tag
        Anything of the caller's, which stays here.
    renewable
        Whether the caller can make its references again where they are lost.
    deaths
        Why workers died over it.
    """

    name: str
    task: Any
    references: tuple[Any, ...] = ()
    part: Hashable = None
    tag: Any = None
    renewable: bool = False
    deaths: list[str] = field(default_factory=list)


@dataclass(eq=False)
class _Seat:
    """A worker: the handle of its process, what it has loaded, and what it is doing, by receipt."""

    handle: Any
    ready: Any
    part: Hashable = None
    running: dict[Any, tuple[Piece, Any]] = field(default_factory=dict)

    @property
    def awaited(self) -> list[Any]:
        """References that show when it has started, or done something."""
        return list(self.running) if self.ready is None else [self.ready]


class Pool:
    """Workers, each a process with the same job, that take pieces of work.

    Parameters
    ----------
    ray
        The package, connected.
    job
        An object with ``start()``, which loads what it needs once in a worker, and ``run(task, *arguments)``,
        which returns a receipt and a large result, or None; the latter stays where it is until it is used.
    workers
        How many.
    options
        What each claims, as ``num_cpus``.
    references
        What the job refers to in Ray's store: each worker's ``job.references``.
    """

    def __init__(
        self, ray: Any, job: Any, workers: int, options: dict[str, Any], references: tuple[Any, ...] = ()
    ) -> None:
        self._ray, self._workers, self._references = ray, workers, references
        # As bytes: arrays in the store cannot be written to, and models may well write to theirs.
        self._job = ray.put(pack(ray, job))
        self._actor = ray.remote(_Worker).options(
            max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **options
        )
        self._seats: list[_Seat] = []
        self._waiting: deque[Piece] = deque()
        self._failed_starts: list[str] = []
        self._losses: dict[str, list[str]] = {}
        self._complain_at: float | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self._seats:
            for receipt, (_piece, result) in seat.running.items():
                self._hear_out(receipt, result)
            self._ray.kill(seat.handle)
        self._seats = []

    @property
    def hungry(self) -> bool:
        """Whether workers would have nothing to do if no more work came."""
        return len(self._waiting) < self._workers

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._waiting and not any(seat.running for seat in self._seats)

    def add(self, piece: Piece) -> None:
        """Add a piece of work, to be done after those that wait; first if any worker can do it."""
        if piece.part is None:
            self._waiting.appendleft(piece)
        else:
            self._waiting.append(piece)

    def wait(self) -> tuple[Piece, Any, Any]:
        """Return the next piece that is done, its receipt, and a reference to its large result.

        The receipt is `LOST` where what a renewable piece refers to was lost.
        """
        while True:
            self._hire()
            self._hand_out()
            asked = {ref: seat for seat in self._seats for ref in seat.awaited}
            done, _ = self._ray.wait(list(asked), num_returns=1, timeout=5.0)
            self._watch(bool(done))
            for ref in done:
                seat = asked[ref]
                found = self._collect(ref, seat)
                if found is not None:
                    return found

    def _hire(self) -> None:
        """Start workers in place of dead ones."""
        while len(self._seats) < self._workers:
            handle = self._actor.remote(self._job, self._references)
            self._seats.append(_Seat(handle, handle.start.remote()))

    def _hand_out(self) -> None:
        """Give work to workers that are ready for it."""
        for seat in self._seats:
            while seat.ready is None and len(seat.running) < _AT_ONCE and (piece := self._choose(seat)):
                self._waiting.remove(piece)
                seat.part = seat.part if piece.part is None else piece.part
                run = seat.handle.run.options(num_returns=2)
                receipt, result = run.remote(piece.task, *piece.references)
                seat.running[receipt] = piece, result

    def _choose(self, seat: _Seat) -> Piece | None:
        """Return the piece that a worker should do next: one for which it has loaded what is needed."""
        for piece in self._waiting:
            if piece.part is None or piece.part == seat.part:
                return piece
        held = Counter(other.part for other in self._seats)
        free = Counter(piece.part for piece in self._waiting if not held[piece.part])
        if free:
            part = free.most_common(1)[0][0]
        elif seat.part is None and self._waiting:
            part = min((piece.part for piece in self._waiting), key=lambda each: held[each])
        else:
            return None
        return next(piece for piece in self._waiting if piece.part == part)

    def _collect(self, ref: Any, seat: _Seat) -> tuple[Piece, Any, Any] | None:
        """Return what a worker has done; None where it has only started, or died."""
        errors = self._ray.exceptions
        try:
            receipt = self._ray.get(ref)
        except errors.RayTaskError as error:
            if not isinstance(error.cause, errors.RayError):
                raise error.cause from None
            return self._give_back(seat, ref, error.cause)
        except errors.ObjectLostError as error:
            return self._give_back(seat, ref, error)
        except errors.RayError as error:
            self._bury(seat, error)
            return None
        if ref == seat.ready:  # a client of Ray has its own objects
            seat.ready, self._failed_starts = None, []
            return None
        piece, result = seat.running.pop(ref)
        return piece, receipt, result

    def _give_back(self, seat: _Seat, ref: Any, why: Any) -> tuple[Piece, Any, Any] | None:
        """Do a piece again whose data, or whose result, were lost with a machine."""
        if ref == seat.ready:  # a client of Ray has its own objects
            self._bury(seat, why)
            return None
        piece, _ = seat.running.pop(ref)
        if piece.renewable:
            self._losses.setdefault(piece.name, []).append(str(why))
            refuse_if_hopeless(piece.name, self._losses[piece.name])
            return piece, LOST, None
        self._again(piece, describe_death(self._ray, why))
        return None

    def _hear_out(self, receipt: Any, result: Any) -> None:
        """Ask for an error that nobody waits for any more, which Ray would print with all its lines."""
        if not self._ray.wait([receipt], num_returns=1, timeout=0)[0]:
            return
        try:
            self._ray.get(receipt)
        except Exception:  # the job has ended with one already
            with contextlib.suppress(Exception):
                self._ray.get(result)  # the same error again

    def _bury(self, seat: _Seat, error: Any) -> None:
        """Give the work of a dead worker to others."""
        self._seats.remove(seat)
        self._ray.kill(seat.handle)
        why = describe_death(self._ray, error)
        if seat.ready is not None:
            self._failed_starts.append(why)
            refuse_if_hopeless("loading the models", self._failed_starts)
        pieces = [piece for piece, _ in seat.running.values()]
        for piece in pieces[1:][::-1]:  # these had not begun
            self._waiting.appendleft(piece)
        if pieces:
            self._again(pieces[0], why)

    def _again(self, piece: Piece, why: str) -> None:
        """Put a piece first in line, unless workers have died over it too often."""
        piece.deaths.append(why)
        refuse_if_hopeless(piece.name, piece.deaths)
        self._waiting.appendleft(piece)

    def _watch(self, happened: bool) -> None:
        """Say so once where no worker has started for a long time, since Ray waits without a word."""
        if happened or any(seat.ready is None for seat in self._seats):
            self._complain_at = None
        elif self._complain_at is None:
            self._complain_at = time.monotonic() + _SECONDS_UNTIL_COMPLAINT
        elif time.monotonic() > self._complain_at:
            self._complain_at = float("inf")
            free = self._ray.available_resources()
            print(
                f"No worker has started: the cluster has {free.get('CPU', 0):g} free processors and "
                f"{free.get('GPU', 0):g} free GPUs. It goes on when there is room.",
                file=sys.stderr,
            )


def pack(ray: Any, thing: Any) -> bytes:
    """Return something as bytes that another process can open; raise where that cannot be."""
    try:
        return ray.cloudpickle.dumps(thing)
    except Exception as error:  # an object may refuse in any way
        raise TypeError(
            "cluster= sends models, functions and batches to other processes, by pickle. One cannot be "
            f"sent: {_say_reason(error)} Give functions that load what cannot travel, or leave out cluster=."
        ) from None


def _say_reason(error: Exception) -> str:
    """Return the first line of an error, as a sentence."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"{first.rstrip('.')}."


class _Worker:
    """What runs in a process of its own."""

    def __init__(self, packed: bytes, references: tuple[Any, ...]) -> None:
        self._packed, self._references = packed, references

    def start(self) -> None:
        try:
            self._job = pickle.loads(self._packed)
        except Exception as error:
            raise TypeError(
                "cluster= sends models and functions to other processes, by pickle. A worker cannot open "
                f"one: {_say_reason(error)} Modules of your own have to be on all machines, as after "
                "ray.init(runtime_env=...)."
            ) from None
        self._job.references, self._packed = self._references, b""
        self._job.start()

    def run(self, task: Any, *arguments: Any) -> tuple[Any, Any]:
        return self._job.run(task, *arguments)
