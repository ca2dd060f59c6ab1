"""Linear and convolutional layers that draw their outputs instead of their weights."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def find_local_layers(model: Any, sampled: Mapping[str, Any], run: Callable[[], Any]) -> dict[str, Any]:
    """Return the layers that can draw their outputs, by name.

    These are plain linear and convolutional layers with parameters of their own, which ``run``, a pass
    through the network, calls exactly once. A layer that is called twice uses the same weights for both;
    one that is not called lends its weights to another, as in attention.
    """
    from torch import nn

    owners = Counter(id(each) for m in model.modules() for each in m.parameters(recurse=False))
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) in (nn.Linear, nn.Conv1d, nn.Conv2d)
        and "forward" not in vars(module)
        and all(owners[id(each)] == 1 for each in module.parameters())
        and any(join_names(name, part) in sampled for part, _ in module.named_parameters())
    }
    calls: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        for name, module in layers.items():
            handle = module.register_forward_hook(lambda *_, name=name: calls.update([name]))
            stack.callback(handle.remove)
        run()
    return {name: module for name, module in layers.items() if calls[name] == 1}


def join_names(layer: str, parameter: str) -> str:
    """Return the name of a parameter in the whole network."""
    return f"{layer}.{parameter}" if layer else parameter


@contextlib.contextmanager
def draw_outputs(
    layers: Mapping[str, Any], means: Mapping[str, Any], scales: Mapping[str, Any]
) -> Iterator[None]:
    """Let layers draw their outputs, given means and standard deviations of parameters by name."""
    try:
        for name, layer in layers.items():
            moments = []
            for part in ("weight", "bias"):
                own, full = getattr(layer, part), join_names(name, part)
                if own is None:
                    moments.append((None, None))
                elif full in means:
                    moments.append((means[full], scales[full].square()))
                else:  # not sampled
                    moments.append((own.detach(), own.detach() * 0))
            layer.forward = functools.partial(_draw_output, layer, *moments)
        yield
    finally:
        for layer in layers.values():
            vars(layer).pop("forward", None)


def _draw_output(layer: Any, weight: tuple[Any, Any], bias: tuple[Any, Any], inputs: Any) -> Any:
    """Draw the output of a layer: Kingma, Salimans and Welling (2015), Eq. 6."""
    import torch

    if isinstance(layer, torch.nn.Linear):
        apply = torch.nn.functional.linear
    else:
        apply = layer._conv_forward  # with the layer's own stride and padding
    mean = apply(inputs, weight[0], bias[0])
    variance = apply(inputs.square(), weight[1], bias[1])
    return mean + _take_root(variance) * torch.randn_like(mean)


def _take_root(variance: Any) -> Any:
    """Return the square root, with a gradient of 0 at 0, where inputs are all zero and nothing is random."""
    import torch

    positive = variance > 0
    root = torch.where(positive, variance, torch.ones_like(variance)).sqrt()
    return torch.where(positive, root, torch.zeros_like(root))
