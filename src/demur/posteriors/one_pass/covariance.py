"""Covariances of features that can be inverted: maximum likelihood, shrunk by a stated amount."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

Shrinkage = float | Literal["ledoit_wolf"]
"""A fixed amount from 0 to 1, or the amount that the data suggest."""


def check_shrinkage(given: Any) -> Shrinkage:
    """Return the amount of shrinkage; raise unless it is one."""
    number = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1
    if not number and given != "ledoit_wolf":
        raise ValueError(f"shrinkage must be 'ledoit_wolf' or a number from 0 to 1. Got {given!r}.")
    return given


def estimate_covariance(rows: Iterable[Any], shrinkage: Shrinkage) -> tuple[Any, float]:
    r"""Return the covariance of centred rows, (features, features), and the amount of shrinkage.

    .. math:: (1 - s) S + s \, \tfrac{\operatorname{tr} S}{p} I, \qquad S = \tfrac1n \sum_i x_i x_i^\top.

    The amount of Ledoit and Wolf (2004), "A well-conditioned estimator for large-dimensional covariance
    matrices", estimates the one with the least expected squared error; it falls as 1/n.

    Parameters
    ----------
    rows
        Centred rows in float64, (some, features) at a time.
    shrinkage
        A fixed amount, or ``"ledoit_wolf"``.
    """
    import torch

    count, scatter, fourth = 0, torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for some in rows:
        scatter = some.T @ some + (scatter if count else 0)
        fourth = fourth + some.square().sum(1).square().sum()
        count += len(some)
    found = scatter / count
    features = len(found)
    mean = found.trace() / features
    if shrinkage == "ledoit_wolf":
        centred = found.clone()
        centred.diagonal().sub_(mean)
        distance = centred.square().sum()
        noise = (fourth / count - found.square().sum()) / count
        # Of rows that are all alike, and of one feature, the covariance is its target already.
        amount = float(torch.minimum(noise, distance) / distance) if distance > 0 else 0.0
    else:
        amount = float(shrinkage)
    found.mul_(1 - amount).diagonal().add_(amount * mean)
    return found, amount


def factorise(matrices: Any) -> Any:
    """Return the Cholesky factors of matrices, or None where one is singular to working precision."""
    import torch

    factors, failed = torch.linalg.cholesky_ex(matrices)
    # Rounding may leave a singular matrix with tiny pivots: what follows from them would be rounding error.
    pivots = factors.detach().diagonal(dim1=-2, dim2=-1).square()
    largest = matrices.detach().diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    least = torch.finfo(matrices.dtype).eps * matrices.shape[-1] * largest
    return None if bool(failed.any()) or not bool((pivots > least).all()) else factors
