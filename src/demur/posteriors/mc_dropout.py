"""MC dropout: one network, whose dropout layers go on sampling."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from demur.posteriors import networks
from demur.posteriors.posterior import Posterior, chosen, chunks_of, count_of


class MCDropout(Posterior):
    """One network with its dropout layers on; each pass is one member.

    Gal and Ghahramani (2016), "Dropout as a Bayesian approximation". Only dropout layers sample; batch norm
    and everything else stays in evaluation. In a ``torch.nn.Sequential`` what comes before the first dropout
    layer is computed once for all members.

    Parameters
    ----------
    model
        A network with dropout layers: ``torch.nn.Dropout`` in 1, 2 or 3 dimensions, ``AlphaDropout``,
        ``FeatureAlphaDropout``, and the attention of ``torch.nn.MultiheadAttention``. Calls of
        ``torch.nn.functional.dropout`` are no layers: they are refused.
    samples
        How many members.
    seed
        Fixes the members. Each input of each member has a mask of its own.
    layers
        Names of the dropout layers that sample, as in ``model.named_modules()``; None: all.
    forward
        From the network and its inputs to logits, where ``model(inputs)`` does not return them.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 3))
    >>> posterior = demur.posteriors.MCDropout(model, samples=20)
    >>> scores = demur.score(posterior, [torch.ones(2, 4)], progress=False)
    >>> bool((scores["pairwise"].epistemic > 0).all())
    True
    """

    def __init__(
        self,
        model: Any,
        samples: int = 100,
        *,
        seed: int = 0,
        layers: Sequence[str] | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        networks.check_network("model", model)
        self.model, self.seed, self.forward = model, seed, forward
        self.members = self.samples = count_of("samples", samples)
        self.layers = dropout_layers(model, layers)
        self._partial = layers is not None
        self._checked = False

    def __repr__(self) -> str:
        return f"MCDropout({self.samples} samples, {len(self.layers)} dropout layers, seed={self.seed})"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        wanted = chosen(members, self.samples)
        device, _ = networks.place_of(self.model)
        # Nothing is switched while a chunk is out: the caller may do what he likes with the model.
        shared, numbers = None, 0
        start = 0
        while start < len(wanted):
            run = next(chunks_of(wanted[start:], numbers)) if numbers else wanted[start : start + 1]
            with self.sampling(), networks.random_state_kept():
                if shared is None:
                    shared = self._shared(batch)
                found = []
                for k in run:
                    networks.sow(networks.seed_of(self.seed, k, position), device)
                    found.append(self._rest(shared))
            start += len(run)
            chunk = networks.stacked(found)
            numbers = numbers or (chunk.numel() if hasattr(chunk, "numel") else chunk.values.numel())
            yield chunk

    def deployed(self, batch: Any) -> Any:
        with networks.quiet([self.model]), networks.random_state_kept():
            return networks.called(self.model, batch, self.forward)

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """Switch dropout on, and it alone; modes are afterwards as they were."""
        import torch

        # The fused transformer layer of evaluation leaves out dropout layers that are on.
        fused = torch.backends.mha.get_fastpath_enabled()
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            with networks.quiet([self.model]):
                for layer in self.layers.values():
                    layer.training = True
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)

    def _shared(self, batch: Any) -> tuple[list[Any] | None, Any]:
        """Return the layers that are left to run, and what comes into them; None: the whole model."""
        inputs = networks.moved(batch, self.model)
        steps = steps_of(self.model) if self.forward is None else None
        if steps is None or not hasattr(inputs, "shape"):
            return None, inputs
        active = {id(layer) for layer in self.layers.values()}
        first = next(i for i, step in enumerate(steps) if any(id(m) in active for m in step.modules()))
        for step in steps[:first]:
            inputs = step(inputs)
        return steps[first:], inputs

    def _rest(self, shared: tuple[list[Any] | None, Any]) -> Any:
        """Run one member's pass; the very first one is watched."""
        with contextlib.nullcontext() if self._checked else self._watched():
            steps, value = shared
            if steps is None:
                found = networks.called(self.model, networks.copied(value), self.forward)
            else:
                for step in steps:
                    # A layer may work in place: what all members share must stay as it is.
                    value = step(networks.copied(value) if value is shared[1] else value)
                found = networks.predictions_in(value)
        self._checked = True
        return found

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Refuse a pass in which no dropout layer takes part, or functional dropout is left out."""
        from torch.overrides import TorchFunctionMode

        functional: list[str] = []

        class Watch(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name, kwargs = getattr(func, "__name__", ""), kwargs or {}
                if name in FUNCTIONAL:
                    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
                    training = kwargs.get("training", args[2] if len(args) > 2 else FUNCTIONAL[name])
                    if p > 0 and not training:
                        functional.append(name)
                return func(*args, **kwargs)

        ran: set[str] = set()
        handles = [
            layer.register_forward_hook(lambda *_, name=name: ran.add(name))
            for name, layer in self.layers.items()
        ]
        try:
            with Watch():
                yield
        finally:
            for handle in handles:
                handle.remove()
        if functional and not self._partial:
            raise ValueError(
                f"Expected dropout in layers alone. Got a call of torch.nn.functional.{functional[0]}, which "
                "is off in evaluation and cannot be switched on by itself. Make it a torch.nn.Dropout layer, "
                "or name the layers that shall sample: layers=[...]."
            )
        if not ran:
            raise ValueError(
                f"Expected dropout layers that take part. None of {', '.join(map(repr, self.layers))} was "
                "called, so that all members would be identical. Call them in forward as modules; of a "
                "Hugging Face model try attn_implementation='eager'."
            )
        if missing := [name for name in self.layers if name not in ran]:
            warnings.warn(
                f"Dropout layers that were never called, and so do not sample: {', '.join(missing)}.",
                stacklevel=2,
            )


FUNCTIONAL = {
    "dropout": True, "dropout1d": True, "dropout2d": True, "dropout3d": True, "alpha_dropout": False,
    "feature_alpha_dropout": False,
}  # fmt: skip
"""Functions of dropout, and whether they are on where nobody says."""


def dropout_layers(model: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the dropout layers that shall sample, by name; raise where there are none."""
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


def steps_of(model: Any) -> list[Any] | None:
    """Return the layers of a plain sequence, nested ones too; None where it is something else."""
    from torch import nn

    if type(model) is not nn.Sequential or has_hooks(model):
        return None
    return [step for child in model for step in (steps_of(child) or [child])]


def has_hooks(module: Any) -> bool:
    """Tell whether somebody listens to this module, and would miss its call."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
