"""Gaussian predictions: of a number, and of a vector."""

from __future__ import annotations

from typing import Any

from demur.core.arrays import Array
from demur.core.rules import epsilon
from demur.families.full_gaussian import diagonal, identity, join, outer, split, transpose
from demur.predictions.categorical import raise_if_bad
from demur.predictions.parametric import Parametric, as_real_array, check_finite, to_one_kind
from demur.predictions.places import Places


class _Independent(Parametric):
    """Means, then variances or scales of independent coordinates."""

    __slots__ = ()

    def _standardise(self, xp: Any, values: Array) -> Array:
        """Square scales only now, in float64."""
        if self.names[-1] != "scale":
            return values
        half = values.shape[-1] // 2
        return xp.concat([values[..., :half], values[..., half:] ** 2], axis=-1)

    def _check(
        self, xp: Any, values: Array, ignored: Array | None = None, places: Places | None = None
    ) -> None:
        super()._check(xp, values, ignored, places)
        if self.names[-1] == "scale":
            scale = values[..., values.shape[-1] // 2 :]
            square = self._standardise(xp, values)[..., values.shape[-1] // 2 :]
            raise_if_bad(
                xp, ~((square > 0) & xp.isfinite(square)), scale,
                "scale must have a square that is a positive number", "Change the unit of the outcome.",
                places, ignored,
            )  # fmt: skip


class Gaussian(_Independent):
    """Predicted numbers, by mean and variance.

    Parameters
    ----------
    mean
        Shape (members, ...); an array of NumPy, PyTorch or JAX.
    variance, scale
        Exactly one of them, positive, shaped like the mean or one number for all; the scale is the standard
        deviation.

    Examples
    --------
    Three members, two inputs; on the second they disagree by more than they expect to be wrong.

    >>> mean = np.array([[0.0, -2.0], [0.1, 0.0], [-0.1, 2.0]])
    >>> u = demur.decompose(demur.Gaussian(mean, variance=1.0))
    >>> u.aleatoric.round(3), u.epistemic.round(3)
    (array([1.419, 1.419]), array([0.007, 2.667]))
    """

    __slots__ = ()

    def __init__(self, mean: Any, variance: Any = None, *, scale: Any = None) -> None:
        name = _one_of(self.kind, variance=variance, scale=scale)
        super().__init__("Gaussian", mean=mean, **{name: variance if scale is None else scale})


class MultivariateGaussian(_Independent):
    """Predicted vectors, by mean and either the variance of each coordinate or a covariance matrix.

    Parameters
    ----------
    mean
        Shape (members, ..., d): coordinates are last.
    variance, scale
        Independent coordinates: shape (members, ..., d), or one number for all.
    covariance
        Any: shape (members, ..., d, d), symmetric and positive definite. Exactly one of the three.

    Examples
    --------
    >>> mean = np.array([[[0.0, 0.0]], [[1.0, 0.0]]])     # two members, one input
    >>> demur.decompose(demur.MultivariateGaussian(mean, variance=1.0)).epistemic
    array([0.25])
    >>> covariance = np.broadcast_to([[1.0, 0.8], [0.8, 1.0]], (2, 1, 2, 2))
    >>> demur.decompose(demur.MultivariateGaussian(mean, covariance=covariance)).epistemic.round(3)
    array([0.694])
    """

    __slots__ = ()

    def __init__(self, mean: Any, variance: Any = None, *, scale: Any = None, covariance: Any = None) -> None:
        name = _one_of(self.kind, variance=variance, scale=scale, covariance=covariance)
        mean = as_real_array("mean", mean)
        if not mean.ndim:
            raise ValueError("mean must have the outcome's coordinates last. Got one number. Use Gaussian.")
        if covariance is None:
            spread = as_real_array(name, variance if scale is None else scale)
            if spread.ndim and spread.shape != mean.shape:
                raise ValueError(
                    f"{name} must have the shape of mean, {tuple(mean.shape)}, or be one number. "
                    f"Got {tuple(spread.shape)}."
                )
            xp, (mean, spread) = to_one_kind([mean, spread])
            values = xp.concat([mean, xp.broadcast_to(spread, mean.shape)], axis=-1)
            self._fill_with("diagonal Gaussian", ("mean", name), values)
            return
        matrix, d = as_real_array("covariance", covariance), mean.shape[-1]
        if tuple(matrix.shape) != (*mean.shape, d):
            raise ValueError(
                f"covariance must have the shape of mean and one more axis, {(*mean.shape, d)}. "
                f"Got {tuple(matrix.shape)}."
            )
        xp, (mean, matrix) = to_one_kind([mean, matrix])
        flat = matrix.reshape((*mean.shape[:-1], d * d))
        self._fill_with("full Gaussian", ("mean", name), xp.concat([mean, flat], axis=-1))

    def _placeholder(self, xp: Any, like: Array) -> Array:
        if self.names[-1] != "covariance":
            return xp.ones_like(like)
        mean, covariance = split(like)
        return join(xp, xp.zeros_like(mean), identity(xp, covariance))

    def _check(
        self, xp: Any, values: Array, ignored: Array | None = None, places: Places | None = None
    ) -> None:
        if self.names[-1] != "covariance":
            super()._check(xp, values, ignored, places)
            return
        mean, matrix = split(values)
        check_finite(xp, "mean", mean, ignored, places)
        check_finite(xp, "covariance", matrix, ignored, places)
        if ignored is not None:
            matrix = xp.where(ignored[..., None, None], identity(xp, matrix), matrix)
        size = xp.max(xp.abs(matrix), axis=(-2, -1))
        rounding = 8 * (1e-2 if "16" in self.precision else 1.2e-7 if "32" in self.precision else 2.3e-16)
        skewed = xp.max(xp.abs(matrix - transpose(matrix)), axis=(-2, -1)) > rounding * size
        raise_if_bad(
            xp, skewed[..., None], size[..., None], "covariance must be symmetric",
            "That is its largest entry; take the mean with its transpose.", places,
        )  # fmt: skip
        scale = diagonal(matrix)
        raise_if_bad(
            xp, ~(scale > 0), scale, "covariance must have a diagonal above 0",
            "A distribution without spread has no density.", places,
        )  # fmt: skip
        unit = xp.sqrt(scale)
        lowest = xp.linalg.eigvalsh(matrix / outer(unit))[..., :1]
        raise_if_bad(
            xp, ~(lowest > mean.shape[-1] * epsilon(xp, values)), lowest,
            "covariance must be positive definite",
            "That is the lowest eigenvalue of its correlations. Drop coordinates that others determine.",
            places,
        )  # fmt: skip


def _one_of(kind: str, **given: Any) -> str:
    """Return the name of the one argument that is given; raise unless there is exactly one."""
    came = [name for name, value in given.items() if value is not None]
    if len(came) != 1:
        raise ValueError(
            f"{kind} takes a mean and exactly one of {', '.join(given)}. "
            f"Got {' and '.join(came) if came else 'none of them'}."
        )
    return came[0]
