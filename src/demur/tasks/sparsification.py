"""How far the error of regression falls when the least certain predictions are left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from demur.core.arrays import as_array, to_numpy
from demur.tasks.clusters import Clusters, check_clusters, spread_of_clusters
from demur.tasks.display import Displayed, Rows
from demur.tasks.estimate import (
    Estimate,
    IntervalOptions,
    check_scores,
    generator,
    percentile,
    resampling_progress,
)
from demur.tasks.levels import curve_influence

_Root = Callable[[np.ndarray], np.ndarray]


class _ErrorKind(NamedTuple):
    """What is averaged over the inputs kept, what is taken of the average, and the derivative of that."""

    loss: _Root
    root: _Root
    slope: _Root


_ERRORS = {
    # Where the mean is 0 all losses so far are 0, and so is the influence of each.
    "rmse": _ErrorKind(np.square, np.sqrt, lambda mean: 0.5 / np.sqrt(np.where(mean > 0, mean, np.inf))),
    "mae": _ErrorKind(np.abs, lambda mean: mean, np.ones_like),
}


class Remaining(NamedTuple):
    """Error of what is kept over the fraction kept: a point for each number of inputs kept."""

    kept: np.ndarray
    error: np.ndarray


@dataclass(frozen=True, repr=False)
class Sparsification(Displayed):
    """Error over the fraction kept, the most certain first.

    Inputs with the same score are equally likely to be kept first: squared (or absolute) errors are those
    expected over random orders of them.

    Parameters
    ----------
    ause : Estimate
        Area between the curve and that of the oracle, as a share of the error of all inputs: 0 is the best
        possible order. The area is the mean over 1, 2, ..., n inputs kept.
    curve : Remaining
        Inputs in the order of their scores.
    oracle : Remaining
        Inputs in the order of their errors, which no score can beat.
    """

    ause: Estimate
    curve: Remaining = field(repr=False, compare=False)
    oracle: Remaining = field(repr=False, compare=False)

    def _display(self) -> tuple[str, Rows, list[str]]:
        title = f"Sparsification: {len(self.curve.kept):,} inputs; {100 * self.ause.confidence:g} % interval"
        return title, [["ause", str(self.ause)]], []

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the area under its name."""
        return {"ause": self.ause.to_dict()}


def sparsification(
    scores: Any,
    errors: Any,
    *,
    error: str = "rmse",
    confidence: float = 0.95,
    interval: str = "auto",
    resamples: int = 2000,
    seed: int = 0,
    clusters: Any = None,
) -> Sparsification:
    """Return how the error falls when only the most certain predictions of numbers are kept.

    The area under the sparsification error of Ilg et al. (2018), "Uncertainty estimates and multi-hypotheses
    networks for optical flow", with the error of all inputs as the unit. For predicted classes see
    ``selective``.

    Parameters
    ----------
    scores : (inputs,) array
        Uncertainty of each input, higher = less certain; infinity is above every finite score.
    errors : (inputs,) array
        Prediction minus true value, or its size; finite, and not all 0.
    error : "rmse" or "mae"
        Root of the mean square of the errors kept, or their mean size.
    confidence, resamples, seed
        Confidence level of the interval, number of bootstrap resamples and their seed.
    interval : "auto", "bootstrap" or "asymptotic"
        Quantiles over resampled inputs, or the normal interval of the influence function; "auto" resamples
        up to 5,000 inputs.
    clusters : (inputs,) array, optional
        A label for each input, as the image that a pixel is of: the interval is then over draws of whole
        clusters, by the influence function unless "bootstrap" is asked for.

    Examples
    --------
    >>> s = demur.tasks.sparsification([0.1, 0.2, 0.3, 0.9], [0.0, 1.0, -1.0, 2.0], error="mae")
    >>> s.curve.error
    array([0.        , 0.5       , 0.66666667, 1.        ])
    >>> float(s.ause)
    0.0
    """
    if error not in _ERRORS:
        raise ValueError(f"error must be one of {', '.join(map(repr, _ERRORS))}. Got {error!r}.")
    options = IntervalOptions(confidence, interval, resamples, seed=seed)
    values = check_scores("scores", scores)
    off = _check_errors(errors, len(values))
    kind = _ERRORS[error]
    loss = kind.loss(off)
    ranked, best = order_losses(values, loss), order_losses(np.abs(off), loss)
    curve, oracle = (remaining_error(each, kind.root) for each in (ranked, best))
    value = area_between(curve, oracle)
    number, together = len(loss), check_clusters(clusters, len(loss))
    if options.uses_bootstrap(number) if together is None else interval == "bootstrap":
        # Resamples whose predictions are all right have no error to be a share of.
        drawn = _bootstrap_area(ranked, best, kind.root, options, together)
        freedom = np.inf if together is None else together.number - 1
        ause = percentile(value, drawn[~np.isnan(drawn)], confidence, freedom)
    else:
        half = spread_of_clusters(_influence(values, off, kind) / number, together).half(confidence)
        ause = Estimate(value, max(value - half, 0.0), value + half, confidence, "asymptotic")
    kept = np.arange(1, len(loss) + 1) / len(loss)
    return Sparsification(ause, Remaining(kept, curve), Remaining(kept, oracle))


def _bootstrap_area(
    ranked: Ranking, best: Ranking, root: _Root, options: IntervalOptions, clusters: Clusters | None
) -> np.ndarray:
    """Return bootstrap replicates of the area."""
    replicates = []
    rng, number = generator(options.seed), len(ranked.loss)
    with resampling_progress(options.resamples, number) as progress:
        for k in range(options.resamples):
            if clusters is None:
                counts = np.bincount(rng.integers(0, number, number, dtype=np.uint32), minlength=number)
            else:
                counts = clusters.draw(rng, 1)[0]
            replicates.append(area_between(*(remaining_error(each, root, counts) for each in (ranked, best))))
            progress(k + 1)
    return np.array(replicates)


def _influence(scores: np.ndarray, errors: np.ndarray, kind: _ErrorKind) -> np.ndarray:
    """Return the derivative of the area between the curves by the share of each input."""
    loss = kind.loss(errors)
    ranked, best = order_losses(scores, loss), order_losses(np.abs(errors), loss)
    mean = loss.mean()
    value = area_between(*(remaining_error(each, kind.root) for each in (ranked, best)))
    of_curve, of_oracle = (_area_influence(each, kind) for each in (ranked, best))
    of_whole = kind.slope(mean) * (loss - mean)
    return (of_curve - of_oracle - value * of_whole) / kind.root(mean)


def _area_influence(ranked: Ranking, kind: _ErrorKind) -> np.ndarray:
    """Return the derivative of the area under one curve by the share of each input."""
    mean = remaining_error(ranked, lambda mean: mean)
    number = len(mean)
    size = np.diff(np.append(ranked.starts, number))
    constant, by_loss = curve_influence(mean, kind.root(mean), kind.slope(mean), ranked.starts, size)
    found = np.empty(number)
    found[ranked.order] = np.repeat(constant, size) + np.repeat(by_loss, size) * ranked.loss
    return number * found


class Ranking(NamedTuple):
    """Inputs from the most certain to the least, their losses, and where each level of the score starts."""

    order: np.ndarray
    loss: np.ndarray
    starts: np.ndarray


def order_losses(scores: np.ndarray, loss: np.ndarray) -> Ranking:
    """Return losses in the order of the scores."""
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    return Ranking(order, loss[order], np.append(0, np.flatnonzero(ranked[1:] != ranked[:-1]) + 1))


def remaining_error(ranked: Ranking, root: _Root, counts: np.ndarray | None = None) -> np.ndarray:
    """Return the error of 1, ..., n inputs kept; each input counts so many times.

    Within a level every input is charged the level's mean, which is what random orders of it expect.
    """
    loss = ranked.loss
    taken = np.ones(len(loss), np.int64) if counts is None else counts[ranked.order]
    if len(ranked.starts) < len(loss):
        size = np.add.reduceat(taken, ranked.starts)
        mean = np.add.reduceat(taken * loss, ranked.starts) / np.maximum(size, 1)
        loss, taken = mean, size
    return root(np.cumsum(np.repeat(loss, taken)) / np.arange(1, int(taken.sum()) + 1))


def area_between(curve: np.ndarray, oracle: np.ndarray) -> float:
    """Return the area between two curves as a share of the error of all inputs; NaN if that is 0."""
    return float(np.mean(curve - oracle) / curve[-1]) if curve[-1] > 0 else float("nan")


def _check_errors(errors: Any, number: int) -> np.ndarray:
    """Return errors as float64, one per score."""
    values = to_numpy(as_array(errors))
    if values.shape != (number,) or values.dtype.kind not in "fiub":
        raise ValueError(
            f"errors must be one number per score, shape ({number},). "
            f"Got {values.dtype} of shape {values.shape}."
        )
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"errors must be finite. Got {np.sum(~np.isfinite(values))} infinite ones or NaN.")
    if not values.any():
        raise ValueError("errors must not all be 0: there is nothing to rank. Got only zeros.")
    return values
