"""`CyclicalSGHMC`: cyclical stochastic-gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from typing import Any, Unpack

from demur.posteriors.chains.markov_chain import ChainOptions, MarkovChain
from demur.posteriors.chains.stepper import Factors, Moving
from demur.posteriors.sghmc import baoa_step, check_friction


class CyclicalSGHMC(MarkovChain):
    """Samples of a network's parameters by cyclical stochastic-gradient Hamiltonian Monte Carlo.

    Zhang, Li, Zhang, Chen and Wilson (2020), "Cyclical stochastic gradient MCMC for Bayesian deep learning";
    the cSG-HMC of Schweighofer et al. (2023). The step size falls from ``step_size`` to 0 along a cosine in
    each cycle (their Eq. 1). Large steps without noise find a mode, small ones with noise sample it. The
    steps are those of `SGHMC`. The defaults are those of the authors' code for CIFAR-10, except for the
    temperature, which is 1. Schweighofer et al. sample the last layer with ``samples=2000`` and give no other
    setting.

    Parameters
    ----------
    model
        The network. The chain starts at its parameters, with momenta of 0, and samples those with
        ``requires_grad``.
    data
        The training data, of a known size: a pair (inputs, targets) of arrays, a ``Dataset``, or a
        ``DataLoader``, whose batches are then used.
    samples
        The number of members, in all cycles.
    cycles
        The number of cycles; samples and steps must be multiples of it.
    epochs, steps
        Passes over the data, or, if given, the number of steps, in all cycles.
    step_size
        The learning rate at the start of a cycle, as for gradient descent with momentum on the average loss.
    friction
        Above 0 and below 1: one minus the momentum of gradient descent.
    exploration
        The fraction of each cycle without noise.
    discard
        The fraction of the steps with noise before the first sample of a cycle; samples are spread evenly
        over the rest.
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
    >>> posterior = demur.posteriors.CyclicalSGHMC(model, (x, y), steps=200)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    12
    """

    has_momenta = True

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        samples: int = 12,
        cycles: int = 4,
        epochs: float = 200,
        steps: int | None = None,
        step_size: float = 0.5,
        friction: float = 0.9,
        exploration: float = 0.9,
        discard: float = 0.4,
        batch_size: int = 64,
        **options: Unpack[ChainOptions],
    ) -> None:
        self.friction = check_friction(friction)
        plan = {
            "samples": samples, "cycles": cycles, "step_size": step_size, "exploration": exploration,
            "discard": discard, "cosine": True,
        }  # fmt: skip
        super().__init__(model, data, plan, epochs=epochs, steps=steps, batch_size=batch_size, **options)

    def _move(self, moving: Moving, factors: Factors, rate: float, temperature: float) -> None:
        baoa_step(moving, factors, rate, temperature, self.friction)
