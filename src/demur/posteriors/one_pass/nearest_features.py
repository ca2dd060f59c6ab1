"""`NearestFeatures`: the distance to the k-th nearest features of the training data."""

from __future__ import annotations

import json
import os
from typing import Any, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.one_pass.encoder import Encoder
from demur.posteriors.posterior import check_count
from demur.posteriors.tensor_files import read_tensors, write_tensors

_ROWS = 4096
"""Features of the training data in one product, in float64."""
_QUERIES = 256
"""Inputs in one product, so that it stays in the processor's cache."""


class NearestFeatures(Detector):
    """Distance to the k-th nearest features of the training data, all scaled to length 1.

    Sun, Ming, Zhu and Li (2022), "Out-of-distribution detection with deep nearest neighbors",
    algorithm 1. The search is exact. Features that are all 0 have no direction and stay 0, at distance 1 from
    all others. Scores lie between 0 and 2.

    Parameters
    ----------
    model, layer, forward
        As for ``LastLayer``.
    features
        Features of the training data, (inputs, features).
    k
        Which neighbour: 50 in the paper for CIFAR-10, 200 for CIFAR-100, 1000 for ImageNet; it wants to be
        larger for more data.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import NearestFeatures
    >>> head = torch.nn.Linear(2, 3)                 # the inputs are features already
    >>> near = NearestFeatures(head, np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 5.0]]), k=1)
    >>> near.score([np.array([[3.0, 0.0], [-1.0, 0.0]])]).round(3)
    array([0.   , 1.414])
    """

    name = "nearest_features"

    def __init__(
        self,
        model: Any,
        features: Any,
        *,
        k: int = 50,
        layer: str | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        self.encoder = Encoder(model, layer=layer, forward=forward)
        self.features, self.k = np.asarray(features), check_count("k", k)
        if self.features.ndim != 2 or self.features.shape[1] != self.encoder.width:
            raise ValueError(
                f"features must be {self.encoder.width} for each input, as the last layer takes. "
                f"Got {self.features.shape}."
            )
        if len(self.features) < k:
            raise ValueError(f"k must be at most the number of inputs, {len(self.features)}. Got {k}.")

    @classmethod
    def fit(
        cls,
        model: Any,
        loader: Any,
        *,
        k: int = 50,
        layer: str | None = None,
        forward: networks.Forward | None = None,
        cache: str | os.PathLike[str] | None = None,
        every: float = 10.0,
        progress: bool = True,
    ) -> Self:
        """Keep the features of the training data, from one pass over them; labels are not needed.

        Parameters
        ----------
        model, k, layer, forward
            As for the class.
        loader
            As for ``demur.score``, or ``Features`` of this model.
        cache, every
            A folder for the features, as for ``features``, and seconds between writes.
        progress
            Show a progress bar, on a terminal.
        """
        encoder = Encoder(model, layer=layer, forward=forward)
        found = encoder.read(loader, cache=cache, every=every, progress=progress)
        return cls(model, found.values, k=k, layer=layer, forward=forward)

    def __repr__(self) -> str:
        return f"NearestFeatures({len(self.features)} inputs, k={self.k})"

    def score_batch(self, batch: Any) -> Any:
        import torch

        queries = _normalise(self.encoder.encode(batch))
        return torch.cat([self._search(some) for some in queries.split(_QUERIES)])

    def _search(self, queries: Any) -> Any:
        """Return the distances of some normalised features."""
        import torch

        best = queries.new_empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.long)
        for start in range(0, len(self.features), _ROWS):
            some = self._read(slice(start, start + _ROWS))
            # Largest cosine, nearest of those with a length; features that are all 0 are at distance 1.
            near = torch.cat([best, 2 * queries @ some.T - some.square().sum(1)], 1)
            numbers = torch.arange(start, start + len(some)).expand(len(queries), -1)
            best, places = near.topk(min(self.k, near.shape[1]), 1)
            rows = torch.cat([rows, numbers], 1).gather(1, places)
        # The last of the k: their distance from the difference itself, in which nothing cancels.
        return (queries - self._read(rows[:, -1].numpy())).norm(dim=1)

    def _read(self, rows: Any) -> Any:
        """Return some of the training data's features in float64, scaled to length 1."""
        import torch

        return _normalise(torch.from_numpy(np.asarray(self.features[rows], np.float64)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: k, and the features of the training data."""
        import torch

        tensors = {"features": torch.from_numpy(np.array(self.features))}
        facts = {"method": "NearestFeatures", "k": json.dumps(self.k)}
        write_tensors(path, tensors, facts | self.encoder.describe())

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any, **options: Any) -> Self:
        """Read a file from ``save``, for the same model; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "NearestFeatures")
        found = cls(model, tensors["features"].numpy(), **{"k": json.loads(facts["k"]), **options})
        found.encoder.check(facts, path)
        return found


def _normalise(features: Any) -> Any:
    """Return features scaled to length 1; those that are all 0 stay so."""
    length = features.norm(dim=1, keepdim=True)
    return features / length.masked_fill(length == 0, 1)
