"""Measures of users' own in `demur.score`: their given sides are functions, asked batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from demur.measures import Measure, resolve
from demur.posteriors.posterior import parse_chunk
from demur.scoring.batches import InputBatch


@dataclass(frozen=True)
class GivenModels:
    """What given models predict for a batch; rows are taken of it as of the deployed model's logits alone."""

    deployed: Any
    own: dict[str, Measure]
    ndim: ClassVar[int] = 2

    def __getitem__(self, rows: np.ndarray) -> GivenModels:
        def take(side: Any) -> Any:
            return side if isinstance(side, str) else side.with_values(side.values[..., rows, :])

        deployed = self.deployed[rows] if hasattr(self.deployed, "ndim") else self.deployed
        own = {name: Measure(take(each.predictor), take(each.truth)) for name, each in self.own.items()}
        return GivenModels(deployed, own)


def deployed_of(given: Any) -> Any:
    """Return the deployed model's predictions, which may come with those of other given models."""
    return given.deployed if isinstance(given, GivenModels) else given


def check_own_measure(name: Any, given: Any) -> Measure:
    """Return a user's measure; raise unless its given sides are functions, since batches come one by one."""
    measure = resolve(given)
    for side in (measure.predictor, measure.truth):
        if not isinstance(side, str) and not callable(side):
            raise TypeError(
                f"measures[{name!r}] must have 'each', 'bma', or a function from the inputs of a batch to "
                f"predictions on each side. Got {type(side).__name__}. Arrays go with demur.decompose."
            )
    return measure


def ask_given_models(measure: Measure, batch: InputBatch) -> Measure:
    """Return the measure with what its given models predict for a batch."""
    sides = (measure.predictor, measure.truth)
    return Measure(*(s if isinstance(s, str) else parse_chunk(s(batch.inputs))[0] for s in sides))
