"""One pass of a network for all who need its features or logits of the same batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from demur.posteriors import networks

_PASSES: ContextVar[dict[tuple[int, ...], Any] | None] = ContextVar("passes", default=None)


@contextlib.contextmanager
def share_passes() -> Iterator[None]:
    """Keep what networks return for a batch until the end, for others that call them on the same batch."""
    token = _PASSES.set({})
    try:
        yield
    finally:
        _PASSES.reset(token)


def run_network(
    model: Any, batch: Any, *, layer: Any = None, forward: networks.Forward | None = None
) -> tuple[list[tuple[Any, Any]], Any]:
    """Return what a layer got and returned in each of its calls, and what the network predicts.

    The network runs in evaluation mode and without gradients. Inside ``share_passes`` it runs once for the
    same layer, function and batch: these are recognised by identity, so that a batch must not be changed in
    place.
    """
    key = (id(model), id(layer), id(forward), id(batch))
    known = _PASSES.get()
    if known is not None and key in known:
        return known[key][0]
    seen: list[tuple[Any, Any]] = []
    hook = None
    if layer is not None:
        hook = layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    try:
        with networks.suspend_training([model]), networks.preserve_random_state():
            found = networks.call_model(networks.unwrap_compiled(model), batch, forward)
    finally:
        if hook is not None:
            hook.remove()
    if known is not None:
        # Kept alive too, so that no other object gets one of these ids.
        known[key] = (seen, found), (model, layer, forward, batch)
    return seen, found
