"""Logits from features: of many heads, and of one last layer with dropout of its input."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.posteriors.compiled_calls import FEW_CLASSES, takes_arrays
from demur.posteriors.dropout.masks import Masks

ROWS_PER_PRODUCT = 1024
"""Rows of masked features in one matrix product: fewer leave it below full speed."""


def multiply_heads(features: Any, weight: Any, bias: Any, classes: int) -> Any:
    """Return the logits of heads, (members, inputs, classes), by one product if there are few classes."""
    import torch

    inputs, heads = len(features), len(weight)
    with torch.no_grad():
        if classes <= FEW_CLASSES:
            wide, offset = weight.flatten(0, 1).to(features), bias.flatten().to(features)
            return torch.addmm(offset, features, wide.T).view(inputs, heads, classes).transpose(0, 1)
        found = features.new_empty((heads, inputs, classes))
        for out, own, offset in zip(found, weight, bias, strict=True):
            torch.addmm(offset.to(features), features, own.to(features).T, out=out)
    return found


def multiply_dropped(scaled: Any, layer: Any, masks: Masks, members: range, places: np.ndarray) -> Any:
    """Return the logits of a layer whose input is masked, (members, inputs, classes).

    Parameters
    ----------
    scaled
        Features divided by the probability of keeping one, (inputs, features).
    layer
        The last layer.
    masks, members, places
        Which features each member drops, and the numbers of the inputs in the data set.
    """
    weight, bias = layer.weight.detach(), layer.bias
    bias = weight.new_zeros(len(weight)) if bias is None else bias.detach()
    weight, bias = weight.to(scaled), bias.to(scaled)
    found = scaled.new_empty((len(members), len(scaled), len(weight)))
    if len(scaled) == 0:
        return found
    if len(weight) <= FEW_CLASSES and takes_arrays(scaled):
        masks.write_logits(members, places, *(each.numpy() for each in (scaled, weight, bias, found)))
    else:
        _multiply_in_parts(scaled, weight.T, bias, masks, members, places, found)
    return found


def _multiply_in_parts(
    scaled: Any, weight: Any, bias: Any, masks: Masks, members: range, places: np.ndarray, found: Any
) -> None:
    """Write the logits of masked features, by products of ``ROWS_PER_PRODUCT`` rows."""
    import torch

    inputs, width = scaled.shape
    step = max(1, ROWS_PER_PRODUCT // inputs)
    parts = np.array_split(np.arange(inputs), -(-inputs // ROWS_PER_PRODUCT))
    rows = scaled.new_empty((step * len(parts[0]), width))
    for start in range(0, len(members), step):
        own = members[start : start + step]
        for part in parts:
            some = slice(part[0], part[-1] + 1)
            masked = rows[: len(own) * len(part)].view(len(own), len(part), width)
            if takes_arrays(scaled):
                masks.apply(own, places[some], scaled[some].numpy(), masked.numpy())
            else:
                kept = torch.from_numpy(masks.draw_kept(own, places[some]))
                masked.copy_(kept).mul_(scaled[some])
            # A view: inputs are in several parts only where members come one by one.
            out = found[start : start + len(own), some].flatten(0, 1)
            torch.addmm(bias, masked.flatten(0, 1), weight, out=out)
