"""Several labels at once, each present or absent independently of the others."""

from __future__ import annotations

from typing import Any

from demur.core.rules import LOG, Array, Log, Terms


class Labels(Log):
    """The log rule for each label's two classes; everything adds over labels.

    Predictions are two logits a label, absent and present, side by side on the last axis.
    """

    def shown(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] // 2)

    def by_outcome(self, xp: Any, terms: Array) -> Array:
        return xp.sum(apart(terms), axis=-1)

    def entropy(self, xp: Any, logits: Array) -> Array:
        return xp.sum(super().entropy(xp, apart(logits)), axis=-1)

    def reference(self, xp: Any, logits: Array) -> Array:
        return together(super().reference(xp, apart(logits)))

    def probabilities(self, xp: Any, reference: Array) -> Array:
        return together(LOG.probabilities(xp, apart(reference)))

    def as_given(self, average: Array) -> Array:
        return average[..., 1::2]

    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        lost = None if lost is None else apart(lost)
        return flattened(LOG.terms(xp, apart(logits), apart(chosen), lost))

    def between(self, xp: Any, source: Array, reference: Array) -> Terms:
        return flattened(LOG.between(xp, apart(source), apart(reference)))

    def likelihood(self, xp: Any, terms: Terms, reference: Array) -> Array | None:
        split = Terms(*(None if part is None else apart(part) for part in terms))
        return together(LOG.likelihood(xp, split, apart(reference)))

    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        mean = None if mean is None else apart(mean)
        return flattened(LOG.mixture(xp, apart(a), apart(reference), mean))


def apart(array: Array) -> Array:
    """Return (..., labels, 2) for (..., 2 labels)."""
    return array.reshape((*array.shape[:-1], array.shape[-1] // 2, 2))


def together(array: Array) -> Array:
    """Return (..., 2 labels) for (..., labels, 2)."""
    return array.reshape((*array.shape[:-2], 2 * array.shape[-2]))


def flattened(terms: Terms) -> Terms:
    """Return terms with the labels' classes on one axis."""
    return Terms(*(None if part is None else together(part) for part in terms))
