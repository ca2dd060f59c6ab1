"""Which members a worker holds: all of them where they fit, else some; chosen by memory, and said."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.cluster.deaths import describe_death, refuse_if_hopeless
from demur.cluster.pool import pack
from demur.posteriors.deep_ensemble import DeepEnsemble
from demur.posteriors.posterior import Posterior


@dataclass(frozen=True)
class MemberSizes:
    """What the members of a posterior take in memory.

    Attributes
    ----------
    whole
        Bytes of all members together.
    each
        Bytes of each member; None where they share what they take, so that some take as much as all.
    """

    whole: int
    each: tuple[int, ...] | None


@dataclass(frozen=True)
class MemberSplit:
    """How the members are dealt to workers.

    Attributes
    ----------
    parts
        The members of each part; one None: every worker has all of them.
    why
        The choice and its reason, in a line.
    """

    parts: tuple[range | None, ...]
    why: str

    @property
    def by_member(self) -> bool:
        """Whether workers hold some of the members only."""
        return self.parts != (None,)


def choose_split(posterior: Posterior, sizes: MemberSizes, memory: int, workers: int, by: str) -> MemberSplit:
    """Return how the members are dealt to workers that have so much memory for them.

    Examples
    --------
    >>> posterior = demur.posteriors.Samples(lambda x: x, members=4)
    >>> choose_split(posterior, MemberSizes(400, (100,) * 4), 250, workers=2, by="memory")
    MemberSplit(parts=(range(0, 2), range(2, 4)), why='By members, in 2 parts: ...')
    >>> choose_split(posterior, MemberSizes(400, (100,) * 4), 1000, workers=2, by="memory").parts
    (None,)
    """
    needed, room = _say_bytes(sizes.whole), _say_bytes(memory)
    if by == "inputs" or (by == "memory" and sizes.whole <= memory):
        fits = "" if sizes.whole <= memory else " (more than it should hold)"
        return MemberSplit(
            (None,), f"By inputs: all members take {needed}, a worker has {room} for them{fits}."
        )
    if by == "memory" and sizes.each is None:
        raise ValueError(
            f"cluster= takes members that fit in a worker, or that can be dealt to several. Those of "
            f"{posterior!r} share {needed}, and a worker has {room} for them. Give fewer workers, or memory= "
            "if they may take more."
        )
    members = posterior.members or 0
    each = sizes.each or (0,) * members
    if by == "members" and sizes.whole <= memory:
        parts = _deal(members, min(workers, members))
        why = f"By members, in {len(parts)} parts, as asked for: all of them take {needed}."
    else:
        parts = _fit(each, memory)
        why = f"By members, in {len(parts)} parts: all of them take {needed}, a worker has {room} for them."
    return MemberSplit(parts, why)


def _deal(members: int, count: int) -> tuple[range, ...]:
    """Return consecutive members in so many parts of about equal size."""
    edges = [members * k // count for k in range(count + 1)]
    return tuple(range(a, b) for a, b in itertools.pairwise(edges))


def _fit(each: tuple[int, ...], memory: int) -> tuple[range, ...]:
    """Return the fewest parts, of about equal size, of which each fits."""
    if max(each) > memory:
        raise ValueError(
            f"cluster= takes members of which one fits in a worker. Member {int(np.argmax(each))} takes "
            f"{_say_bytes(max(each))}, and a worker has {_say_bytes(memory)} for it. Give fewer workers, or "
            "memory= if it may take more."
        )
    for count in range(1, len(each) + 1):
        parts = _deal(len(each), count)
        if all(sum(each[part.start : part.stop]) <= memory for part in parts):
            return parts
    raise AssertionError("parts of one member fit")


def measure_members(ray: Any, posterior: Posterior, options: dict[str, Any]) -> MemberSizes:
    """Return what members take; of functions that load networks, from the first, loaded in a worker.

    ``options`` is what a worker claims.
    """
    if isinstance(posterior, DeepEnsemble):
        functions = [model for model in posterior.models if not hasattr(model, "parameters")]
        loaded = 0
        if functions:
            loaded = _measure_first(ray, functions[0], options)
        each = tuple(loaded if model in functions else count_bytes(model) for model in posterior.models)
        return MemberSizes(sum(each), each)
    return MemberSizes(len(pack(ray, posterior)), None)


def _measure_first(ray: Any, load: Any, options: dict[str, Any]) -> int:
    """Return the bytes of the network that a function loads, in a worker that may die."""
    # By itself, Ray would try for ever where memory is lacking.
    count = ray.remote(_load_and_count).options(max_retries=0, **options)
    packed, deaths = pack(ray, load), []
    while True:
        try:
            return ray.get(count.remote(packed))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            deaths.append(describe_death(ray, error))
            refuse_if_hopeless("loading the first network", deaths)


def _load_and_count(packed: bytes) -> int:
    """Return the bytes of the network that a packed function loads."""
    return count_bytes(pickle.loads(packed)())


def count_bytes(model: Any) -> int:
    """Return the bytes of a network's parameters and buffers; shared ones count once."""
    held = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return sum(each.numel() * each.element_size() for each in held.values())


class _StoredModel:
    """A network in Ray's store, as a function that loads it: it travels only to workers that need it."""

    reference: Any = None

    def __call__(self) -> Any:
        import ray

        return pickle.loads(ray.get(self.reference))


def store_models(ray: Any, posterior: Posterior) -> tuple[Posterior, tuple[Any, ...]]:
    """Return a posterior whose networks are in Ray's store, each by itself, and references to them."""
    if not isinstance(posterior, DeepEnsemble):
        return posterior, ()
    whole = [hasattr(model, "parameters") for model in posterior.models]
    pairs = list(zip(posterior.models, whole, strict=True))
    found = copy.copy(posterior)
    found.models = [_StoredModel() if each else model for model, each in pairs]
    return found, tuple(ray.put(pack(ray, model)) if each else None for model, each in pairs)


def find_models(posterior: Posterior, references: tuple[Any, ...]) -> None:
    """Tell a posterior from `store_models` where its networks are."""
    if isinstance(posterior, DeepEnsemble):
        for model, reference in zip(posterior.models, references, strict=True):
            if isinstance(model, _StoredModel):
                model.reference = reference


def _say_bytes(count: int) -> str:
    """Return a number of bytes as a person says it.

    Examples
    --------
    >>> _say_bytes(1234567), _say_bytes(5)
    ('1.2 MB', '5 bytes')
    """
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
