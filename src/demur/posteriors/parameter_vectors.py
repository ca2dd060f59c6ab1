"""All parameters of a network as one long vector, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def join_parameters(parameters: Mapping[str, Any], *, axes: int = 0) -> Any:
    """Return parameters as one vector, in their order; so many first axes stay."""
    import torch

    flat = [each.reshape((*each.shape[:axes], each.shape[axes:].numel())) for each in parameters.values()]
    return torch.cat(flat, dim=-1)


def split_vector(vectors: Any, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters by name of a vector, or of several along a first axis."""
    parts = vectors.split([shape.numel() for shape in shapes.values()], dim=-1)
    return {
        name: part.reshape((*vectors.shape[:-1], *shape))
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
