"""Yes or no: one label, or several independent ones."""

from __future__ import annotations

from typing import Any

from demur.core import arrays
from demur.core.arrays import Array
from demur.predictions.categorical import Categorical, raise_if_bad
from demur.predictions.parametric import Parametric, as_real_array, find_members_axis
from demur.predictions.places import Places


class Bernoulli(Categorical):
    """Predictions of yes or no, by one probability or logit: two classes, absent and present.

    Parameters
    ----------
    probs, logits
        Exactly one of them: the probability of yes, or its logit ``log(p / (1 - p))``. Shape (members, ...),
        without an axis of classes. A probability of 0 or 1, or an infinite logit, is a certainty.

    Examples
    --------
    >>> demur.decompose(demur.Bernoulli(np.array([[0.9, 0.5], [0.1, 0.5]]))).epistemic.round(3)
    array([0.879, 0.   ])
    """

    __slots__ = ()
    _outcome_axes = 0

    def __init__(self, probs: Any = None, *, logits: Any = None) -> None:
        kind, pairs = _two_classes("Bernoulli", probs, logits)
        super().__init__(**{kind: pairs})

    def __repr__(self) -> str:
        return f"Bernoulli({self.kind}, shape={self.shape[:-1]}, {self.precision})"

    def _members_axis(self, axis: int) -> int:
        """Return the members' axis, counted from the front, of what the user gave."""
        return find_members_axis("Bernoulli", axis, self.shape[:-1], len(self.shape) - 1)


class MultiLabel(Parametric):
    """Predictions of several labels, each present or absent independently of the others.

    Parameters
    ----------
    probs, logits
        Exactly one of them: the probability of each label, or its logit. Shape (members, ..., labels).

    Notes
    -----
    Entropies and K add over labels. So do the I and M that are returned, and there it matters: the sum of
    the labels' I is an upper bound of the I of all labels together, and that of M a lower bound. For one
    result per label, give the same array to ``Bernoulli``.

    Examples
    --------
    >>> p = np.array([[[0.9, 0.5, 0.2]], [[0.1, 0.5, 0.2]]])     # two members, one input, three labels
    >>> demur.decompose(demur.MultiLabel(p)).epistemic.round(3)
    array([0.879])
    """

    __slots__ = ()
    _outcome_axes = 1

    def __init__(self, probs: Any = None, *, logits: Any = None) -> None:
        way, pairs = _two_classes("MultiLabel", probs, logits)
        if pairs.ndim < 2:
            raise ValueError(f"{way} must have the labels last. Got one number. Use Bernoulli.")
        self._fill_with("multi-label", (way,), pairs.reshape((*pairs.shape[:-2], 2 * pairs.shape[-2])))

    def _to_logits(self, ignored: Array | None = None, places: Places | None = None) -> Array:
        values = self.values
        pairs = Categorical(**{self.names[0]: values.reshape((*values.shape[:-1], values.shape[-1] // 2, 2))})
        found = pairs._to_logits(None if ignored is None else ignored[..., None], places).reshape(
            values.shape
        )
        xp = arrays.namespace(found)
        return found if ignored is None else xp.where(ignored[..., None], xp.zeros_like(found), found)


def _two_classes(kind: str, probs: Any, logits: Any) -> tuple[str, Array]:
    """Return which way a label was given, and its two classes on a new last axis."""
    if (probs is None) == (logits is None):
        came = "none of them" if probs is None else "both"
        raise ValueError(f"{kind} takes exactly one of probs and logits. Got {came}.")
    if logits is not None:
        z = as_real_array("logits", logits)
        z = z if arrays.is_floating(z) else z * 1.0
        xp = arrays.namespace(z)
        nothing = xp.zeros_like(z)
        return "logits", xp.stack([xp.minimum(-z, nothing), xp.minimum(z, nothing)], axis=-1)
    p = as_real_array("probs", probs)
    p = p if arrays.is_floating(p) else p * 1.0
    xp = arrays.namespace(p)
    if not arrays.is_traced(p):
        for bad in (p < 0, p > 1):
            expected, advice = "probs must be from 0 to 1", "For logits pass logits=."
            raise_if_bad(xp, bad[..., None], p[..., None], expected, advice)
    return "probs", xp.stack([1 - p, p], axis=-1)
