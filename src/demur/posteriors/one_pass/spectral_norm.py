"""`spectral_normalise`: layers with a bounded largest singular value."""

from __future__ import annotations

from typing import Any

from demur.posteriors import networks


def spectral_normalise(model: Any, *, bound: float = 0.95, iterations: int = 1, seed: int = 0) -> Any:
    r"""Bound the largest singular value of each linear and convolutional layer, in place; return the network.

    Liu et al. (2020), "Simple and principled uncertainty estimation with deterministic deep learning via
    distance awareness", section 3.2: weights W are used as

    .. math:: W \cdot \min(1, c / \sigma(W)),

    where the singular value :math:`\sigma` is followed by power iteration while the network trains. With
    residual connections, features can then neither collapse nor stretch distances without limit. A
    convolution is bounded by its kernel as a matrix (output channels, everything else), which can
    underestimate its norm by up to the root of the number of places in its kernel: 3 for 3 x 3.

    Parameters
    ----------
    model
        The network, before training.
    bound
        c: 0.95 in the paper's code for dense layers; van Amersfoort et al. (2022) have 3 for residual
        networks with batch normalisation.
    iterations
        Power iterations per forward pass in training mode; in evaluation mode the estimate stays.
    seed
        The seed of the first vectors.

    Examples
    --------
    >>> import torch
    >>> from demur.posteriors.one_pass import spectral_normalise
    >>> layer = torch.nn.Linear(4, 4)
    >>> _ = layer.weight.data.mul_(100)
    >>> bounded = spectral_normalise(torch.nn.Sequential(layer), bound=0.95)
    >>> round(torch.linalg.matrix_norm(layer.weight.detach(), 2).item(), 3)
    0.95
    """
    from torch import nn
    from torch.nn.utils import parametrize

    from demur.posteriors.one_pass.bounded_weight import BoundedWeight
    from demur.posteriors.posterior import check_count

    networks.check_network("model", model)
    if not 0 < bound < float("inf"):
        raise ValueError(f"bound must be positive and finite. Got {bound!r}.")
    check_count("iterations", iterations)
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    layers = [each for each in model.modules() if isinstance(each, kinds)]
    for number, layer in enumerate(layers):
        if not parametrize.is_parametrized(layer, "weight"):
            own = BoundedWeight(layer.weight, bound, iterations, networks.derive_seed(seed, number))
            parametrize.register_parametrization(layer, "weight", own)
    return model
