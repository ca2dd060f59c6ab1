"""`Encoder`: the features and logits of one network, for the scores computed from them."""

from __future__ import annotations

import os
from typing import Any

from demur.posteriors import networks
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.heads.features import Features, features
from demur.posteriors.last_layer import LastLayer


class Encoder:
    """The input of a network's last layer.

    Parameters
    ----------
    model
        The network; where the inputs are features already, its last layer alone, a ``torch.nn.Linear``.
    layer
        Name of the last layer, as in ``model.named_modules()``; None: the last ``torch.nn.Linear``.
    forward
        ``forward(model, inputs)`` returns the logits, for models that need more than ``model(inputs)``.
    """

    def __init__(
        self, model: Any, *, layer: str | None = None, forward: networks.Forward | None = None
    ) -> None:
        # Used only to find the features; the rate of dropout does not matter.
        self._source = LastLayer(model, dropout=0.5, layer=layer, forward=forward)
        self.model, self.layer, self.forward = model, layer, forward

    @property
    def width(self) -> int:
        """The number of features."""
        return self._source.layer.in_features

    def encode(self, batch: Any) -> Any:
        """Return the features of a batch, (inputs, features), in float64 on the processor."""
        return self.encode_both(batch)[0].cpu().double()

    def encode_both(self, batch: Any) -> tuple[Any, Any]:
        """Return the features (inputs, features) and logits (inputs, classes) of a batch, as they are."""
        features, logits = self._source.features(batch)
        return features.detach(), logits.detach()

    def apply_last_layer(self, features: Any) -> Any:
        """Return the logits of features, without gradients."""
        layer = self._source.layer
        return layer(features.to(layer.weight)).detach()

    def read(
        self, loader: Any, *, cache: str | os.PathLike[str] | None, every: float, progress: bool
    ) -> Features:
        """Return the features of a data set; raise unless they are those of this network."""
        found = loader
        if not isinstance(loader, Features):
            found = features(
                self.model, loader, cache=cache, layer=self.layer, forward=self.forward, every=every,
                progress=progress,
            )  # fmt: skip
        if found.values.shape[1] != self.width:
            raise ValueError(
                f"Features must be {self.width}, as the last layer takes. Got {found.values.shape[1]}."
            )
        return found

    def describe(self) -> dict[str, str]:
        """Return what a file recognises the network by: its last layer, which may stand alone."""
        return {"layer": fingerprint(dict(self._source.layer.state_dict()))}

    def check(self, facts: dict[str, str], path: Any) -> None:
        """Raise unless a file is about a network with this last layer."""
        if facts.get("layer", "") not in ("", self.describe()["layer"]):  # older files have none
            raise ValueError(
                f"model must have the last layer that {os.fspath(path)!r} is about. Got another."
            )

    def fingerprint(self) -> str:
        """Return a text that changes with the network and the name of its last layer."""
        return fingerprint(self.model, self.layer)
