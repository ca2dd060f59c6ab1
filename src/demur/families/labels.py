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
        return xp.sum(_apart(terms), axis=-1)

    def entropy(self, xp: Any, logits: Array) -> Array:
        return xp.sum(super().entropy(xp, _apart(logits)), axis=-1)

    def reference(self, xp: Any, logits: Array) -> Array:
        return _together(super().reference(xp, _apart(logits)))

    def probabilities(self, xp: Any, reference: Array) -> Array:
        return _together(LOG.probabilities(xp, _apart(reference)))

    def as_given(self, average: Array) -> Array:
        return average[..., 1::2]

    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        lost = None if lost is None else _apart(lost)
        return _flattened(LOG.terms(xp, _apart(logits), _apart(chosen), lost))

    def between(self, xp: Any, source: Array, reference: Array) -> Terms:
        return _flattened(LOG.between(xp, _apart(source), _apart(reference)))

    def likelihood(self, xp: Any, terms: Terms, reference: Array) -> Array | None:
        split = Terms(*(None if part is None else _apart(part) for part in terms))
        return _together(LOG.likelihood(xp, split, _apart(reference)))

    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        mean = None if mean is None else _apart(mean)
        return _flattened(LOG.mixture(xp, _apart(a), _apart(reference), mean))


def _apart(array: Array) -> Array:
    """Return (..., labels, 2) for (..., 2 labels)."""
    return array.reshape((*array.shape[:-1], array.shape[-1] // 2, 2))


def _together(array: Array) -> Array:
    """Return (..., 2 labels) for (..., labels, 2)."""
    return array.reshape((*array.shape[:-2], 2 * array.shape[-2]))


def _flattened(terms: Terms) -> Terms:
    """Return terms with the labels' classes on one axis."""
    return Terms(*(None if part is None else _together(part) for part in terms))
