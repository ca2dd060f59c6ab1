"""`SGLD`: stochastic-gradient Langevin dynamics."""

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
from demur.posteriors.compiled_calls import LANGEVIN_STEP


class SGLD(MarkovChain):
    r"""Samples of a network's parameters by stochastic-gradient Langevin dynamics.

    Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin dynamics", Eq. 4. With the log
    posterior divided by the number of inputs N, estimated from a batch, a step is

    .. math:: w \leftarrow w + \varepsilon \nabla \tfrac1N \log p(w) + \mathcal N(0,\; 2 \varepsilon T / N),

    with step size :math:`\varepsilon` and temperature T.

    Their step size falls, and their samples are weighted by it; here it is constant, and samples have equal
    weights. Large steps widen the sampled distribution: the variance grows by a factor of
    1 / (1 - step_size k / 2) in a direction in which the log posterior over N has curvature k.

    Parameters
    ----------
    model
        The network. The chain starts at its parameters and samples those with ``requires_grad``.
    data
        The training data, of a known size: a pair (inputs, targets) of arrays, a ``Dataset``, or a
        ``DataLoader``, whose batches are then used.
    samples
        The number of members.
    epochs, steps
        Passes over the data, or, if given, the number of steps.
    step_size
        The learning rate, as for gradient descent on the average loss.
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
    >>> posterior = demur.posteriors.SGLD(model, (x, y), samples=20, epochs=100)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    20
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        samples: int = 750,
        epochs: float = 800,
        steps: int | None = None,
        step_size: float = 0.1,
        burn_in: float = 0.0625,
        batch_size: int = 500,
        **options: Unpack[ChainOptions],
    ) -> None:
        plan = {"samples": samples, "step_size": step_size, "discard": burn_in}
        super().__init__(model, data, plan, epochs=epochs, steps=steps, batch_size=batch_size, **options)

    def _move(self, moving: Moving, factors: Factors, rate: float, temperature: float) -> None:
        langevin_step(moving, factors, rate, temperature)


def langevin_step(moving: Moving, factors: Factors, rate: float, temperature: float) -> None:
    """Take one step of Langevin dynamics, by Euler and Maruyama, in place."""
    deviation = math.sqrt(2 * rate * temperature)
    for (value, _, forces), start in zip(moving, draw_noise_starts(moving, deviation), strict=True):
        if isinstance(value, np.ndarray):
            given = value, forces, factors, rate, deviation, start
            take_step(LANGEVIN_STEP, plain_steps.langevin_step, given)
        else:
            gradient, own, centre = forces
            # The force of the value itself comes first, before the value moves.
            add_forces(value, (own, gradient, centre), (factors[1], factors[0], factors[2]), rate)
            add_noise(value, deviation)
