"""`Transformed`: a posterior whose inputs are transformed first, as in a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from demur.posteriors.posterior import Ask, Posterior


class Transformed(Posterior):
    """A posterior behind a transformation of its inputs; the members share what it computes.

    Parameters
    ----------
    posterior
        Predicts for transformed inputs.
    transform
        A function from the inputs of a batch to those of the posterior.
    source
        What a fingerprint covers of the transformation, such as the fitted steps of a pipeline.
    """

    def __init__(self, posterior: Posterior, transform: Callable[[Any], Any], source: Any = None) -> None:
        self.posterior, self.transform, self.source = posterior, transform, source
        self.members, self.classes, self.tile = posterior.members, posterior.classes, posterior.tile
        self.drawn, self.measures = posterior.drawn, posterior.measures

    def __repr__(self) -> str:
        return f"Transformed({self.posterior!r})"

    @property
    def together(self) -> int:
        return self.posterior.together

    @property
    def infinity_advice(self) -> str | None:
        return self.posterior.infinity_advice

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        return self.posterior.predict(self.transform(batch), members=members, position=position)

    def hold(self, batch: Any, *, position: int = 0) -> Ask:
        return self.posterior.hold(self.transform(batch), position=position)

    def deployed(self, batch: Any) -> np.ndarray | None:
        return self.posterior.deployed(self.transform(batch))
