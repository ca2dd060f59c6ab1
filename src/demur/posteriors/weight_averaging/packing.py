"""What a SWAG consists of as tensors by name, for a file, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from demur.posteriors.parameter_vectors import join_parameters, split_vector

_MOMENTS = ("mean", "squares", "deviations")
_KINDS = ("rest", *_MOMENTS, "statistics")


def pack_tensors(
    rest: Mapping[str, Any],
    moments: Mapping[str, Any],
    shapes: Mapping[str, Any],
    statistics: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return all tensors, each named after its kind and the parameter or buffer that it belongs to.

    Parameters
    ----------
    rest
        What members share: parameters that are not drawn, and buffers.
    moments
        What ``IterateMoments.tensors`` returns.
    shapes
        Those of the parameters in these vectors, by name.
    statistics
        Batch-norm statistics of each member; none where there is no batch norm.
    """
    found = {f"rest {name}": value for name, value in rest.items()}
    for kind, values in moments.items():
        found |= {f"{kind} {name}": value for name, value in split_vector(values, shapes).items()}
    if statistics:
        found |= {f"statistics {name}": value for name, value in stack_members(statistics).items()}
    return found


def sort_by_kind(tensors: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what ``pack_tensors`` packed by kind, then by name."""
    parts: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for name, value in tensors.items():
        kind, _, rest = name.partition(" ")
        parts[kind][rest] = value
    return parts


def join_moments(parts: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the vectors that ``IterateMoments.restore`` takes, with parameters in this order."""
    return {
        kind: join_parameters({name: parts[kind][name] for name in names}, axes=int(kind == "deviations"))
        for kind in _MOMENTS
    }


def stack_members(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stack the tensors of members by name."""
    import torch

    return {name: torch.stack([each[name] for each in members]) for name in members[0]}
