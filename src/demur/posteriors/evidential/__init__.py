"""Heads and losses of networks that predict a distribution over predictions, for your own training loop.

    make_concentration         outputs of a network as concentrations of a Dirichlet distribution
    evidential_loss            Sensoy et al. (2018)
    prior_network_loss         Malinin and Gales (2018, 2019), with `make_sharp_target`, `make_smooth_target`
    dirichlet_divergence       KL of two Dirichlet distributions
    make_normal_inverse_gamma  outputs of a network as a distribution over Gaussians
    evidential_regression_loss Amini et al. (2020)

All take tensors of PyTorch and let gradients through. `demur.posteriors.EvidentialNetwork` scores the trained
network.
"""

from demur.posteriors.evidential.dirichlet_losses import (
    dirichlet_divergence,
    evidential_loss,
    make_concentration,
    make_sharp_target,
    make_smooth_target,
    prior_network_loss,
)
from demur.posteriors.evidential.regression_losses import (
    evidential_regression_loss,
    make_normal_inverse_gamma,
    student_loss,
)

__all__ = [
    "dirichlet_divergence",
    "evidential_loss",
    "evidential_regression_loss",
    "make_concentration",
    "make_normal_inverse_gamma",
    "make_sharp_target",
    "make_smooth_target",
    "prior_network_loss",
    "student_loss",
]
