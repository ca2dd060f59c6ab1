"""`LastLayer`: members that share a network up to its last layer, so that features are computed once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.compiled_calls import FEW_CLASSES
from demur.posteriors.dropout.masks import Masks
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.heads.logits import multiply_dropped, multiply_heads
from demur.posteriors.heads.parameters import draw_heads, find_last_linear, read_heads
from demur.posteriors.posterior import Ask, Posterior, check_count, check_seed, select_members, split_members
from demur.posteriors.shared_pass import run_network
from demur.posteriors.tensor_files import pack_weights, read_tensors, write_tensors
from demur.scoring.logit_spread import compute_dropout_spread

_FEWEST_MEMBERS = 8
"""Members per chunk, at least, also for large batches: one member costs the moments as much as two."""

DRAWN_WEIGHTS = 1 << 26
"""Weights of the heads drawn at a time, at most: adding a few members to sums costs as much as many."""

_TILE_LOGITS_STACKED, _TILE_LOGITS_SINGLE = 1 << 15, 1 << 18
"""Inputs times classes of a tile. One product for all heads: few enough for the sums to stay in the
processor's cache. One product per head: enough for the product to reach its speed."""

_MEMBERS_PER_PASS = 64
"""Members in one pass over the data set with ``order="member"``, where they need no memory of their own."""


class LastLayer(Posterior):
    """One network with many last layers, or with dropout before its last layer.

    The input of the last layer, its features, is computed once per batch. Give either ``heads``, an ensemble
    of last layers (DE (LL) of Schweighofer et al., 2023, "Quantification of uncertainty with adversarial
    models"; ``fit`` trains them), or ``dropout``, MC dropout of the last layer's input (Gal and Ghahramani,
    2016, equation 6).

    Parameters
    ----------
    model
        The network, which is also the deployed model. Or a last layer alone, a ``torch.nn.Linear``, for
        inputs that are features already: from ``features``, or your own.
    heads
        Last layers: a list of ``torch.nn.Linear``, or a pair of tensors, weight (members, classes, features)
        and bias (members, classes) or None. Or an object that draws them, with ``members``, their number, and
        ``parameters(members)``, which takes a range of members and returns ``{"weight": ..., "bias": ...}``
        of the same shapes. ``order="member"`` asks for each member once, in order; ``order="batch"`` asks for
        all of them for each batch.
    dropout
        Probability of dropping a feature, above 0 and below 1; the others are scaled by 1 / (1 - dropout).
    samples, seed
        The number of members with dropout, and the seed of their draws.
    layer
        Name of the last layer, as in ``model.named_modules()``; None: the last ``torch.nn.Linear``.
    weights
        One positive number per head; None: equal weights.
    forward
        A function of the network and its inputs that returns logits, where ``model(inputs)`` does not.

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
        self.model, self.forward, self.dropout, self.seed = model, forward, dropout, check_seed(seed)
        self._last: tuple[Any, Any] = (None, None)
        self.layer = find_last_linear(model, layer)
        self.heads = None if heads is None else read_heads(heads, self.layer)
        if self.heads is None:
            self.members = check_count("samples", samples)
            self._masks = Masks(dropout or 0.0, self.seed, self.layer.in_features)
        else:
            drawn = not isinstance(self.heads, tuple)
            self.members = check_count("heads.members", self.heads.members) if drawn else len(self.heads[0])
        stacks = self.heads is None or self.layer.out_features <= FEW_CLASSES
        self.tile = max(
            1, (_TILE_LOGITS_STACKED if stacks else _TILE_LOGITS_SINGLE) // self.layer.out_features
        )
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

        After an interruption, the same call resumes from ``path`` and trains the same heads.

        Parameters
        ----------
        model, layer, forward
            As for the class.
        loader
            As for ``demur.score``, with labels from 0 to classes - 1; or ``Features`` of this model.
        members
            The number of heads; the paper's ImageNet tables have ten.
        training
            A ``HeadTraining``, which says how heads start and how they are trained; None: its defaults. The
            paper and its code say that ten heads were trained, but not how.
        seed
            The seed of the heads: how each one starts, and in which order it sees the inputs.
        cache
            A folder for the features, as for ``features``; None: they stay in memory.
        path
            A safetensors file for the work done so far, and in the end for the heads, as from ``save``.
        every
            Seconds between writes of the file, at the end of an epoch.
        progress
            Show a progress bar, on a terminal.

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
        seed = check_seed(seed)
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
        """Return the input of the last layer, (inputs, features), and the deployed model's logits."""
        import torch

        seen, logits = run_network(self.model, batch, layer=self.layer, forward=self.forward)
        # A tensor equals itself even where it holds NaN, which is reported elsewhere.
        ends = len(seen) == 1 and isinstance(logits, torch.Tensor)
        if not ends or not (seen[0][1] is logits or torch.equal(seen[0][1], logits)):
            raise ValueError(
                "Expected a model that ends with its last linear layer, called once. Got one whose output is "
                "another. Name the layer: layer='...', or give a forward that returns its output."
            )
        return seen[0][0], logits

    @property
    def together(self) -> int:
        """How many members ``order="member"`` asks for in one pass: as many heads as fit in little memory."""
        if self.heads is None or isinstance(self.heads, tuple):
            return _MEMBERS_PER_PASS
        return max(1, DRAWN_WEIGHTS // self.layer.weight.numel())

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        yield from self.hold(batch, position=position)(members, None)

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        features, logits = self.features(batch)
        self._last = (batch, (features, logits))

        def ask(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
            places = np.arange(len(features)) if rows is None else rows
            return self._predict_features(
                features if rows is None else features[rows], members, places + position
            )

        return ask

    def _predict_features(self, features: Any, members: range | None, places: np.ndarray) -> Iterator[Any]:
        """Yield logits of members for the features of inputs with these numbers, in chunks."""
        features = features.detach()
        wanted, numbers = select_members(members, self.members or 0), len(features) * self.layer.out_features
        if self.dropout is not None:
            scaled = features / (1 - self.dropout)
            for run in split_members(wanted, numbers, fewest=_FEWEST_MEMBERS):
                yield multiply_dropped(scaled, self.layer, self._masks, run, places), None
            return
        held = max(1, len(wanted)) if isinstance(self.heads, tuple) else self.together
        for start in range(0, len(wanted), held):
            block = wanted[start : start + held]
            weight, bias = self._hold_heads(block)
            # Large heads that were drawn are lists, and few enough for one chunk.
            large, all_of_it = isinstance(weight, list), range(len(block))
            for run in [all_of_it] if large else split_members(all_of_it, numbers, fewest=_FEWEST_MEMBERS):
                some = slice(run.start, run.stop)
                found = multiply_heads(features, weight[some], bias[some], self.layer.out_features)
                yield found, None if self.weights is None else self.weights[list(block[some])]

    def deployed(self, batch: Any) -> Any:
        logits, self._last = self._reuse_features(batch)[1], (None, None)
        return logits

    def spread(self, batch: Any) -> np.ndarray | None:
        if self.dropout is None:
            return None
        features, logits = self._reuse_features(batch)
        return compute_dropout_spread(features, self.layer.weight, logits, self.dropout)

    def _reuse_features(self, batch: Any) -> tuple[Any, Any]:
        """Return features and logits; those that ``hold`` has just computed for this batch are reused."""
        last, found = self._last
        return found if found is not None and last is batch else self.features(batch)

    def _hold_heads(self, block: range) -> tuple[Any, Any]:
        """Return weights and biases of heads; drawn ones are kept for the next batch."""
        if isinstance(self.heads, tuple):
            # A slice is no copy.
            index = slice(block.start, block.stop, block.step) if block.step > 0 else list(block)
            return self.heads[0][index], self.heads[1][index]
        if self._drawn is None or self._drawn[0] != block:
            self._drawn = None
            if self.layer.out_features <= FEW_CLASSES:
                self._drawn = block, draw_heads(self.heads, block, self.layer)
            else:
                # One by one: stacking large ones would copy them.
                drawn = [draw_heads(self.heads, range(k, k + 1), self.layer) for k in block]
                self._drawn = block, ([weight[0] for weight, _ in drawn], [bias[0] for _, bias in drawn])
        return self._drawn[1]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: heads and weights, or dropout's rate, samples, seed and last layer."""
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
        """Read a file from ``save``, for the same model; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "LastLayer")
        if "dropout" not in facts:
            heads = (tensors["weight"], tensors["bias"])
            return cls(model, heads, **{"weights": tensors.get("weights"), **options})
        networks.check_network("model", model)
        own = find_last_linear(model, options.get("layer")).state_dict()
        if fingerprint(dict(own)) != fingerprint(tensors):
            raise ValueError(f"model must have the last layer that {os.fspath(path)!r} holds. Got another.")
        return cls(model, **{**json.loads(facts["dropout"]), **options})
