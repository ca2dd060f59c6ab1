"""Yes or no: one label, or several independent ones."""

from __future__ import annotations

from typing import Any

from demur.core import arrays
from demur.core.arrays import Array
from demur.core.rounding import SATURATED, check_rounding
from demur.predictions.categorical import Categorical, raise_if_bad
from demur.predictions.parametric import Parametric, as_real_array, find_members_axis
from demur.predictions.places import Places


class Bernoulli(Categorical):
    """Predictions of yes or no, by one probability or logit: two classes, absent and present.

    Parameters
    ----------
    probs, logits
        Exactly one of them: the probability of yes, or its logit ``log(p / (1 - p))``. Shape (members, ...),
        without an axis of classes. An infinite logit is a certainty.
    rounding
        How far each probability may be off, as for ``decompose``. By default numbers are exact, except 0 and
        1: a floating-point sigmoid rounds to them long before anything is certain, so they count as rounded
        to their type (float32: off by up to 6e-8), and K, I and M are the least that fit. 0 says that 0 and
        1 are exact, as integers and booleans are. Standard errors, the unbiased average, given models,
        ``Moments`` and ``jax.jit`` take them as exact, too.

    Examples
    --------
    >>> demur.decompose(demur.Bernoulli(np.array([[0.9, 0.5], [0.1, 0.5]]))).epistemic.round(3)
    array([0.879, 0.   ])
    >>> saturated = np.array([[1.0], [0.9999999]], dtype=np.float32)
    >>> bool(demur.decompose(demur.Bernoulli(saturated)).epistemic < 1e-7)
    True
    >>> demur.decompose(demur.Bernoulli(saturated, rounding=0)).epistemic
    array([inf], dtype=float32)
    """

    __slots__ = ()
    _outcome_axes = 0

    def __init__(self, probs: Any = None, *, logits: Any = None, rounding: float | str | None = None) -> None:
        kind, pairs, width = _two_classes("Bernoulli", probs, logits, rounding)
        super().__init__(**{kind: pairs})
        self._rounding = width

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
    rounding
        As for ``Bernoulli``: by default probabilities of 0 and 1 count as rounded to their type.

    Notes
    -----
    Entropies and K add over labels. The I of all labels together does not: the sum of the labels' I is an
    upper bound of it, and so is the entropy of the members' weights (the logarithm of their number, if they
    weigh the same). The smaller is returned as I, and K - I as M, a lower bound. ``demur.information`` gives
    the I of all labels together. For one result per label, give the same array to ``Bernoulli``.

    Examples
    --------
    >>> p = np.array([[[0.9, 0.5, 0.2]], [[0.1, 0.5, 0.2]]])     # two members, one input, three labels
    >>> demur.decompose(demur.MultiLabel(p)).epistemic.round(3)
    array([0.879])
    """

    __slots__ = ("_rounding",)
    _outcome_axes = 1

    def __init__(self, probs: Any = None, *, logits: Any = None, rounding: float | str | None = None) -> None:
        way, pairs, self._rounding = _two_classes("MultiLabel", probs, logits, rounding)
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


def _two_classes(
    kind: str, probs: Any, logits: Any, rounding: float | str | None
) -> tuple[str, Array, float | str | None]:
    """Return which way a label was given, its two classes on a new last axis, and how it was rounded."""
    if (probs is None) == (logits is None):
        came = "none of them" if probs is None else "both"
        raise ValueError(f"{kind} takes exactly one of probs and logits. Got {came}.")
    if logits is not None:
        if rounding is not None:
            raise ValueError("rounding goes with probabilities. Got logits. Leave rounding out.")
        z = as_real_array("logits", logits)
        z = z if arrays.is_floating(z) else z * 1.0
        xp = arrays.namespace(z)
        nothing = xp.zeros_like(z)
        return "logits", xp.stack([xp.minimum(-z, nothing), xp.minimum(z, nothing)], axis=-1), None
    p = as_real_array("probs", probs)
    exact = not arrays.is_floating(p)
    width = None if rounding is None else check_rounding(rounding, arrays.type_name(p))
    p = p if arrays.is_floating(p) else p * 1.0
    xp = arrays.namespace(p)
    if not arrays.is_traced(p):
        for bad in (p < 0, p > 1):
            expected, advice = "probs must be from 0 to 1", "For logits pass logits=."
            if bool(xp.all((p >= 0) & (p <= 100))):
                advice = f"Divide percentages by 100. {advice}"
            raise_if_bad(xp, bad[..., None], p[..., None], expected, advice)
        if rounding is None:
            width = 0.0 if exact else SATURATED if bool(xp.any((p == 0) | (p == 1))) else None
    return "probs", xp.stack([1 - p, p], axis=-1), width
