"""`HMC`: Hamiltonian Monte Carlo with exact gradients, the reference that other methods are judged by."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from demur.posteriors import networks
from demur.posteriors.chains import diagnostics
from demur.posteriors.chains.hamiltonian import HamiltonianChain, HamiltonianPlan
from demur.posteriors.chains.log_posterior import DensityOptions, LogPosterior
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.parameter_samples import ParameterSamples
from demur.posteriors.posterior import check_count, check_seed
from demur.posteriors.tensor_files import write_tensors
from demur.progress import progress_bar

_PARAMETERS_COMPARED = 1000
"""Parameters, at most, whose agreement between chains is judged: evenly spread over all."""


@dataclass(frozen=True)
class Diagnostics:
    """Whether the chains can be trusted; `print` shows it in a few lines.

    Attributes
    ----------
    acceptance, step_size, leapfrog_steps
        For each chain: mean acceptance probability of the samples, and the adapted steps.
    rhat, effective_size
        Of the log posterior: split R-hat (below about 1.01 is good), and the number of independent draws
        that the samples are worth.
    worst_rhat, least_effective_size
        Over parameters, at most 1000 of them. Parameters that can swap roles, as hidden units do, may
        disagree between chains whose predictions agree: see `HMC.diagnose`.
    """

    acceptance: tuple[float, ...]
    step_size: tuple[float, ...]
    leapfrog_steps: tuple[float, ...]
    rhat: float
    effective_size: float
    worst_rhat: float
    least_effective_size: float

    def __str__(self) -> str:
        def each(values: tuple[float, ...], form: str) -> str:
            return ", ".join(format(value, form) for value in values)

        return (
            f"acceptance       {each(self.acceptance, '.2f')}\n"
            f"step size        {each(self.step_size, '.3g')}\n"
            f"leapfrog steps   {each(self.leapfrog_steps, '.0f')}\n"
            f"log posterior    R-hat {self.rhat:.3f}, effective size {self.effective_size:.0f}\n"
            f"parameters       worst R-hat {self.worst_rhat:.3f}, least effective size "
            f"{self.least_effective_size:.0f}"
        )


class HMC(ParameterSamples):
    r"""Samples of a network's parameters by Hamiltonian Monte Carlo, with gradients of all the data.

    Neal (1995), "Bayesian learning for neural networks"; settings of Izmailov, Vikram, Hoffman and Wilson
    (2021), "What are Bayesian neural network posteriors really like?". A trajectory of the dynamics

    .. math:: \dot w = v, \qquad \dot v = \nabla \log p(w)

    from a fresh momentum :math:`v \sim \mathcal N(0, 1)` is accepted with probability
    :math:`\min(1, e^{-\Delta H})`, which leaves the posterior exactly as it is: no step size, batch or
    temperature has to be right, only the number of samples large enough. The price is a pass over all data in
    every leapfrog step.

    Parameters
    ----------
    model
        The network. Parameters with ``requires_grad`` are sampled. In float32, energies of large data sets
        have few digits: prefer ``model.double()``.
    data
        The training data: a pair (inputs, targets) of arrays, a ``Dataset`` or a ``DataLoader``. It is read
        once and kept in memory.
    samples
        The number of members, over all chains; a multiple of ``chains``.
    chains
        How many chains, each from its own start: only chains that began apart and agree show convergence.
    burn_in
        Trajectories of each chain before its first sample, in which the step size adapts.
    thin
        Trajectories from one sample to the next.
    trajectory
        The average length of trajectories, step size times number of steps; each is drawn from half to one
        and a half times that, since equal ones may all end where they began. None: ``pi / 2 * prior_scale``,
        as Izmailov et al. have it, which crosses a posterior as wide as the prior; 1 for a flat prior.
    step_size
        None: adapted to accept ``acceptance`` of the trajectories. Or a fixed one.
    acceptance
        The acceptance rate to adapt to.
    start
        ``"prior"``: chains start at draws from the prior. ``"model"``: at the parameters of the model, plus a
        tenth of such a draw.
    batch_size
        Inputs per pass through the network, which limits memory and changes nothing else.
    checkpoint, every
        A folder, and seconds between writes. After an interruption the same call resumes and draws the same
        samples.
    **options
        ``log_likelihood``, ``prior_scale=0.2``, ``prior_mean=None``, ``temperature=1.0``, ``seed=0``,
        ``forward``: see `MarkovChain`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.randn(100, 2).double(), torch.randint(2, (100,))
    >>> model = torch.nn.Linear(2, 2).double()
    >>> posterior = demur.posteriors.HMC(model, (x, y), samples=40, chains=2, burn_in=30, prior_scale=1.0)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    40
    >>> bool(posterior.diagnostics.rhat < 1.3)
    True
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        samples: int = 200,
        chains: int = 4,
        burn_in: int = 100,
        thin: int = 1,
        trajectory: float | None = None,
        step_size: float | None = None,
        acceptance: float = 0.8,
        start: Literal["prior", "model"] = "prior",
        batch_size: int = 10_000,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 30.0,
        **options: Unpack[DensityOptions],
    ) -> None:
        for name, value in (("samples", samples), ("chains", chains), ("thin", thin)):
            check_count(name, value)
        seed = check_seed(options.get("seed", 0))
        if samples % chains or samples // chains < 4:
            raise ValueError(
                "samples must be a multiple of chains, at least 4 for each, so that chains can be compared. "
                f"Got {samples} samples in {chains} chains."
            )
        if not isinstance(burn_in, int) or burn_in < 0:
            raise ValueError(f"burn_in must be a number of trajectories, 0 or more. Got {burn_in!r}.")
        if start not in ("prior", "model"):
            raise ValueError(f"start must be 'prior' or 'model'. Got {start!r}.")
        if not 0 < acceptance < 1:
            raise ValueError(f"acceptance must be between 0 and 1. Got {acceptance!r}.")
        self._set_up(model, options.get("forward"), samples)
        self.density = LogPosterior(model, data, batch_size, **options)
        scale = self.density.prior_scale
        if start == "prior" and math.isinf(scale):
            raise ValueError("start='prior' takes a prior_scale that is finite. Give one, or start='model'.")
        if trajectory is None:
            trajectory = 1.0 if math.isinf(scale) else math.pi / 2 * scale
        for name, value in (("trajectory", trajectory), ("step_size", step_size)):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite. Got {value!r}.")
        self.chains = chains
        self.plan = HamiltonianPlan(
            samples // chains, burn_in, thin, trajectory, step_size, acceptance, start, seed
        )
        self._files = None if checkpoint is None else Path(checkpoint), every

    _found: Diagnostics | None = None

    def __repr__(self) -> str:
        if self._found is None:
            return f"HMC({self.members} samples, {self.chains} chains)"
        found = self._found
        return (
            f"HMC({self.members} samples, {self.chains} chains, R-hat {found.rhat:.3f}, "
            f"effective size {found.effective_size:.0f})"
        )

    @property
    def diagnostics(self) -> Diagnostics:
        """Acceptance, R-hat and effective sizes of the chains; draws the samples where needed."""
        self.fit()
        assert self._found is not None
        return self._found

    def diagnose(self, batch: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return split R-hat and effective size of the probability of each class, (inputs, classes) each.

        Predictions are what matters: they may agree where parameters do not.
        """
        import torch

        logits = torch.cat([chunk.cpu() for chunk in self.predict(batch)]).double()
        draws = torch.softmax(logits, -1).numpy().reshape(self.chains, -1, *logits.shape[1:])
        return diagnostics.split_rhat(draws), diagnostics.effective_size(draws)

    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        import torch

        (folder, every), length = self._files, self.plan.trajectories
        with (
            progress_bar(self.chains * length, "trajectories", hidden=not progress) as show,
            torch.inference_mode(False),
            networks.suspend_training([self.model]),
            networks.preserve_random_state(),
        ):
            runs = []
            for number in range(self.chains):
                chain = HamiltonianChain(self.density, self.plan, number, folder)
                chain.run(every, lambda done, before=number * length: show(before + done))
                runs.append(chain)
        self._found = _summarise(runs)
        samples = torch.cat([run.samples for run in runs]).to(self.density.start.device)
        return self.density.split(samples)

    def fingerprint(self) -> str:
        if not hasattr(self, "density"):
            return fingerprint(self._samples)
        return fingerprint(self.chains, dataclasses.asdict(self.plan), self.density.describe())

    def save(self, path: str | os.PathLike[str]) -> None:
        found = dataclasses.asdict(self.diagnostics)
        facts = {"method": "HMC", "chains": str(self.chains), "diagnostics": json.dumps(found)}
        write_tensors(path, self.parameters(), facts)

    def _restore(self, facts: dict[str, str]) -> None:
        found = json.loads(facts["diagnostics"])
        lists = {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
        self._found, self.chains = Diagnostics(**found | lists), int(facts["chains"])


def _summarise(runs: list[HamiltonianChain]) -> Diagnostics:
    """Return the diagnostics of finished chains."""
    facts = np.stack([run.facts for run in runs])
    size = runs[0].samples.shape[1]
    which = np.unique(np.linspace(0, size - 1, min(size, _PARAMETERS_COMPARED)).round().astype(int))
    draws = np.stack([run.samples[:, which].double().numpy() for run in runs])
    return Diagnostics(
        acceptance=tuple(facts[..., 0].mean(axis=1).tolist()),
        step_size=tuple(math.exp(run.steps.log_average) for run in runs),
        leapfrog_steps=tuple(facts[..., 2].mean(axis=1).tolist()),
        rhat=float(diagnostics.split_rhat(facts[..., 1])),
        effective_size=float(diagnostics.effective_size(facts[..., 1])),
        # NaN where none of the parameters moved.
        worst_rhat=float(np.fmax.reduce(diagnostics.split_rhat(draws))),
        least_effective_size=float(np.fmin.reduce(diagnostics.effective_size(draws))),
    )
