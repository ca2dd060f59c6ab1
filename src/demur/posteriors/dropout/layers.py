"""The dropout layers of a network, and which of them really sample in a pass."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Self


class DropoutWatch(contextlib.ExitStack):
    """Records which dropout layers and functions a pass calls.

    Attributes
    ----------
    called
        Names of the dropout layers called.
    on, off
        Dropout functions called, also by layers: those that sample, and those that do not.
    """

    def __init__(self, layers: dict[str, Any]) -> None:
        from torch.overrides import TorchFunctionMode

        super().__init__()
        self.called: set[str] = set()
        on: list[str] = []
        off: list[str] = []
        self.on, self.off = on, off
        for name, layer in layers.items():
            handle = layer.register_forward_hook(lambda *_, name=name: self.called.add(name))
            self.callback(handle.remove)

        class Mode(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name, kwargs = getattr(func, "__name__", ""), kwargs or {}
                if name in _FUNCTIONAL:
                    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
                    training = kwargs.get("training", args[2] if len(args) > 2 else _FUNCTIONAL[name])
                    if p > 0:
                        (on if training else off).append(name)
                elif name == "scaled_dot_product_attention" and _read_attention_rate(args, kwargs) > 0:
                    on.append(name)
                return func(*args, **kwargs)

        self.mode = Mode()

    def __enter__(self) -> Self:
        super().__enter__()
        self.enter_context(self.mode)
        return self


def _read_attention_rate(args: Any, kwargs: Any) -> float:
    """Return ``dropout_p``, the fifth argument of ``scaled_dot_product_attention``."""
    return kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)


_FUNCTIONAL = {
    "dropout": True, "dropout1d": True, "dropout2d": True, "dropout3d": True, "alpha_dropout": False,
    "feature_alpha_dropout": False,
}  # fmt: skip
"""Dropout functions, and whether they sample by default."""


def find_dropout_layers(model: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the dropout layers that are to sample, by name; raise where there are none."""
    from torch.nn import MultiheadAttention
    from torch.nn.modules.dropout import _DropoutNd

    found: dict[str, Any] = {}
    idle = 0
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd | MultiheadAttention):
            rate = module.p if isinstance(module, _DropoutNd) else module.dropout
            idle += rate == 0 and isinstance(module, _DropoutNd)
            if rate > 0:
                found[name] = module
    if names is not None:
        if isinstance(names, str) or not names or any(name not in found for name in names):
            there = ", ".join(map(repr, found)) or "there are none"
            raise ValueError(f"layers must be a list of dropout layers with p > 0: {there}. Got {names!r}.")
        return {name: found[name] for name in names}
    if not found:
        raise ValueError(
            "Expected a model with dropout layers. Got "
            + (f"{idle} with p = 0. " if idle else "none, so that all members would be identical. ")
            + "Functional dropout is no layer: make it a torch.nn.Dropout. A model trained without dropout "
            "needs another posterior: DeepEnsemble, or LastLayer."
        )
    return found
