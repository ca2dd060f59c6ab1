"""`MCDropout`: one network whose dropout layers keep sampling."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

from demur.posteriors import networks
from demur.posteriors.dropout.layers import DropoutWatch, find_dropout_layers
from demur.posteriors.dropout.shared_prefix import (
    NetworkSplit,
    NoSplit,
    ReplaySplit,
    split_graph,
    split_sequence,
)
from demur.posteriors.posterior import Posterior, check_count, check_seed, select_members, split_members
from demur.posteriors.tensor_files import load_state, read_tensors, write_tensors


class MCDropout(Posterior):
    """One network with its dropout layers on; each pass is a member.

    Gal and Ghahramani (2016), "Dropout as a Bayesian approximation", equation 6. Only dropout layers sample;
    batch norm and everything else stay in evaluation mode. The layers before the first dropout layer run once
    per batch for all members if the model is a ``torch.nn.Sequential``, if ``torch.fx`` can trace it, or if
    you name a layer; the members are the same. Other models, and compiled ones, run whole passes.

    Parameters
    ----------
    model
        A network with dropout layers: ``torch.nn.Dropout`` in 1, 2 or 3 dimensions, ``AlphaDropout``,
        ``FeatureAlphaDropout``, and the attention of ``torch.nn.MultiheadAttention`` and of Hugging Face
        models whose attention holds a dropout layer. A model that calls ``torch.nn.functional.dropout`` is
        refused, since that is not a layer.
    samples
        The number of members.
    seed
        The seed of the members. Each input of each member has its own mask.
    layers
        Names of the dropout layers that sample, as in ``model.named_modules()``; None: all.
    after
        Name of a layer that finishes before dropout samples, such as ``"backbone.layer4"``: it and the layers
        before it run once per batch. Only needed for models that are not sequences and cannot be traced.
    forward
        A function of the network and its inputs that returns logits, where ``model(inputs)`` does not.

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
        after: str | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        networks.check_network("model", model)
        self.model, self.seed, self.forward = model, check_seed(seed), forward
        self.members = self.samples = check_count("samples", samples)
        self.layers = find_dropout_layers(model, layers)
        self._partial = layers is not None
        self.after = after
        if after is not None:
            _check_after(model, after, self.layers)
        self._splits: dict[Any, NetworkSplit] = {}
        self._holders: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"MCDropout({self.samples} samples, {len(self.layers)} dropout layers, seed={self.seed})"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        wanted = select_members(members, self.samples)
        device, _ = networks.locate_model(self.model)
        inputs = networks.move_to_model(batch, self.model)
        # Modes are restored before a chunk is yielded, since the caller may use the model.
        split, state, numbers = None, None, 0
        start = 0
        while start < len(wanted):
            run = next(split_members(wanted[start:], numbers)) if numbers else wanted[start : start + 1]
            with self.sampling(), networks.preserve_random_state():
                found = []
                for k in run:
                    seed = partial(networks.seed_device, networks.derive_seed(self.seed, k, position), device)
                    if split is None:
                        split, state, first = self._begin(inputs, seed)
                        found.append(first)
                    else:
                        found.append(_run_member(split, state, seed))
            start += len(run)
            chunk = networks.stack_members(found)
            numbers = numbers or (chunk.numel() if hasattr(chunk, "numel") else chunk.values.numel())
            yield chunk

    def deployed(self, batch: Any) -> Any:
        with networks.suspend_training([self.model]), networks.preserve_random_state():
            return networks.call_model(self.model, batch, self.forward)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: parameters, buffers, the layers that sample, samples and seed."""
        settings = {"samples": self.samples, "seed": self.seed, "layers": list(self.layers)}
        facts = {"method": "MCDropout", "settings": json.dumps(settings)}
        write_tensors(path, self.model.state_dict(), facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save`` into a network of the same architecture; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "MCDropout")
        settings = json.loads(facts["settings"])
        load_state("model", model, tensors)
        if settings["layers"] == list(find_dropout_layers(model, None)):
            del settings["layers"]
        return cls(model, **{**settings, **options})

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """Switch on dropout alone, and restore all modes afterwards."""
        import torch

        # The fused transformer layer of evaluation mode skips dropout even where it is on.
        fused = torch.backends.mha.get_fastpath_enabled()
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            with networks.suspend_training([self.model]):
                for layer in (*self.layers.values(), *self._holders.values()):
                    layer.training = True
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)

    def _begin(self, inputs: Any, seed: Callable[[], None]) -> tuple[NetworkSplit, Any, Any]:
        """Return the split for such inputs, what the members share, and the first member's predictions.

        The very first pass is a whole one, and watched. The pass is split only where that gives the same.
        """
        kind = tuple(inputs) if isinstance(inputs, Mapping) else None
        split = self._splits.get(kind)
        if split is not None:
            state = split.run_shared(inputs)
            return split, state, _run_member(split, state, seed)
        whole = NoSplit(lambda given: networks.call_model(self.model, given, self.forward))
        expected = self._watch_first_pass(lambda: _run_member(whole, inputs, seed))
        split = self._choose_split(inputs, whole.call)
        if split is not None:
            state = split.run_shared(inputs)
            if _are_equal(_run_member(split, state, seed), expected):
                self._splits[kind] = split
                return split, state, expected
            if self.after is not None:
                raise ValueError(
                    "after must name a layer whose output is all that later layers need. With "
                    f"{self.after!r} members are not those of whole passes. Leave after out."
                )
        self._splits[kind] = whole
        return whole, inputs, expected

    def _choose_split(self, inputs: Any, call: Any) -> NetworkSplit | None:
        """Return a split that computes once what all members share; None where there is none."""
        if self.after is not None:
            return ReplaySplit(call, self.model, self.layers | self._holders, self.after)
        if self.forward is not None or networks.unwrap_compiled(self.model) is not self.model:
            return None
        sampling = {id(layer) for layer in (*self.layers.values(), *self._holders.values())}
        plain = split_sequence(self.model, sampling) if hasattr(inputs, "shape") else None
        return plain or split_graph(self.model, inputs, sampling)

    def _watch_first_pass(self, run: Callable[[], Any]) -> Any:
        """Run the first pass; raise where no dropout layer takes part, or functional dropout is off."""
        with DropoutWatch(self.layers) as seen:
            found = run()
        if seen.off and not self._partial:
            raise ValueError(
                f"Expected dropout in layers alone. Got a call of torch.nn.functional.{seen.off[0]}, which "
                "is off in evaluation mode and cannot be switched on by itself. Make it a torch.nn.Dropout "
                "layer, or name the layers that are to sample: layers=[...]."
            )
        missing = [name for name in self.layers if name not in seen.called]
        if missing:
            # Attention may call a function with the rate of its dropout layer and with its own mode.
            holders = {name.rpartition(".")[0]: self.model for name in missing}
            holders = {name: self.model.get_submodule(name) for name in holders if name}
            for each in holders.values():
                each.training = True
            with DropoutWatch(self.layers) as more:
                again = run()
            if len(more.on) >= len(seen.on) + len(missing):
                self._holders = holders
                return again
            for each in holders.values():
                each.training = False
        if not seen.called:
            raise ValueError(
                f"Expected dropout layers that are called. None of {', '.join(map(repr, self.layers))} was, "
                "so that all members would be identical. Call them in forward as modules."
            )
        if missing:
            warnings.warn(
                f"Dropout layers that were never called, and so do not sample: {', '.join(missing)}.",
                stacklevel=2,
            )
        return found


def _run_member(split: NetworkSplit, state: Any, seed: Callable[[], None]) -> Any:
    """Return one member's predictions."""
    seed()
    return networks.extract_predictions(split.run_own(state))


def _check_after(model: Any, name: str, layers: dict[str, Any]) -> None:
    """Raise unless this names a layer whose output all members may share."""
    found = dict(model.named_modules())
    if not name or name not in found:
        near = ", ".join(repr(each) for each, _ in model.named_children())
        raise ValueError(f"after must be a name of model.named_modules(), as {near}. Got {name!r}.")
    if networks.unwrap_compiled(model) is not model:
        raise ValueError("after takes a model that is not compiled. Compile the layers before it instead.")
    inside = [each for each, layer in layers.items() if any(layer is part for part in found[name].modules())]
    if inside:
        raise ValueError(f"after must name a layer without dropout inside. Got {name!r}, with {inside[0]!r}.")


def _are_equal(left: Any, right: Any) -> bool:
    """Return whether two predictions are the same to the last bit."""
    import torch

    pair = (
        each if isinstance(each, torch.Tensor) else torch.as_tensor(each.values) for each in (left, right)
    )
    return torch.equal(*pair)
