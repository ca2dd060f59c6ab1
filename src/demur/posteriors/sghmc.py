"""`SGHMC`: stochastic-gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from demur.posteriors.chains import plain_steps
from demur.posteriors.chains.markov_chain import ChainOptions, MarkovChain
from demur.posteriors.chains.stepper import (
    Factors,
    Moving,
    add_forces,
    add_noise,
    draw_noise_starts,
    take_step,
)
from demur.posteriors.compiled_calls import BAOA_STEP


class SGHMC(MarkovChain):
    r"""Samples of a network's parameters by stochastic-gradient Hamiltonian Monte Carlo.

    Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte Carlo", Eq. 13, with the parameters
    of their Eq. 15: ``step_size`` is the learning rate, and ``friction`` the fraction of the momentum lost in
    a step. The defaults are those of their code for MNIST. Their explicit Euler steps are biased; here the
    dynamics is integrated by BAOA steps (Leimkuhler and Matthews, 2015). With h = sqrt(step_size), c = 1 -
    friction, a temperature T, and the log posterior divided by the number of inputs N, estimated from a
    batch, these are

    .. math::

        m &\leftarrow m + h\, \nabla \tfrac1N \log p(w), \\
        w &\leftarrow w + \tfrac h2\, m, \\
        m &\leftarrow c\, m + \mathcal N(0,\; (1 - c^2)\, T / N), \\
        w &\leftarrow w + \tfrac h2\, m.

    Apart from the noise of the batches, the covariance of a Gaussian posterior is exact at any stable step
    size (step_size k < 4 for the largest curvature k of the log posterior over N).

    Parameters
    ----------
    model
        The network. The chain starts at its parameters, with momenta of 0, and samples those with
        ``requires_grad``.
    data
        The training data, of a known size: a pair (inputs, targets) of arrays, a ``Dataset``, or a
        ``DataLoader``, whose batches are then used.
    samples
        The number of members.
    epochs, steps
        Passes over the data, or, if given, the number of steps.
    step_size
        The learning rate, as for gradient descent with momentum on the average loss.
    friction
        Above 0 and below 1: one minus the momentum of gradient descent.
    burn_in
        The fraction of the steps before the first sample; samples are spread evenly over the rest.
    batch_size
        Inputs per step, unless the data is a loader.
    **options
        ``log_likelihood``, ``prior_scale=0.2``, ``prior_mean=None``, ``temperature=1.0``, ``seed=0``,
        ``forward``, ``keep=True``, ``checkpoint``, ``every``: see `MarkovChain`.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
    >>> model = torch.nn.Linear(4, 3)
    >>> posterior = demur.posteriors.SGHMC(model, (x, y), samples=20, epochs=100)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    20
    """

    has_momenta = True

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        samples: int = 750,
        epochs: float = 800,
        steps: int | None = None,
        step_size: float = 0.1,
        friction: float = 0.01,
        burn_in: float = 0.0625,
        batch_size: int = 500,
        **options: Unpack[ChainOptions],
    ) -> None:
        self.friction = check_friction(friction)
        plan = {"samples": samples, "step_size": step_size, "discard": burn_in}
        super().__init__(model, data, plan, epochs=epochs, steps=steps, batch_size=batch_size, **options)

    def _move(self, moving: Moving, factors: Factors, rate: float, temperature: float) -> None:
        baoa_step(moving, factors, rate, temperature, self.friction)


def check_friction(value: float) -> float:
    """Return the friction; raise unless it is above 0 and below 1."""
    if not 0 < value < 1:
        raise ValueError(f"friction must be above 0 and below 1. Got {value!r}.")
    return float(value)


def baoa_step(moving: Moving, factors: Factors, rate: float, temperature: float, friction: float) -> None:
    """Take one BAOA step, of sqrt(rate) in time, in place.

    Leimkuhler and Matthews (2015), "Molecular dynamics": the gradient, half of the way, friction with noise,
    the other half.
    """
    time, kept = math.sqrt(rate), 1 - friction
    deviation = math.sqrt(temperature * (1 - kept**2))
    for (value, momentum, forces), start in zip(moving, draw_noise_starts(moving, deviation), strict=True):
        if isinstance(value, np.ndarray):
            given = value, momentum, forces, factors, time, kept, deviation, start
            take_step(BAOA_STEP, plain_steps.baoa_step, given)
        else:
            add_forces(momentum, forces, factors, time)
            value.add_(momentum, alpha=time / 2)
            add_noise(momentum.mul_(kept), deviation)
            value.add_(momentum, alpha=time / 2)
