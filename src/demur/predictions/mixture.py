"""Mixtures of distributions over predictions: several evidential networks, or points beside a density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.members import check_weight_values
from demur.predictions.parametric import as_real_array
from demur.predictions.second_order import SecondOrder, as_second_order


class Mixture(SecondOrder):
    """A mixture of Dirichlet, Beta, Uniform and Deltas distributions, or of mixtures: exact if they are.

    What the components disagree about is added to what is uncertain within each.

    Parameters
    ----------
    components
        For the same inputs and classes.
    weights
        Shape (components,); None: all the same.

    Examples
    --------
    >>> fair_or_not = demur.Mixture([demur.Deltas([0.5]), demur.Uniform(0, 1)], weights=[0.9, 0.1])
    >>> demur.decompose(fair_or_not).epistemic
    array(0.05)
    """

    __slots__ = ("components", "weights")

    components: tuple[SecondOrder, ...]
    weights: np.ndarray

    def __init__(self, components: Sequence[Any], weights: Any = None) -> None:
        if not isinstance(components, (list, tuple)) or not components:
            raise ValueError(
                "components must be a list of at least one distribution, as demur.Beta. "
                f"Got {components if components == [] else type(components).__name__}."
            )
        found = [as_second_order(each) for each in components]
        for each, came in zip(found, components, strict=True):
            if each is None or not each._over_classes:
                raise TypeError(
                    "components must be Dirichlet, Beta, Uniform, Deltas or Mixture. "
                    f"Got {type(came).__name__}. For a set of members give their array to decompose."
                )
        self.components = tuple(each for each in found if each is not None)
        shapes = {each.shape for each in self.components}
        if len(shapes) > 1:
            raise ValueError(
                "components must be for the same inputs and classes. "
                f"Got shapes {', '.join(map(str, sorted(shapes)))}."
            )
        libraries = {arrays.library(each._source) for each in self.components}
        if len(libraries) > 1:
            raise TypeError(f"components must be of one library. Got {' and '.join(sorted(libraries))}.")
        self.weights = self._check_weights(weights)

    def _check_weights(self, weights: Any) -> np.ndarray:
        """Return the components' shares."""
        count = len(self.components)
        shares = np.ones(count) if weights is None else arrays.to_numpy(as_real_array("weights", weights))
        if shares.shape != (count,):
            raise ValueError(f"weights must have shape {(count,)}, one per component. Got {shares.shape}.")
        check_weight_values(shares.astype(np.float64), may_be_zero=False)
        return shares / shares.sum()

    def __repr__(self) -> str:
        return f"Mixture({list(self.components)!r}, weights={self.weights.tolist()})"

    @property
    def _source(self) -> Array:
        return max((each._source for each in self.components), key=arrays.is_double)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.components[0].shape

    @property
    def _stays(self) -> bool:
        return any(each._stays for each in self.components)

    @property
    def mean(self) -> Array:
        """The average: of the probability of outcome 1, or of all class probabilities."""
        parts = zip(self.weights.tolist(), self.components, strict=True)
        return self._to_result(sum(share * each.mean for share, each in parts if share > 0))
