"""`LogitDetector`, the base class of scores that need nothing but a network's logits."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from demur.posteriors import networks
from demur.posteriors.one_pass.detector import Detector
from demur.posteriors.shared_pass import run_network


class LogitDetector(Detector):
    """A score from the logits of one network; a subclass defines ``score_logits``.

    Parameters
    ----------
    model
        The network, which returns logits (inputs, classes).
    forward
        ``forward(model, inputs)`` returns the logits, for models that need more than ``model(inputs)``.
    """

    def __init__(self, model: Any, *, forward: networks.Forward | None = None) -> None:
        import torch

        networks.check_network("model", model)
        self.model, self.forward = model, forward
        # Scores of features ask for this layer too, and then share the pass.
        linear = [each for each in model.modules() if isinstance(each, torch.nn.Linear)]
        self._layer = linear[-1] if linear else None

    @classmethod
    def fit(cls, model: Any, loader: Any = None, **options: Any) -> Self:
        """Return the detector, as the others' ``fit`` does; nothing is fitted, and no data are read."""
        return cls(model, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__})"

    @abstractmethod
    def score_logits(self, logits: Any) -> Any:
        """Return the scores (inputs,) of logits (inputs, classes), a tensor in float64."""

    def score_batch(self, batch: Any) -> Any:
        import torch

        logits = run_network(self.model, batch, layer=self._layer, forward=self.forward)[1]
        if not isinstance(logits, torch.Tensor):
            raise TypeError(
                f"{self.name}: expected a network that returns logits. Got {type(logits).__name__}."
            )
        return self.score_logits(logits.detach().cpu().double())
