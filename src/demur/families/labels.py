"""Several labels at once, each present or absent independently of the others."""

from __future__ import annotations

from typing import Any, ClassVar

from demur.core.rules import LOG, Array, LogRule, Terms


class MultiLabelRule(LogRule):
    """The log rule for each label's two classes; everything adds over labels.

    Predictions are two logits per label, absent and present, side by side on the last axis. The sum of the
    labels' I is an upper bound of the I of all of them together, and so is the entropy of the weights: what
    the outcome says about the member is no more than there is to say. The smaller stands for I.
    """

    caps: ClassVar[bool] = True

    def shape_as_given(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] // 2)

    def by_outcome(self, xp: Any, terms: Array) -> Array:
        return xp.sum(_split_labels(terms), axis=-1)

    def entropy(self, xp: Any, logits: Array) -> Array:
        return xp.sum(super().entropy(xp, _split_labels(logits)), axis=-1)

    def reference(self, xp: Any, logits: Array) -> Array:
        return _join_labels(super().reference(xp, _split_labels(logits)))

    def probabilities(self, xp: Any, reference: Array) -> Array:
        return _join_labels(LOG.probabilities(xp, _split_labels(reference)))

    def as_given(self, average: Array) -> Array:
        return average[..., 1::2]

    def terms(self, xp: Any, logits: Array, chosen: Array, lost: Array | None = None) -> Terms:
        lost = None if lost is None else _split_labels(lost)
        return _flatten_terms(LOG.terms(xp, _split_labels(logits), _split_labels(chosen), lost))

    def terms_between(self, xp: Any, source: Array, reference: Array) -> Terms:
        return _flatten_terms(LOG.terms_between(xp, _split_labels(source), _split_labels(reference)))

    def likelihood(self, xp: Any, terms: Terms, reference: Array) -> Array | None:
        split = Terms(*(None if part is None else _split_labels(part) for part in terms))
        return _join_labels(LOG.likelihood(xp, split, _split_labels(reference)))

    def mixture(self, xp: Any, a: Array, reference: Array, mean: Array | None = None) -> Terms:
        mean = None if mean is None else _split_labels(mean)
        return _flatten_terms(LOG.mixture(xp, _split_labels(a), _split_labels(reference), mean))


def _split_labels(array: Array) -> Array:
    """Return (..., labels, 2) for (..., 2 labels)."""
    return array.reshape((*array.shape[:-1], array.shape[-1] // 2, 2))


def _join_labels(array: Array) -> Array:
    """Return (..., 2 labels) for (..., labels, 2)."""
    return array.reshape((*array.shape[:-2], 2 * array.shape[-2]))


def _flatten_terms(terms: Terms) -> Terms:
    """Return terms with the labels' classes on one axis."""
    return Terms(*(None if part is None else _join_labels(part) for part in terms))
