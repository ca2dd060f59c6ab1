"""The last layer of a network, and the weights and biases of heads that take its place."""

from __future__ import annotations

from typing import Any


def find_last_linear(model: Any, name: str | None) -> Any:
    """Return the linear layer of this name, or the last linear layer; raise where there is none."""
    from torch import nn

    found = {each: module for each, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not found or (name is not None and name not in found):
        raise ValueError(
            f"layer must be a torch.nn.Linear of the model: {', '.join(map(repr, found)) or 'it has none'}. "
            f"Got {name!r}."
        )
    return list(found.values())[-1] if name is None else found[name]


def read_heads(given: Any, layer: Any) -> Any:
    """Return the heads that a user gave as weight (members, classes, features) and bias (members, classes).

    An object that draws heads is returned as it is.
    """
    import torch

    if hasattr(given, "members") and callable(getattr(given, "parameters", None)):
        return given
    if isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], torch.nn.Module):
        weight = torch.as_tensor(given[0])
        bias = weight.new_zeros(weight.shape[:2]) if given[1] is None else torch.as_tensor(given[1])
    else:
        heads = list(given)
        if not heads or not all(isinstance(head, torch.nn.Linear) for head in heads):
            raise TypeError(
                "heads must be torch.nn.Linear layers, a pair of weight and bias, or an object with members "
                "and parameters(members). Got others."
            )
        weight = torch.stack([head.weight.detach() for head in heads])
        zero = weight.new_zeros(weight.shape[1])
        bias = torch.stack([zero if head.bias is None else head.bias.detach() for head in heads])
    _check_shapes(weight, bias, layer)
    return weight, bias


def draw_heads(source: Any, members: range, layer: Any) -> tuple[Any, Any]:
    """Return weight and bias of heads from an object that draws them, after checking their shapes."""
    found = source.parameters(members)
    weight = found["weight"]
    bias = found["bias"] if "bias" in found else weight.new_zeros(weight.shape[:2])
    _check_shapes(weight, bias, layer)
    if len(weight) != len(members):
        raise ValueError(
            f"heads.parameters must return as many heads as it is asked for, {len(members)}. "
            f"Got {len(weight)}."
        )
    return weight, bias


def _check_shapes(weight: Any, bias: Any, layer: Any) -> None:
    """Raise unless weight and bias of heads fit the last layer."""
    expected = (layer.out_features, layer.in_features)
    if weight.ndim != 3 or len(weight) == 0 or weight.shape[1:] != expected or bias.shape != weight.shape[:2]:
        raise ValueError(
            f"heads must have {expected[0]} classes and {expected[1]} features, as the last layer. "
            f"Got weight {tuple(weight.shape)} and bias {tuple(bias.shape)}."
        )
