"""Losses that teach a network a distribution over Gaussians."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from demur.core import arrays
from demur.predictions import NormalInverseGamma

if TYPE_CHECKING:
    from torch import Tensor

_LARGE_SHAPE = 32.0
_GROWTH_SERIES = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432)  # of alpha**-1, -3, -5, -7, -9


def make_normal_inverse_gamma(outputs: Tensor) -> NormalInverseGamma:
    """Return four outputs of a network as a normal-inverse-gamma distribution over Gaussians, in float64.

    The first is the mean; nu, alpha - 1 and beta are the softplus of the others, as in Amini et al. (2020).

    Parameters
    ----------
    outputs
        Real numbers, (..., 4).

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.evidential import make_normal_inverse_gamma
    >>> make_normal_inverse_gamma(torch.zeros(2, 4)).alpha
    tensor([1.6931, 1.6931], dtype=torch.float64)
    """
    import torch

    if not isinstance(outputs, torch.Tensor) or outputs.ndim == 0 or outputs.shape[-1] != 4:
        came = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise ValueError(f"outputs must be four for each input, (..., 4): mean, nu, alpha, beta. Got {came}.")
    wide = arrays.widened(outputs)  # float32 would round the softplus of -110 to 0
    nu, alpha, beta = torch.nn.functional.softplus(wide[..., 1:]).unbind(-1)
    return NormalInverseGamma(wide[..., 0], nu, 1 + alpha, beta)


def student_loss(prediction: NormalInverseGamma, target: Tensor) -> Tensor:
    r"""Return the negative log-likelihood of targets under the average prediction, Student's t, shape (...).

    Amini et al. (2020), equation 8, rearranged so that large numbers do not cancel:

    .. math:: \tfrac12 \log \frac{2 \pi \beta (1 + \nu)}{\nu}
              + \frac{2 \alpha + 1}{2} \log\left(1 + \frac{\nu (y - \gamma)^2}{2 \beta (1 + \nu)}\right)
              - \log \frac{\Gamma(\alpha + \frac12)}{\Gamma(\alpha)}
    """
    import torch

    mean, nu, alpha, beta, target = _widen(prediction, target)
    width = 2 * beta * (1 + nu) / nu
    spread = (alpha + 0.5) * torch.log1p((target - mean) ** 2 / width)
    return (torch.log(math.pi * width) / 2 + spread - _grow_log_gamma(alpha)).to(prediction.mean.dtype)


def evidential_regression_loss(
    prediction: NormalInverseGamma, target: Tensor, *, weight: float = 0.01
) -> Tensor:
    r"""Return the loss of evidential regression: log-likelihood, plus evidence times error.

    Amini, Schwarting, Soleimany and Rus (2020), "Deep evidential regression", equations 8 to 10: the
    negative log-likelihood plus :math:`\lambda \, |y - \gamma| (2 \nu + \alpha)`.

    Parameters
    ----------
    prediction
        From `make_normal_inverse_gamma`.
    target
        The outcomes, shaped like the prediction. Scale them to about unit variance: the second term is in
        the unit of the outcome.
    weight
        :math:`\lambda`. Without it nu is not determined by the data.

    Returns
    -------
    Tensor
        The average over inputs.

    Warnings
    --------
    What this learns as epistemic uncertainty is not that of a posterior. The likelihood depends on nu only
    through beta (1 + nu) / nu, so that nu is set by the second term and by how long training goes on, not by
    how many data there are: Meinert, Gawlikowski and Lavin (2023), "The unreasonable effectiveness of deep
    evidential regression". No loss of this kind can make it faithful: Bengs, Hüllermeier and Waegeman
    (2022), "Pitfalls of epistemic uncertainty quantification through loss minimisation". Use it to rank
    inputs if it ranks them well on data that you have, and not as a number of nats or a variance.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.evidential import evidential_regression_loss, make_normal_inverse_gamma
    >>> prediction = make_normal_inverse_gamma(torch.zeros(2, 4))
    >>> evidential_regression_loss(prediction, torch.tensor([0.0, 1.0]))
    tensor(1.2909, dtype=torch.float64)
    """
    likelihood = student_loss(prediction, target)
    error = abs(target.to(prediction.mean.device) - prediction.mean)
    return (likelihood + weight * error * (2 * prediction.nu + prediction.alpha)).mean()


def _grow_log_gamma(alpha: Tensor) -> Tensor:
    """Return ``log Gamma(alpha + 1/2) - log Gamma(alpha)``, by a series where these would cancel."""
    import torch

    large = alpha > _LARGE_SHAPE
    small, far = torch.where(large, 1.0, alpha), torch.where(large, alpha, _LARGE_SHAPE)
    series = torch.zeros_like(far)
    for coefficient in reversed(_GROWTH_SERIES):
        series = series / far / far + coefficient
    return torch.where(
        large, torch.log(far) / 2 + series / far, torch.lgamma(small + 0.5) - torch.lgamma(small)
    )


def _widen(prediction: NormalInverseGamma, target: Any) -> tuple[Any, ...]:
    """Return the parameters and targets in float64; raise unless there is a target for each prediction."""
    import torch

    found = torch.as_tensor(target, device=prediction.mean.device)
    if tuple(found.shape) != prediction.shape:
        raise ValueError(
            f"target must have the shape of the predictions, {prediction.shape}. Got {tuple(found.shape)}."
        )
    parameters = (prediction.mean, prediction.nu, prediction.alpha, prediction.beta)
    return *(arrays.widened(each) for each in parameters), arrays.widened(found)
