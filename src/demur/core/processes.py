"""What each process of ``torch.distributed`` holds, given to all of them in the order of their ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def share_in_order(own: Any, facts: Mapping[str, object], group: Any = None) -> Iterator[Any]:
    """Yield what every process has, the same objects in the same order in each of them; None is left out.

    One at a time is sent, so that a process holds no more than one of the others'. They are pickled: all
    processes are of one program.

    Parameters
    ----------
    own
        What this process has, or None.
    facts
        What has to be alike in all processes that name it. Where it is not, all of them raise the same
        ValueError, before anything is sent.
    group
        A process group, or None for the default one.
    """
    import torch.distributed as processes

    if not processes.is_available() or not processes.is_initialized():
        raise ValueError(
            "Expected processes of torch.distributed. Got a process that is in no group. Call "
            "torch.distributed.init_process_group first; a single process needs no all_reduce."
        )
    rank, count = processes.get_rank(group), processes.get_world_size(group)
    if rank < 0:
        raise ValueError("Expected a process of the group. Got one outside. Call it in the group's only.")
    every: list[Any] = [None] * count
    processes.all_gather_object(every, (own is not None, dict(facts)), group=group)
    _check_alike([own_facts for _, own_facts in every])
    for source, (holds, _) in enumerate(every):
        if holds:
            sent = [own if source == rank else None]
            place = source if group is None else processes.get_global_rank(group, source)
            processes.broadcast_object_list(sent, src=place, group=group)
            yield sent[0]


def _check_alike(every: list[dict[str, object]]) -> None:
    """Raise, with the ranks, unless all facts that several processes name are alike."""
    known: dict[str, tuple[int, object]] = {}
    for rank, facts in enumerate(every):
        for name, value in facts.items():
            first, expected = known.setdefault(name, (rank, value))
            if value != expected:
                raise ValueError(
                    f"Expected the same {name} in all processes. "
                    f"Got {expected} in that of rank {first} and {value} in that of rank {rank}."
                )
