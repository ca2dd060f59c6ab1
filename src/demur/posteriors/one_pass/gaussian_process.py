"""A sparse variational Gaussian process per class on features: the head of DUE, in exact formulas."""

from __future__ import annotations

import math
from typing import Any

from demur.posteriors import networks
from demur.posteriors.one_pass.covariance import factorise


class GaussianProcessHead:
    r"""Independent Gaussian processes, one for each class, with shared inducing points.

    Hensman, Matthews and Ghahramani (2015), "Scalable variational Gaussian process classification", with
    whitened values at the inducing points Z: :math:`u = \mu + L v` for :math:`K_{ZZ} = L L^\top`, and
    :math:`q(v) = \mathcal N(m, S S^\top)`. With :math:`a = L^{-1} k_{Zx}`, the marginal at x has

    .. math:: \text{mean } \mu + a^\top m, \qquad
        \text{variance } k_{xx} - a^\top a + |S^\top a|^2.

    The kernel is :math:`s^2 \exp(-|x - x'|^2 / 2 \ell^2)`, with s and the length scale of each class learnt.
    All of it is in float64, and nothing is added to the diagonal.
    """

    def __init__(self, points: Any, classes: int, *, length_scale: float) -> None:
        import torch

        count = len(points)
        kind: dict[str, Any] = {"dtype": torch.float64, "device": points.device}
        self.parameters: dict[str, Any] = {
            "points": points.double().clone(),
            "log_length_scale": torch.full((classes,), math.log(length_scale), **kind),
            "log_scale": torch.zeros(classes, **kind),
            "constant": torch.zeros(classes, **kind),
            "mean": torch.zeros(classes, count, **kind),
            "log_diagonal": torch.zeros(classes, count, **kind),
            "lower": torch.zeros(classes, count, count, **kind),
        }
        self.buffers: dict[str, Any] = {}
        for each in self.parameters.values():
            each.requires_grad_()

    def kernel(self, x: Any, y: Any) -> Any:
        """Return the kernel of each class, (classes, x, y)."""
        # By products, for their memory; about the middle of the points, so that little cancels.
        middle = self.parameters["points"].detach().mean(0)
        x, y = x - middle, y - middle
        distances = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T
        length, scale = self.parameters["log_length_scale"].exp(), self.parameters["log_scale"].exp()
        return scale[:, None, None].square() * (-distances / (2 * length[:, None, None].square())).exp()

    def factor(self) -> Any:
        """Return S, the Cholesky factor of the covariance of the whitened values, (classes, Z, Z)."""
        return self.parameters["lower"].tril(-1) + self.parameters["log_diagonal"].exp().diag_embed()

    def marginals(self, features: Any) -> tuple[Any, Any]:
        """Return mean and variance of the logits, (inputs, classes) each."""
        import torch

        features, points = features.double(), self.parameters["points"]
        factor = factorise(self.kernel(points, points))
        if factor is None:
            raise ValueError(
                "Inducing points must be apart from each other, measured in length scales. Got some that are "
                "alike, or training that diverged. Give fewer, by inducing=..., a shorter length_scale, or a "
                "smaller rate."
            )
        a = torch.linalg.solve_triangular(factor, self.kernel(points, features), upper=False)
        mean = self.parameters["constant"][:, None] + (self.parameters["mean"][:, None] @ a)[:, 0]
        prior = self.parameters["log_scale"].exp().square()[:, None]
        # At an inducing point the difference is 0, and rounding may leave it a little below.
        rest = (prior - a.square().sum(1)).clamp(min=0)
        return mean.T, (rest + (self.factor().mT @ a).square().sum(1)).T

    def divergence(self) -> Any:
        """Return KL(q, prior) of the values at the inducing points, summed over classes, in nats."""
        mean, logs = self.parameters["mean"], self.parameters["log_diagonal"]
        return (self.factor().square().sum() + mean.square().sum() - mean.numel()) / 2 - logs.sum()


def find_centres(features: Any, count: int, seed: int, *, iterations: int = 20) -> Any:
    """Return centres of features by k-means (Lloyd, 1982), from a random start, (count, features)."""
    import torch

    source = torch.Generator().manual_seed(networks.derive_seed(seed, 6))
    different = torch.unique(features, dim=0)
    if len(different) < count:
        raise ValueError(f"inducing must be at most the number of different features. Got {count}.")
    order = torch.randperm(len(different), generator=source).to(features.device)
    centres = different[order[:count]].clone()
    for _ in range(iterations):
        nearest = torch.cdist(features, centres).argmin(1)
        for k in range(count):
            own = features[nearest == k]
            if len(own):
                centres[k] = own.mean(0)
    return centres
