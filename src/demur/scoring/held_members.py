"""Members of one batch that are held until all are there, since sums of them would not be enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.rules import LOG, Rule
from demur.decompose import decompose
from demur.families import FAMILIES
from demur.measures import Decomposition, Measure
from demur.moments import Moments
from demur.predictions import Categorical, MultiLabel, NormalInverseGamma, SecondOrder, arrays


class HeldMembers:
    """Predictions of members whose average has to be integrated, as that of Gaussians, or that were rounded.

    Parameters
    ----------
    moments
        Of the same members, for their average.
    chunks
        Pairs of predictions, (members, ...), and weights or None.
    groups
        Of members, for standard errors.
    rounding, rule
        How far probabilities may be off, or None; and the rule, as it was requested.
    """

    def __init__(
        self,
        moments: Moments,
        chunks: list[tuple[Any, Any]],
        groups: int | None,
        rounding: float | str | None = None,
        rule: str = "log",
    ) -> None:
        self.rule: Rule = moments.rule
        self.mean, self._groups = moments.mean, groups
        self._rounded: dict[str, Any] = {} if rounding is None else {"rounding": rounding, "rule": rule}
        predictions = [prediction for prediction, _ in chunks]
        self._whole = predictions[0].with_values(np.concatenate([each.values for each in predictions]))
        self._weights = join_weights(chunks)

    def decompose(
        self, measure: str | Measure, *, unbiased: bool, stderr: bool, base: float | None
    ) -> Decomposition:
        """Return the decomposition of each input's uncertainty, as `Moments.decompose` does."""
        return decompose(
            self._whole, measure=measure, weights=self._weights, unbiased=unbiased, stderr=stderr, base=base,
            groups=self._groups, **self._rounded,
        )  # fmt: skip


class HeldNumbers:
    """Numbers that members predict without a density, `demur.Points` or `demur.Draws`.

    Parameters
    ----------
    chunks
        Pairs of predictions, (members, ...), and weights or None.
    rule
        As it was requested; only "log", the default, goes with numbers.
    groups
        Of members, for standard errors.
    """

    rule = None

    def __init__(self, chunks: list[tuple[Any, Any]], rule: str, groups: int | None) -> None:
        first = chunks[0][0]
        self._rule = rule
        values = np.concatenate([arrays.to_numpy(each.values) for each, _ in chunks])
        self._whole = type(first)(values, kernel=first.kernel, scale=first.scale)
        self._weights, self._groups = join_weights(chunks), groups
        draws = values.mean(axis=1) if is_draws(first) else values
        self.mean = np.average(draws.astype(float), axis=0, weights=self._weights)

    def decompose(
        self, measure: str | Measure, *, unbiased: bool, stderr: bool, base: float | None
    ) -> Decomposition:
        """Return the decomposition of each input's uncertainty, in the unit of the numbers."""
        found = decompose(
            self._whole, measure=measure, rule=self._rule, weights=self._weights, unbiased=unbiased,
            stderr=stderr, base=base, groups=self._groups,
        )  # fmt: skip
        return found.map(arrays.to_numpy)


class HeldDistribution:
    """A distribution over predictions, as evidential networks predict it: it has no members."""

    def __init__(self, distribution: SecondOrder, rule: str) -> None:
        self._distribution, self._rule = distribution, rule
        over_numbers = isinstance(distribution, NormalInverseGamma)
        self.rule: Rule = FAMILIES["Gaussian"] if over_numbers else LOG
        mean = arrays.to_numpy(distribution.mean)
        self.mean = mean if over_numbers or mean.ndim == 2 else np.stack([1 - mean, mean], axis=-1)

    def decompose(
        self, measure: str | Measure, *, unbiased: bool, stderr: bool, base: float | None
    ) -> Decomposition:
        """Return the decomposition of each input's uncertainty, in closed form."""
        if unbiased or stderr:
            raise ValueError(
                f"unbiased and stderr correct for few members, and {self._distribution!r} has none: its "
                "values are exact. Leave them out."
            )
        found = decompose(self._distribution, measure=measure, rule=self._rule, base=base)
        return found.map(arrays.to_numpy)


def normalise(prediction: Any) -> Any:
    """Return rounded probabilities that sum to 1, as exact ones; other predictions as they are."""
    if prediction.kind == "probs":
        values = np.asarray(prediction.values, np.float64)
        sums = values.sum(axis=-1, keepdims=True)
        prediction = Categorical(probs=values / np.where(sums > 0, sums, 1.0))
    elif isinstance(prediction, MultiLabel):
        prediction = prediction.with_values(prediction.values)
    else:
        return prediction
    prediction._rounding = 0.0
    return prediction


def is_draws(prediction: Any) -> bool:
    """Tell whether the second axis of predicted numbers is draws, not inputs."""
    return type(prediction).__name__ == "Draws"


def join_weights(chunks: list[tuple[Any, Any]]) -> np.ndarray | None:
    """Return the weights of all members; None where no chunk has any."""
    if all(weights is None for _, weights in chunks):
        return None
    return np.concatenate([np.ones(len(p.values)) if w is None else np.asarray(w, float) for p, w in chunks])
