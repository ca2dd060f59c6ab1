"""`GaussianOutputs`: members whose outputs are logits, or means of Gaussians of one variance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from demur.posteriors.posterior import Ask, Posterior
from demur.predictions import Gaussian, MultivariateGaussian


class GaussianOutputs(Posterior):
    """The members of another posterior, with a variance where they predict numbers.

    A subclass calls ``_set_up``.
    """

    def _set_up(self, members: Posterior, noise_variance: float | None) -> None:
        self._members, self.noise_variance = members, noise_variance
        self.members = members.members
        # Predicted numbers are few, and a deployed Gaussian has no rows to take.
        self.tile = members.tile if noise_variance is None else None

    @property
    def together(self) -> int:
        """How many members ``order="member"`` asks for in one pass over the data set."""
        return self._members.together

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        for chunk in self._members.predict(batch, members=members, position=position):
            yield self._to_prediction(chunk)

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        ask = self._members.hold(batch, position=position)

        def ask_for_predictions(members: range | None, rows: np.ndarray | None = None) -> Iterator[Any]:
            return map(self._to_prediction, ask(members, rows))

        return ask_for_predictions

    def deployed(self, batch: Any) -> Any:
        return self._to_prediction(self._members.deployed(batch))

    def _to_prediction(self, chunk: Any) -> Any:
        """Return logits as they are, and predicted numbers as Gaussians of the observations' variance."""
        outputs = chunk[0] if isinstance(chunk, tuple) else chunk
        if self.noise_variance is None:
            return outputs
        if outputs.shape[-1] == 1:
            return Gaussian(outputs[..., 0], variance=self.noise_variance)
        return MultivariateGaussian(outputs, variance=self.noise_variance)
