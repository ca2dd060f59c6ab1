"""`QUAM`: for each input, models that disagree with the deployed one as far as the training data allow."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.adversarial.head_search import HeadSearch
from demur.posteriors.adversarial.network_search import NetworkSearch
from demur.posteriors.adversarial.plan import Search, SearchPlan
from demur.posteriors.adversarial.saving import pack_search, read_settings, unpack_training
from demur.posteriors.chains.minibatches import read_whole
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.heads.features import Features, features
from demur.posteriors.last_layer import LastLayer
from demur.posteriors.posterior import (
    Posterior,
    check_count,
    check_seed,
    count_inputs,
    select_members,
    select_rows,
    split_members,
)
from demur.posteriors.tensor_files import read_tensors, write_tensors

_LOGITS_HELD = 1 << 26
"""Logits of all models of the inputs searched before any is passed on, at most: 256 MB."""

_LEAST_WEIGHT = 1e-100
"""Lighter models count as nothing: `Moments` takes no smaller weights."""

_ATTRIBUTES = ("bound", "temperature", "seed", "batch_size", "loss_inputs", "layer", "targets_at_once")
_SETTINGS = {*_ATTRIBUTES, *(each.name for each in dataclasses.fields(SearchPlan)), "targets"}
"""The settings that a file holds, beside the layers."""

_READ_TOGETHER = 1024
"""Training inputs per pass through the network, when their features are computed."""


class QUAM(Posterior):
    r"""For each input, models that disagree with the deployed one but explain the training data as well.

    Schweighofer, Aichberger, Ielanskyi, Klambauer and Hochreiter (2023), "Quantification of uncertainty with
    adversarial models". For an input :math:`x`, one search per target class :math:`y` starts at the deployed
    model and minimises

    .. math:: -\log p(y \mid x, w) + c \, [L(w) - L(\text{deployed}) - \gamma]

    by Adam, where :math:`L` is the average loss of training inputs, and :math:`c` grows by a factor while the
    steps shrink by it (their Algorithm 1). The models on the way are members. Each of them weighs
    :math:`\exp(-[L(w) - L(\text{deployed})] / T)` for this input, or 0 above the bound :math:`\gamma`.
    ``demur.score`` computes the paper's own measure first: ``A3``, the disagreement with the deployed model.

    Parameters
    ----------
    model
        The deployed network. Or a last layer alone, a ``torch.nn.Linear``, for inputs that are features.
    data
        The training data: a pair (inputs, labels) of arrays, a ``Dataset``, a ``DataLoader`` or ``Features``.
        A few ten thousand inputs are enough; they are kept in memory.
    layers
        ``"last"``: only the last layer moves, so that features are computed once. ``"all"``: all parameters
        that require gradients; many times slower. Or names of layers, as in ``model.named_modules()``, such
        as ``["encoder.1", "head"]``: only their parameters move.
    targets
        How many classes to search towards, the likeliest first; None: all.
    steps, keep_every
        Steps of a search, and how many lie between two models that are kept. The authors take 194 steps on
        MNIST and keep all; those after the 60th are less than a thirteenth of the first, and let the network
        settle. With fewer steps, lower ``rate``: "Steps and step size" in the documentation says how far.
    penalty, growth, growth_every
        :math:`c` in the first step, the factor by which it grows, and the number of steps between.
    rate, weight_decay, batch_size
        Of Adam: step size at the start, L2 penalty, and training inputs per step. All defaults are the
        authors' for MNIST; for ImageNet's last layer they have ``rate=1e-3``, ``penalty=1``,
        ``growth=1.01``, ``growth_every=1`` and ``weight_decay=1e-4``.
    loss_inputs
        Training inputs, the same for all models, on which :math:`L(w)` is compared for the weights. The
        authors take the batch of the step, whose noise is larger than the differences that matter.
    bound
        :math:`\gamma`: by how many nats the average training loss of a model may exceed the deployed one's.
        None: there is no bound, and weights alone decide.
    temperature
        :math:`T`: a model that is so many nats per training input worse than another weighs :math:`1/e` of
        it.
    seed
        Of the order of the training inputs. All searches see the same batches.
    layer, forward
        As for `LastLayer`.
    targets_at_once
        Without ``layers="last"``: how many target classes are searched at once, by ``torch.func.vmap``. Their
        parameters, gradients and Adam's two moments are in memory together. On a processor, networks of few
        small linear layers gain; convolutions are faster one by one. The last layers of all target classes
        are always searched together, as many as fit in little memory.
    progress
        Show a progress bar while the features of the training data are computed.

    Notes
    -----
    An input's members depend on this input alone, not on its batch, to the last bit.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> posterior = demur.posteriors.QUAM(model, (x, y), steps=20)
    >>> posterior
    QUAM(last layer, 3 targets, 20 steps)
    >>> scores = demur.score(posterior, [x[:5]], progress=False)
    >>> scores.members, scores["A3"].epistemic.shape
    (13, (5,))
    """

    drawn = False
    measures = ("A3", "pairwise", "average", "reverse")

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        layers: Literal["last", "all"] | Sequence[str] = "last",
        targets: int | None = None,
        steps: int = 60,
        keep_every: int = 5,
        penalty: float = 6.0,
        growth: float = 1.9,
        growth_every: int = 14,
        rate: float = 5e-3,
        weight_decay: float = 1e-3,
        batch_size: int = 512,
        loss_inputs: int = 4096,
        bound: float | None = None,
        temperature: float = 1e-3,
        seed: int = 0,
        layer: str | None = None,
        forward: networks.Forward | None = None,
        targets_at_once: int = 1,
        progress: bool = True,
    ) -> None:
        networks.check_network("model", model)
        if (isinstance(layers, str) and layers not in ("last", "all")) or not layers:
            raise ValueError(f"layers must be 'last', 'all' or a list of names. Got {layers!r}.")
        if bound is not None and not 0 <= bound < math.inf:
            raise ValueError(f"bound must be 0 or more nats, or None. Got {bound!r}.")
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite. Got {temperature!r}.")
        check_count("batch_size", batch_size)
        check_count("loss_inputs", loss_inputs)
        if check_count("targets_at_once", targets_at_once) > 1 and layers == "last":
            raise ValueError("targets_at_once is not for layers='last', which searches many at once anyway.")
        seed = check_seed(seed)
        plan = SearchPlan(steps, keep_every, rate, penalty, growth, growth_every, weight_decay)
        if layers == "last":
            source = LastLayer(model, dropout=0.5, layer=layer, forward=forward)  # no dropout is drawn
            training = _read_features(source, data, seed, layer, progress)
            self._search: Search = HeadSearch(source, training, plan, batch_size, loss_inputs, seed)
        elif layer is not None or isinstance(data, Features):
            raise ValueError(f"layers={layers!r} takes no layer and no Features: these are for 'last'.")
        else:
            self._search = NetworkSearch(
                model, forward, read_whole(data, _READ_TOGETHER, seed), None if layers == "all" else layers,
                targets_at_once, plan, batch_size, loss_inputs, seed,
            )  # fmt: skip
        classes = self._search.classes
        self._targets = classes if targets is None else check_count("targets", targets)
        if self._targets > classes:
            raise ValueError(f"targets must be at most the number of classes, {classes}. Got {targets}.")
        self.layers = layers if isinstance(layers, str) else tuple(layers)
        self.plan, self.bound, self.temperature = plan, bound, temperature
        self.seed, self.layer, self.targets_at_once = seed, layer, targets_at_once
        self.batch_size, self.loss_inputs = batch_size, loss_inputs
        self.members = 1 + self._targets * plan.kept
        self.tile = max(1, _LOGITS_HELD // (self.members * classes))

    def __repr__(self) -> str:
        where = f"{self.layers} layer{'s' * (self.layers == 'all')}"
        if not isinstance(self.layers, str):
            where = " and ".join(self.layers)
        return f"QUAM({where}, {self._targets} targets, {self.plan.steps} steps)"

    @property
    def together(self) -> int:
        """All of them: they are found together."""
        return self.members or 1

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        wanted = select_members(members, self.members or 0)
        found = [self._search_input(select_rows(batch, row)) for row in _list_rows(batch)]
        logits = np.stack([each for each, _ in found], axis=1)
        weights = np.stack([each for _, each in found], axis=1)
        for run in split_members(wanted, logits[0].size):
            yield logits[run.start : run.stop : run.step], weights[run.start : run.stop : run.step]

    def _search_input(self, row: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return logits (members, classes) and weights (members,) for a batch of one input."""
        deployed = self._search.predict(row)
        targets = deployed[0].topk(self._targets).indices
        found = self._search.run(row, targets)
        logits = np.concatenate([_to_numpy(deployed), _to_numpy(found.logits)])
        excess = np.append(0.0, _to_numpy(found.excess))
        if not (np.isfinite(excess).all() and np.isfinite(logits).all()):
            raise ValueError(
                "Expected searches that stay finite. Got models with infinite logits or losses. "
                f"Choose a rate below {self.plan.rate}, or check the inputs."
            )
        weights = np.exp((excess.min() - excess) / self.temperature)
        weights[weights < _LEAST_WEIGHT] = 0
        if self.bound is not None:
            weights[excess > self.bound] = 0
        return logits, weights

    def deployed(self, batch: Any) -> Any:
        import torch

        # One by one, as for the members: the same bits, whatever the batch.
        return torch.cat([self._search.predict(select_rows(batch, row)) for row in _list_rows(batch)])

    def fingerprint(self) -> str:
        return fingerprint(self._describe(), *self._search.describe())

    def _describe(self) -> dict[str, Any]:
        """Return the settings by name, as the class takes them."""
        own = {name: getattr(self, name) for name in _ATTRIBUTES}
        return {**dataclasses.asdict(self.plan), **own, "targets": self._targets}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the training data and all settings to a safetensors file.

        Of the last layer these are the features of the training data; otherwise the inputs themselves.
        """
        tensors, facts = pack_search(self._search)
        settings = json.dumps({**self._describe(), "layers": self.layers})
        write_tensors(path, tensors, {"method": "QUAM", "settings": settings, **facts})

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save``, for the same model; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "QUAM")
        settings = read_settings(facts, _SETTINGS, path)
        networks.check_network("model", model)
        training = unpack_training(tensors, facts, settings, model, path)
        return cls(model, training, **{**settings, **options})


def _read_features(source: LastLayer, data: Any, seed: int, layer: str | None, progress: bool) -> Features:
    """Return the features of the training data, in memory."""
    if isinstance(data, Features):
        return data
    read = read_whole(data, _READ_TOGETHER, seed)
    batches = [{**x, "labels": y} if isinstance(x, Mapping) else (x, y) for x, y in read]
    return features(source.model, batches, layer=layer, forward=source.forward, progress=progress)


def _list_rows(batch: Any) -> list[np.ndarray]:
    """Return the number of each input of a batch, as rows to select."""
    return [np.array([row]) for row in range(count_inputs(batch))]


def _to_numpy(tensor: Any) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
