"""Predictions of counts, waiting times and other positive numbers."""

from __future__ import annotations

from typing import Any

from demur.predictions.parametric import Parametric


class Poisson(Parametric):
    """Predicted counts, by their rates.

    Parameters
    ----------
    rate
        Shape (members, ...), positive: the mean of the count.

    Examples
    --------
    >>> demur.decompose(demur.Poisson(np.array([[2.0, 5.0], [2.0, 8.0]]))).epistemic.round(3)
    array([0.   , 0.353])
    """

    __slots__ = ()

    def __init__(self, rate: Any) -> None:
        super().__init__("Poisson", rate=rate)


class Exponential(Parametric):
    """Predicted waiting times, by their rates.

    Parameters
    ----------
    rate
        Shape (members, ...), positive: one over the mean.

    Examples
    --------
    >>> demur.decompose(demur.Exponential(np.array([[1.0], [2.0]]))).epistemic
    array([0.125])
    """

    __slots__ = ()

    def __init__(self, rate: Any) -> None:
        super().__init__("exponential", rate=rate)


class Gamma(Parametric):
    """Predicted positive numbers, by shape and rate.

    Parameters
    ----------
    shape, rate
        Shape (members, ...), positive; the mean is ``shape / rate``.

    Examples
    --------
    >>> demur.decompose(demur.Gamma(np.array([[2.0], [3.0]]), np.array([[1.0], [1.0]]))).epistemic
    array([0.125])
    """

    __slots__ = ()

    def __init__(self, shape: Any, rate: Any) -> None:
        super().__init__("gamma", shape=shape, rate=rate)
