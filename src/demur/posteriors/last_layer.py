"""Members that share a network up to its last layer: its features are computed once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.compiled_calls import FEW_CLASSES, can_compile
from demur.posteriors.dropout.masks import Masks
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.posterior import Ask, Posterior, check_count, select_members, split_members
from demur.posteriors.tensor_files import pack_weights, read_tensors, write_tensors
from demur.scoring.logit_spread import compute_dropout_spread

ROWS = 1024
"""Rows that go through the last layer together: fewer leave a matrix product below its speed."""

_FEWEST = 8
"""Members of a chunk at least, also of large batches: one member costs the moments as much as two."""

DRAWN = 1 << 26
"""Numbers that heads drawn at a time may have: adding a few members to sums costs as much as adding many."""

_STACKED, _SINGLE = 1 << 15, 1 << 18
"""Inputs times classes whose logits are computed and added up before the next ones: so few that their sums
stay in the processor's cache, and for a product a head, enough for its speed."""

_TOGETHER = 64
"""Members of a pass over the data set in ``order="member"``, where they take no memory of their own."""


class LastLayer(Posterior):
    """One network with many last layers, or with dropout before its last layer.

    The features that come into the last layer are computed once a batch. Give either ``heads``, an ensemble
    of last layers (DE (LL) of Schweighofer et al., 2023, "Quantification of uncertainty with adversarial
    models"; ``fit`` trains them), or ``dropout``, MC dropout of the last layer's input (Gal and Ghahramani,
    2016, equation 6).

    Parameters
    ----------
    model
        The network. It is the deployed model as well. Or a last layer alone, a ``torch.nn.Linear``, for
        inputs that are features already: those of ``features``, or your own.
    heads
        Last layers: a list of ``torch.nn.Linear``, or a pair of tensors, weight (members, classes, features)
        and bias (members, classes) or None. Or an object that draws them: it has ``members``, how many there
        are, and ``parameters(members)``, from a range of members to ``{"weight": ..., "bias": ...}`` of the
        same shapes, which stay as they are. ``order="member"`` asks it for each member once and in order,
        ``order="batch"`` from the first one on for each batch.
    dropout
        Probability with which each feature is left out, above 0 and below 1; the others are scaled by
        1 / (1 - dropout).
    samples, seed
        How many members draw dropout, and what fixes their draws.
    layer
        Name of the last layer, as in ``model.named_modules()``; None: the last ``torch.nn.Linear``.
    weights
        One positive number for each head; None: all the same.
    forward
        From the network and its inputs to logits, where ``model(inputs)`` does not return them.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> posterior = demur.posteriors.LastLayer(model, dropout=0.2, samples=50)
    >>> scores = demur.score(posterior, [torch.ones(2, 4)], progress=False)
    >>> scores.members, scores.deployed.shape
    (50, (2,))
    """

    def __init__(
        self,
        model: Any,
        heads: Any = None,
        *,
        dropout: float | None = None,
        samples: int = 100,
        seed: int = 0,
        layer: str | None = None,
        weights: Any = None,
        forward: networks.Forward | None = None,
    ) -> None:
        networks.check_network("model", model)
        if (heads is None) == (dropout is None):
            raise ValueError(
                "LastLayer takes exactly one of heads and dropout. "
                f"Got {'none' if heads is None else 'both'} of them."
            )
        if dropout is not None and not 0 < dropout < 1:
            raise ValueError(f"dropout must be above 0 and below 1. Got {dropout!r}.")
        self.model, self.forward, self.dropout, self.seed = model, forward, dropout, seed
        self._last: tuple[Any, Any] = (None, None)
        self.layer = find_last_linear(model, layer)
        self.heads = None if heads is None else read_heads(heads, self.layer)
        if self.heads is None:
            self.members = check_count("samples", samples)
            self._masks = Masks(dropout or 0.0, seed, self.layer.in_features)
        else:
            drawn = not isinstance(self.heads, tuple)
            self.members = check_count("heads.members", self.heads.members) if drawn else len(self.heads[0])
        stacks = self.heads is None or self.layer.out_features <= FEW_CLASSES
        self.tile = max(1, (_STACKED if stacks else _SINGLE) // self.layer.out_features)
        self._drawn: tuple[range, tuple[Any, Any]] | None = None
        self.weights = None if weights is None else np.asarray(weights, float)
        if self.weights is not None and (
            self.heads is None or self.weights.shape != (self.members,) or not (self.weights > 0).all()
        ):
            raise ValueError(f"weights must be a positive number for each head. Got {weights!r}.")

    @classmethod
    def fit(
        cls,
        model: Any,
        loader: Any,
        members: int = 10,
        *,
        training: Any = None,
        seed: int = 0,
        layer: str | None = None,
        forward: networks.Forward | None = None,
        cache: str | os.PathLike[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        every: float = 30.0,
        progress: bool = True,
    ) -> Self:
        """Train an ensemble of last layers on the features of a data set: DE (LL).

        The same call after a kill goes on from what ``path`` holds, to the same heads.

        Parameters
        ----------
        model, layer, forward
            As for the class.
        loader
            As for ``demur.score``, with labels from 0 to classes - 1; or ``Features`` of this model.
        members
            How many heads; the paper's ImageNet tables have ten.
        training
            A ``HeadTraining``, which says how heads start and how they are trained; None: its defaults. The
            paper and the code that it used say that ten heads were trained, and not how.
        seed
            Fixes the heads: how each one starts, and in which order it sees the inputs.
        cache
            A folder that keeps the features, as for ``features``; None: they are kept in memory.
        path
            A safetensors file that keeps what is done, and in the end the heads, as ``save`` writes them.
        every
            Seconds between two writes of the file, at the end of an epoch.
        progress
            Show how far it has come, on a terminal.

        Examples
        --------
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> data = [(torch.randn(50, 4), torch.randint(3, (50,)))]
        >>> demur.posteriors.LastLayer.fit(model, data, 5)
        LastLayer(5 heads)
        """
        from demur.posteriors.heads.features import Features, features
        from demur.posteriors.heads.training import HeadTraining, fit_heads

        networks.check_network("model", model)
        if training is not None and not isinstance(training, HeadTraining):
            raise TypeError(f"training must be a HeadTraining. Got {type(training).__name__}.")
        if not isinstance(loader, Features):
            loader = features(
                model, loader, cache=cache, layer=layer, forward=forward, every=every, progress=progress
            )
        heads = fit_heads(
            find_last_linear(model, layer), loader, members, training=training or HeadTraining(), seed=seed,
            path=path, every=every, progress=progress,
        )  # fmt: skip
        return cls(model, heads, layer=layer, forward=forward)

    def __repr__(self) -> str:
        kind = f"{self.members} heads" if self.heads else f"dropout={self.dropout}, {self.members} samples"
        return f"LastLayer({kind})"

    def features(self, batch: Any) -> tuple[Any, Any]:
        """Return what comes into the last layer, (inputs, features), and the deployed model's logits."""
        import torch

        seen: list[tuple[Any, Any]] = []
        handle = self.layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
        try:
            with networks.suspend_training([self.model]), networks.preserve_random_state():
                logits = networks.call_model(networks.unwrap_compiled(self.model), batch, self.forward)
        finally:
            handle.remove()
        # The same tensor is equal to itself even where it holds NaN, which is for others to complain of.
        ends = len(seen) == 1 and isinstance(logits, torch.Tensor)
        if not ends or not (seen[0][1] is logits or torch.equal(seen[0][1], logits)):
            raise ValueError(
                "Expected a model that ends with its last linear layer, called once. Got one whose output is "
                "another. Name the layer: layer='...', or give a forward that returns its output."
            )
        return seen[0][0], logits

    @property
    def together(self) -> int:
        """How many members ``order="member"`` asks for at a time: as many heads as fit in little memory."""
        if self.heads is None or isinstance(self.heads, tuple):
            return _TOGETHER
        return max(1, DRAWN // self.layer.weight.numel())

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        yield from self.hold(batch, position=position)(members, None)

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        features, logits = self.features(batch)
        self._last = (batch, (features, logits))

        def ask(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
            places = np.arange(len(features)) if rows is None else rows
            return self._predicted(features if rows is None else features[rows], members, places + position)

        return ask

    def _predicted(self, features: Any, members: range | None, places: np.ndarray) -> Iterator[Any]:
        """Yield logits of members for features of inputs at these places, in chunks."""
        features = features.detach()
        wanted, numbers = select_members(members, self.members or 0), len(features) * self.layer.out_features
        if self.dropout is not None:
            scaled = features / (1 - self.dropout)
            for run in split_members(wanted, numbers, fewest=_FEWEST):
                yield self._of_dropout(scaled, run, places), None
            return
        held = max(1, len(wanted)) if isinstance(self.heads, tuple) else self.together
        for start in range(0, len(wanted), held):
            block = wanted[start : start + held]
            weight, bias = self._held(block)
            # Large heads that were drawn are no tensor, and few enough.
            large, all_of_it = isinstance(weight, list), range(len(block))
            for run in [all_of_it] if large else split_members(all_of_it, numbers, fewest=_FEWEST):
                some = slice(run.start, run.stop)
                found = self._of_heads(features, weight[some], bias[some])
                yield found, None if self.weights is None else self.weights[list(block[some])]

    def deployed(self, batch: Any) -> Any:
        logits, self._last = self._seen(batch)[1], (None, None)
        return logits

    def spread(self, batch: Any) -> np.ndarray | None:
        if self.dropout is None:
            return None
        features, logits = self._seen(batch)
        return compute_dropout_spread(features, self.layer.weight, logits, self.dropout)

    def _seen(self, batch: Any) -> tuple[Any, Any]:
        """Return features and logits; what ``hold`` has just computed for this very batch is still there."""
        last, found = self._last
        return found if found is not None and last is batch else self.features(batch)

    def _of_heads(self, features: Any, weight: Any, bias: Any) -> Any:
        """Return logits of heads, (members, inputs, classes), by one product if they have few classes."""
        import torch

        inputs, heads, classes = len(features), len(weight), self.layer.out_features
        with torch.no_grad():
            if classes <= FEW_CLASSES:
                wide, offset = weight.flatten(0, 1).to(features), bias.flatten().to(features)
                return torch.addmm(offset, features, wide.T).view(inputs, heads, classes).transpose(0, 1)
            found = features.new_empty((heads, inputs, classes))
            for out, own, offset in zip(found, weight, bias, strict=True):
                torch.addmm(offset.to(features), features, own.to(features).T, out=out)
        return found

    def _held(self, block: range) -> tuple[Any, Any]:
        """Return weights and biases of heads; those that were drawn are kept for the next batch."""
        if isinstance(self.heads, tuple):
            # A slice is no copy.
            index = slice(block.start, block.stop, block.step) if block.step > 0 else list(block)
            return self.heads[0][index], self.heads[1][index]
        if self._drawn is None or self._drawn[0] != block:
            self._drawn = None
            if self.layer.out_features <= FEW_CLASSES:
                self._drawn = block, self._draw(block)
            else:
                # One by one: put together, large ones would be a copy.
                drawn = [self._draw(range(k, k + 1)) for k in block]
                self._drawn = block, ([weight[0] for weight, _ in drawn], [bias[0] for _, bias in drawn])
        return self._drawn[1]

    def _draw(self, block: range) -> tuple[Any, Any]:
        assert self.heads is not None
        found = self.heads.parameters(block)
        weight = found["weight"]
        bias = found["bias"] if "bias" in found else weight.new_zeros(weight.shape[:2])
        weight, bias = check_heads(weight, bias, self.layer)
        if len(weight) != len(block):
            raise ValueError(
                f"heads.parameters must return as many heads as it is asked for, {len(block)}. "
                f"Got {len(weight)}."
            )
        return weight, bias

    def _of_dropout(self, scaled: Any, run: range, places: np.ndarray) -> Any:
        """Return logits of masked features, (members, inputs, classes)."""
        weight, bias = self.layer.weight.detach(), self.layer.bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias.detach()
        weight, bias = weight.to(scaled), bias.to(scaled)
        found = scaled.new_empty((len(run), len(scaled), len(weight)))
        if len(scaled) == 0:
            return found
        if len(weight) <= FEW_CLASSES and can_compile(scaled):
            self._masks.write_logits(run, places, *(each.numpy() for each in (scaled, weight, bias, found)))
        else:
            self._multiplied(scaled, run, places, weight.T, bias, found)
        return found

    def _multiplied(
        self, scaled: Any, run: range, places: np.ndarray, weight: Any, bias: Any, found: Any
    ) -> None:
        """Write logits of masked features by products of ``ROWS`` rows."""
        import torch

        inputs, width = scaled.shape
        step = max(1, ROWS // inputs)
        parts = np.array_split(np.arange(inputs), -(-inputs // ROWS))
        rows = scaled.new_empty((step * len(parts[0]), width))
        for start in range(0, len(run), step):
            own = run[start : start + step]
            for part in parts:
                some = slice(part[0], part[-1] + 1)
                masked = rows[: len(own) * len(part)].view(len(own), len(part), width)
                if can_compile(scaled):
                    self._masks.apply(own, places[some], scaled[some].numpy(), masked.numpy())
                else:
                    kept = torch.from_numpy(self._masks.draw_kept(own, places[some]))
                    masked.copy_(kept).mul_(scaled[some])
                # A view: inputs are in several parts only where members come one by one.
                out = found[start : start + len(own), some].flatten(0, 1)
                torch.addmm(bias, masked.flatten(0, 1), weight, out=out)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write heads and weights to a safetensors file; or dropout's rate, samples, seed and last layer."""
        if isinstance(self.heads, tuple):
            tensors = {"weight": self.heads[0], "bias": self.heads[1], **pack_weights(self.weights)}
            write_tensors(path, tensors, {"method": "LastLayer"})
        elif self.dropout is not None:
            settings = {"dropout": self.dropout, "samples": self.members, "seed": self.seed}
            facts = {"method": "LastLayer", "dropout": json.dumps(settings)}
            write_tensors(path, self.layer.state_dict(), facts)
        else:
            raise ValueError(
                f"Expected heads to save. Got {self!r}, whose heads are drawn: save what draws them."
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read what ``save`` wrote, for the same model; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "LastLayer")
        if "dropout" not in facts:
            heads = (tensors["weight"], tensors["bias"])
            return cls(model, heads, **{"weights": tensors.get("weights"), **options})
        networks.check_network("model", model)
        own = find_last_linear(model, options.get("layer")).state_dict()
        if fingerprint(dict(own)) != fingerprint(tensors):
            raise ValueError(f"model must have the last layer that {os.fspath(path)!r} holds. Got another.")
        return cls(model, **{**json.loads(facts["dropout"]), **options})


def find_last_linear(model: Any, name: str | None) -> Any:
    """Return the layer of that name, or the last linear one; raise where it is none."""
    from torch import nn

    found = {each: module for each, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not found or (name is not None and name not in found):
        raise ValueError(
            f"layer must be a torch.nn.Linear of the model: {', '.join(map(repr, found)) or 'it has none'}. "
            f"Got {name!r}."
        )
    return list(found.values())[-1] if name is None else found[name]


def read_heads(given: Any, layer: Any) -> Any:
    """Return weight (members, classes, features) and bias (members, classes) of heads; an object as it is."""
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
    return check_heads(weight, bias, layer)


def check_heads(weight: Any, bias: Any, layer: Any) -> tuple[Any, Any]:
    """Return weight and bias of heads; raise unless they fit the last layer."""
    expected = (layer.out_features, layer.in_features)
    if weight.ndim != 3 or len(weight) == 0 or weight.shape[1:] != expected or bias.shape != weight.shape[:2]:
        raise ValueError(
            f"heads must have {expected[0]} classes and {expected[1]} features, as the last layer. "
            f"Got weight {tuple(weight.shape)} and bias {tuple(bias.shape)}."
        )
    return weight, bias
