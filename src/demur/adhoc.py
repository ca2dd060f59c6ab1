"""Common ad-hoc scores, to compare the measures with; in all of them higher means more uncertain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from demur import kernels
from demur.core import arrays
from demur.core.arrays import Array, ArrayLike
from demur.core.probabilities import own_variance, vote
from demur.core.state import Means
from demur.decompose import check_arguments, finish_result, join_results, split_inputs
from demur.measures import Decomposition
from demur.predictions import Members, Parametric, Prediction, as_prediction, choose_members_axis


def max_probability(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Array:
    """Return 1 minus the largest probability of the average prediction, in [0, 1 - 1/classes].

    Arguments as for ``decompose``. Hendrycks and Gimpel (2017) use the probability itself as a confidence.

    Examples
    --------
    >>> demur.max_probability(np.array([[[0.9, 0.1]], [[0.5, 0.5]]]))
    array([0.3])
    """

    def score(means: Means) -> Array:
        return 1 - means.xp.max(means.probabilities(), axis=-1)

    return _per_input("log", score, probs, logits, log_probs, weights, axis, class_axis, member_axis)


def margin(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Array:
    """Return 1 minus the lead of the most over the second most probable class of the average, in [0, 1].

    Arguments as for ``decompose``. With a single class the lead is 1.

    Examples
    --------
    >>> demur.margin(np.array([[[0.9, 0.1]], [[0.5, 0.5]]]))
    array([0.6])
    """

    def score(means: Means) -> Array:
        xp, p = means.xp, means.probabilities()
        if p.shape[-1] == 1:
            return xp.zeros_like(p[..., 0])
        ordered = xp.sort(p, axis=-1)
        return 1 - (ordered[..., -1] - ordered[..., -2])

    return _per_input("log", score, probs, logits, log_probs, weights, axis, class_axis, member_axis)


def variation_ratio(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Array:
    """Return the share of members that do not vote for the class with most votes (Freeman, 1965).

    Arguments as for ``decompose``. A member whose most probable classes tie shares its vote among them.

    Examples
    --------
    >>> demur.variation_ratio(np.array([[[0.9, 0.1]], [[0.2, 0.8]], [[0.7, 0.3]], [[0.6, 0.4]]]))
    array([0.25])
    """

    def score(means: Means) -> Array:
        votes = vote(means.xp, means.rule.probabilities(means.xp, means.reference)) + means.u
        return 1 - means.xp.max(votes, axis=-1)

    return _per_input("zero_one", score, probs, logits, log_probs, weights, axis, class_axis, member_axis)


def softmax_variance(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Array:
    """Return the variance of the probabilities over members, averaged over classes (Smith and Gal, 2018).

    Arguments as for ``decompose``. It is the epistemic part of ``measure="average", rule="brier"`` over the
    number of classes, and to second order mutual information with other weights for the classes.

    Examples
    --------
    >>> demur.softmax_variance(np.array([[[0.9, 0.1]], [[0.5, 0.5]]]))
    array([0.04])
    """

    def score(means: Means) -> Array:
        return means.xp.mean(variance(means), axis=-1)

    return _per_input("brier", score, probs, logits, log_probs, weights, axis, class_axis, member_axis)


def label_variance(
    probs: ArrayLike | Prediction | None = None,
    /,
    *,
    logits: ArrayLike | None = None,
    log_probs: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    axis: int = 0,
    class_axis: int = -1,
    member_axis: int | None = None,
) -> Decomposition:
    """Split the variance of each label's indicator by the law of total variance, label by label.

    For label y: total = p(1 - p) of the average prediction, aleatoric = mean of p(1 - p), epistemic =
    variance of p over members (Depeweg et al., 2018; Sale et al., 2024). Arguments as for ``decompose``.

    Returns
    -------
    Decomposition
        Each part has shape (..., classes), wherever the classes were.

    Examples
    --------
    >>> u = demur.label_variance(np.array([[[0.9, 0.1]], [[0.5, 0.5]]]))
    >>> u.aleatoric, u.epistemic
    (array([[0.17, 0.17]]), array([[0.04, 0.04]]))
    """

    def split(means: Means, members: Members) -> Decomposition:
        aleatoric, epistemic = _mean_own_variance(members), variance(means)
        return Decomposition(aleatoric + epistemic, aleatoric, epistemic)

    return _over_pieces("brier", split, probs, logits, log_probs, weights, axis, class_axis, member_axis)


def _mean_own_variance(members: Members) -> Array:
    """Return the mean of ``p (1 - p)`` over members, (inputs, classes)."""
    logits, weights = members.logits(), members.weights
    xp = arrays.namespace(logits)
    own = own_variance(xp, logits)
    if weights is None:
        return xp.mean(own, axis=0)
    return xp.sum(weights[..., None] * own, axis=0) / xp.sum(weights, axis=0)[..., None]


def variance(means: Means) -> Array:
    """Return the variance of the probabilities over members, from the sums of the Brier score."""
    return (means.au - means.a * means.u) / 2


def _per_input(
    rule: str, score: Callable[[Means], Array], probs: Any, logits: Any, log_probs: Any,
    weights: Any, axis: int, class_axis: int, member_axis: int | None,
) -> Array:  # fmt: skip
    """Return a score of each input from averages over members."""

    def split(means: Means, members: Members) -> Decomposition:
        value = score(means)
        return Decomposition(value, value, value)

    return _over_pieces(rule, split, probs, logits, log_probs, weights, axis, class_axis, member_axis).total


def _over_pieces(
    rule: str, split: Callable[[Means, Members], Decomposition], probs: Any, logits: Any, log_probs: Any,
    weights: Any, axis: int, class_axis: int, member_axis: int | None,
) -> Decomposition:  # fmt: skip
    """Apply a function of averages to parts of the inputs, and put the results together."""
    prediction = as_prediction(probs, logits, log_probs)
    if isinstance(prediction, Parametric):
        raise ValueError(f"This score needs predictions of classes. Got {prediction!r}.")
    axis = choose_members_axis(axis, member_axis)
    members, _, loss, _ = check_arguments(
        prediction, None, None, "pairwise", rule, weights, None, axis, class_axis
    )  # fmt: skip
    parts = [part for part, _ in split_inputs(members, loss, 1, [])]
    found = [split(kernels.state_of(part, loss, 1).means(), part) for part in parts]
    return finish_result(join_results(found), members, 1.0)
