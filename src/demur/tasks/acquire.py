"""Which inputs to label next: those with the highest scores, by themselves or as a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.tasks.estimate import check_scores, generator


def acquire(
    scores: Any,
    k: int,
    *,
    labelled: Any = None,
    power: float | None = None,
    features: Any = None,
    seed: int = 0,
) -> np.ndarray:
    r"""Return the k inputs to label next, the most wanted first.

    Without options these are the k highest scores. Such a batch may ask the same question k times, since
    similar inputs have similar scores. Two options draw it at random instead, one input after
    the other, with probabilities in proportion to

    .. math:: s_x^{\mathrm{power}} \cdot \min_{z} \| f_x - f_z \|^2

    where the second factor is there with features only, and z are the inputs labelled or drawn before.
    ``power`` alone is the power acquisition of Kirsch et al. (2023), "Stochastic batch acquisition".
    ``features`` is k-means++ (Arthur and Vassilvitskii, 2007) with the scores as weights: the seeding of
    Zhdanov (2019), "Diverse mini-batch active learning", sampled as in BADGE (Ash et al., 2020), whose first
    input is that with the highest score too.

    Parameters
    ----------
    scores : (inputs,) array
        How much each input is wanted, as its uncertainty; infinity is above every finite score.
    k : int
        How many.
    labelled : (inputs,) array of bool, or array of int, optional
        Inputs that have a label already, marked or listed: they are not returned.
    power : float, optional
        Draw by this power of the score, which must then not be negative: 0 draws any input, 1 is the
        paper's choice, large powers take the highest scores. With features it is 1 unless given.
    features : (inputs, features) array, optional
        Draw inputs that differ in these, as a network's last hidden layer.
    seed : int
        Seed of the draws and of the order of equal scores, which is random.

    Returns
    -------
    indices : (k,) array of int
        Infinite scores come before all others, and scores of 0 or copies of what was drawn last.

    Examples
    --------
    >>> demur.tasks.acquire([0.1, 0.9, 0.4, np.inf], 2)
    array([3, 1])
    >>> demur.tasks.acquire([0.1, 0.9, 0.4, np.inf], 2, labelled=[3])
    array([1, 2])
    >>> places = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 5.0]])         # the first two are the same input
    >>> demur.tasks.acquire([0.9, 0.8, 0.1], 2, features=places)
    array([0, 2])
    """
    values = check_scores("scores", scores)
    free = find_unlabelled(len(values), labelled, k)
    rng = generator(seed)
    chance = rng.permutation(len(values))
    if power is None and features is None:
        return rank_free(free, values, chance)[:k]
    weights = _log_weights(values, 1.0 if power is None else power)
    infinite = values == np.inf
    if features is None:
        # The k largest of these are k draws one after the other (Kool, van Hoof and Welling, 2019).
        return rank_free(free, infinite, weights + rng.gumbel(size=len(values)), values, chance)[:k]
    points = _check_features(features, len(values))
    picked = [int(rank_free(free, values, chance)[0])]
    known = np.flatnonzero(~free).tolist()
    distance = np.full(len(values), np.inf)
    for place in known:
        np.minimum(distance, _squared_distance(points, place), out=distance)
    while len(picked) < k:
        free[picked[-1]] = False
        np.minimum(distance, _squared_distance(points, picked[-1]), out=distance)
        with np.errstate(divide="ignore"):
            drawn = weights + np.log(distance) + rng.gumbel(size=len(values))
        picked.append(int(rank_free(free, infinite, drawn, values, chance)[0]))
    return np.array(picked)


def rank_free(free: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """Return the free inputs, highest first by the first key, where equal by the next ones."""
    places = np.flatnonzero(free)
    order = np.lexsort([key[places] for key in reversed(keys)])
    return places[order[::-1]]


def _log_weights(scores: np.ndarray, power: float) -> np.ndarray:
    """Return the logarithm of a power of scores; 0 for infinite ones, which are among themselves."""
    if not (isinstance(power, (int, float)) and 0 <= power < np.inf):
        raise ValueError(f"power must be a number from 0 up, as 1.0. Got {power!r}.")
    if (scores < 0).any():
        raise ValueError(
            f"scores must not be negative to draw by. Got {scores.min():g} at input {scores.argmin()}. "
            "Leave power and features out, or shift the scores."
        )
    if power == 0:
        return np.zeros_like(scores)
    with np.errstate(divide="ignore"):
        return power * np.log(np.where(np.isinf(scores), 1.0, scores))


def _squared_distance(points: np.ndarray, place: int) -> np.ndarray:
    """Return how far all points are from one of them: exactly 0 for its copies."""
    return np.sum((points - points[place]) ** 2, axis=1)


def find_unlabelled(number: int, labelled: Any, k: int) -> np.ndarray:
    """Return which inputs may be taken; raise unless there are k of them."""
    free = np.ones(number, dtype=bool)
    if labelled is not None:
        given = to_numpy(as_array(labelled))
        if given.dtype.kind == "b" and given.shape == (number,):
            free = ~given
        elif given.size and not (given.ndim == 1 and given.dtype.kind in "iu"):
            raise ValueError(
                f"labelled must be True or False for each of {number} inputs, or a list of indices. "
                f"Got {given.dtype} of shape {given.shape}."
            )
        elif given.size:
            if given.min() < 0 or given.max() >= number:
                worst = given.min() if given.min() < 0 else given.max()
                raise ValueError(f"labelled must be indices from 0 to {number - 1}. Got {worst}.")
            free[given] = False
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k must be a positive integer. Got {k!r}.")
    if k > free.sum():
        raise ValueError(
            f"k must be at most the number of inputs without a label, {free.sum()} of {number}. Got {k}."
        )
    return free


def _check_features(features: Any, number: int) -> np.ndarray:
    """Return features as float64, a row for each input."""
    values = to_numpy(as_array(features))
    if values.ndim != 2 or len(values) != number or values.dtype.kind not in "fiub":
        raise ValueError(
            f"features must have shape ({number}, features), a row for each score. "
            f"Got {values.dtype} of shape {values.shape}."
        )
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise ValueError(f"features must be finite. Got NaN or infinity, first at input {row}.")
    return values
