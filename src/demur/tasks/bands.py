"""Confidence bands of curves: where the curve of infinitely many inputs would be."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from demur.tasks.detection import Detection
from demur.tasks.kept_accuracy import accuracy_intervals
from demur.tasks.selective import Selective


class Band(NamedTuple):
    """Lower and upper end at some places."""

    at: np.ndarray
    low: np.ndarray
    high: np.ndarray


def roc_band(found: Detection, at: Any = None, *, confidence: float = 0.95) -> Band:
    """Return a band that holds the whole true ROC curve with this confidence: simultaneous, not pointwise.

    Both distribution functions of the score are everywhere within sqrt(log(2 / a) / 2n) of the observed ones
    with probability 1 - a (Massart, 1990), whatever they are and however few inputs there are. So each point
    of the curve is within a box about the observed one, and the band is what all boxes cover.

    With clusters, n is their number G, or that of equally large ones, and the bound is a little wider: an
    observed distribution function is the mean, over all ways to draw one input of each cluster, of functions
    of G independent inputs. Its distance is at most the mean of theirs, which Massart's inequality bounds
    however inputs of a cluster depend on each other. Clusters of unequal size are taken for 1 / sum w^2 equal
    ones of shares w, which is an approximation; a simulation in the tests holds the band to its confidence.

    Parameters
    ----------
    found : Detection
        What ``detection`` or ``misclassification`` returned.
    at : array, optional
        False positive rates; those of the curve by default.
    confidence : float
        Confidence level of the whole band.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> d = demur.tasks.detection(rng.normal(0, 1, 500), rng.normal(1, 1, 500))
    >>> band = demur.tasks.roc_band(d, [0.2, 0.5])
    >>> band.low.round(2), band.high.round(2)
    (array([0.36, 0.74]), array([0.7 , 0.96]))
    """
    if found.independent is None:
        each = 1 - math.sqrt(confidence)  # of each of two independent samples
        aside, along = (math.sqrt(math.log(2 / each) / (2 * n)) for n in (found.negatives, found.positives))
    else:
        each = (1 - confidence) / 2  # a cluster may have inputs of both kinds
        aside, along = (_bound_mean_of_distances(each) / math.sqrt(n) for n in found.independent)
    curve = found.curve
    places = curve.fpr if at is None else np.asarray(at, dtype=float)
    # Rates are ranks: the highest TPR up to a place, the lowest one from a place on.
    above = np.searchsorted(curve.fpr, places + aside, side="right") - 1
    below = np.searchsorted(curve.fpr, places - aside, side="left")
    high, low = curve.tpr[above] + along, curve.tpr[below] - along
    low = np.where(places < 1, np.maximum(low, 0.0), 1.0)  # where every input raises an alarm, all are found
    return Band(places, low, np.minimum(high, 1.0))


def _bound_mean_of_distances(level: float) -> float:
    """Return what a mean of distances that Massart's inequality bounds exceeds with probability `level`.

    Times sqrt(n). If P(D > t) <= 2 exp(-2 t^2) and X is a conditional mean of D, then by Markov's and
    Jensen's inequalities P(X > t) <= E(D - s)+ / (t - s) for every s < t. The best s is Massart's own bound,
    and it leaves t = s + sqrt(pi / 2) erfc(sqrt(2) s) / level.
    """
    own = math.sqrt(math.log(2 / level) / 2)
    return own + math.sqrt(math.pi / 2) * math.erfc(math.sqrt(2) * own) / level


def accuracy_band(found: Selective, at: Any = None, *, confidence: float = 0.95) -> Band:
    """Return exact (Clopper-Pearson) intervals of the accuracy of what is kept: pointwise, each by itself.

    With clusters they are those of ``Selective.accuracy_at``: over draws of whole clusters.

    Parameters
    ----------
    found : Selective
        What ``selective`` returned.
    at : array of int, optional
        Numbers of inputs kept, the most certain first; 1 to all by default.
    confidence : float
        Confidence level of each interval by itself.

    Examples
    --------
    >>> s = demur.tasks.selective([0.1, 0.2, 0.8, 0.9], [True, True, True, False])
    >>> demur.tasks.accuracy_band(s, [3, 4]).low.round(3)
    array([0.292, 0.194])
    """
    from scipy.special import betaincinv

    accuracy = found.curve.accuracy
    kept = np.arange(1, len(accuracy) + 1) if at is None else np.asarray(at)
    if np.any(kept < 1) or np.any(kept > len(accuracy)):
        raise ValueError(
            f"at must be numbers of inputs kept, from 1 to {len(accuracy)}. Got {kept.min()} to {kept.max()}."
        )
    if found.together is not None:
        _, low, high = accuracy_intervals(found.right, found.wrong, kept, confidence, found.together)
        return Band(kept / len(accuracy), low, high)
    right = accuracy[kept - 1] * kept  # not whole where inputs with the same score are kept in part
    whole = np.rint(right)
    right = np.where(np.abs(right - whole) < 1e-9 * kept, whole, right)
    tail, wrong = (1 - confidence) / 2, kept - right
    with np.errstate(invalid="ignore"):  # of none and of all, which are set apart
        low, high = betaincinv(right, wrong + 1, tail), betaincinv(right + 1, wrong, 1 - tail)
    return Band(kept / len(accuracy), np.where(right > 0, low, 0.0), np.where(wrong > 0, high, 1.0))


def best_accuracy(found: Selective, at: Any = None) -> np.ndarray:
    """Return the accuracy of a ranking with all errors last (the oracle), for numbers of inputs kept.

    Examples
    --------
    >>> demur.tasks.best_accuracy(demur.tasks.selective([0.9, 0.2, 0.8], [True, True, False]))
    array([1.        , 1.        , 0.66666667])
    """
    number, right = int(np.sum(found.right + found.wrong)), int(np.sum(found.right))
    kept = np.arange(1, number + 1) if at is None else np.asarray(at)
    return np.minimum(right, kept) / kept
