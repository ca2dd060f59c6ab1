"""`MarkovChain`, the base class of stochastic-gradient MCMC: draws, keeps and applies samples."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self, TypedDict

from demur.posteriors import networks
from demur.posteriors.chains.checkpoint import ChainCheckpoint
from demur.posteriors.chains.gradients import Likelihood
from demur.posteriors.chains.minibatches import describe_data, make_minibatches
from demur.posteriors.chains.schedule import Schedule
from demur.posteriors.chains.stepper import Factors, Moving, Stepper
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.parameter_samples import ParameterSamples
from demur.posteriors.posterior import check_seed, select_members
from demur.progress import progress_bar


class ChainOptions(TypedDict, total=False):
    """The arguments that all samplers share; `MarkovChain` describes them."""

    log_likelihood: Likelihood | None
    prior_scale: float
    prior_mean: Any
    temperature: float
    seed: int
    forward: networks.Forward | None
    keep: bool
    checkpoint: str | os.PathLike[str] | None
    every: float


class MarkovChain(ParameterSamples):
    r"""Samples of a network's parameters, along a Markov chain that converges to the posterior.

    The posterior is that of all parameters with ``requires_grad``, given N inputs and a Gaussian prior with
    mean :math:`\mu` (``prior_mean``) and standard deviation s (``prior_scale``), at a temperature T:

    .. math:: p(w) \propto \Bigl(\prod_{n=1}^N p(y_n \mid x_n, w)\; \mathcal N(w;\, \mu, s^2)\Bigr)^{1 / T}.

    A batch of B inputs estimates the log-likelihood as N / B times its own. Dropout is off, and batch norm
    uses its running statistics. Neither these nor the model's own parameters change.

    Parameters
    ----------
    log_likelihood
        A function of the model's output for a batch and of the targets that returns the log-likelihood of
        each input, shape (inputs,). None: the targets are classes, or probabilities of classes, and the model
        returns logits.
    prior_scale
        Standard deviation of the prior; ``math.inf``: a flat prior. The default is the weight decay of
        Zhang et al., 5e-4 at N = 50 000, as a prior: 1 / 0.2^2 = 5e-4 N.
    prior_mean
        The centre of the prior: None for zero, ``"model"`` for the parameters of the model, or a mapping of
        tensors by name.
    temperature
        1: the posterior. Below 1: a colder posterior. 0: no noise, and so optimisation instead of sampling.
        (In the code of Zhang et al. the default of 1 / 50 000 is such a temperature, on top of the division
        by N.)
    seed
        The seed of all draws and of the order of the data, whatever was computed before.
    forward
        A function of the network and its inputs that returns logits, or ``demur.Gaussian(mean, variance)``,
        where ``model(inputs)`` does not return logits. Your own ``log_likelihood`` gets the model's output.
    keep
        False: samples are drawn on demand and not kept. Score with ``order="member"``: a later member
        advances the chain, an earlier one starts again from the first state of the cycle, or of the chain.
    checkpoint
        A folder for the samples and the chain's last state. After an interruption, the same call resumes from
        there and draws the same samples; finished samples are read. A folder for another model or other data
        is refused; of a loader, only size and first batch are compared. Changes in functions go unnoticed.
    every
        Seconds between writes of the state.
    """

    has_momenta = False

    def __init__(
        self,
        model: Any,
        data: Any,
        plan: dict[str, Any],
        *,
        epochs: float,
        steps: int | None,
        batch_size: int,
        log_likelihood: Likelihood | None = None,
        prior_scale: float = 0.2,
        prior_mean: Any = None,
        temperature: float = 1.0,
        seed: int = 0,
        forward: networks.Forward | None = None,
        keep: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 30.0,
    ) -> None:
        networks.check_network("model", model)
        seed = check_seed(seed)
        minibatches = make_minibatches(data, batch_size, seed)
        if steps is None:
            if not epochs > 0:
                raise ValueError(f"epochs must be positive. Got {epochs!r}.")
            steps = round(epochs * minibatches.batches_per_pass)
        schedule = Schedule(steps=steps, **plan)
        self._set_up(model, forward, schedule.samples)
        self.seed, self.keep = seed, keep
        self.stepper = Stepper(
            model, minibatches, schedule, self._move, log_likelihood=log_likelihood, prior_scale=prior_scale,
            prior_mean=prior_mean, temperature=temperature, seed=seed, forward=forward,
            momenta=self.has_momenta,
        )  # fmt: skip
        self._kept, self._now = [self.stepper.start], None
        self._place = (checkpoint, every)

    def _set_up(self, model: Any, forward: networks.Forward | None, members: int) -> None:
        super()._set_up(model, forward, members)
        self.keep, self._files = True, None
        self.stepper: Any = None

    @abstractmethod
    def _move(self, moving: Moving, factors: Factors, rate: float, temperature: float) -> None:
        """Move all parameters by one step, in place; see `Stepper`."""

    # --- drawing ---------------------------------------------------------------------------------

    def fit(self, *, progress: bool = True) -> Self:
        if not self.keep:
            raise ValueError("fit keeps samples. Got keep=False, which draws them on demand.")
        return super().fit(progress=progress)

    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        steps = self.stepper.schedule.steps
        with progress_bar(steps, "steps", hidden=not progress) as show:
            samples = self._draw_all(range(self.members or 0), show)
        self._kept, self._now = [self.stepper.start], None
        return samples

    def parameters(self, members: range | None = None) -> dict[str, Any]:
        if self.keep:
            return super().parameters(members)
        return self._draw_all(select_members(members, self.members or 0))

    def _draw_all(self, wanted: range, show: Callable[[int], object] = lambda done: None) -> dict[str, Any]:
        """Return the parameters of samples, by name."""
        import torch

        start = self.stepper.start.parameters
        # A state created in inference mode could not be changed outside of it.
        with (
            torch.inference_mode(False),
            networks.suspend_training([self.model]),
            networks.preserve_random_state(),
        ):
            found = {name: value.new_empty((len(wanted), *value.shape)) for name, value in start.items()}
            for place, sample in enumerate(wanted):
                for name, value in self._draw(sample, show).items():
                    found[name][place] = value
        return found

    def _draw(self, sample: int, show: Callable[[int], object]) -> dict[str, Any]:
        """Return one sample's parameters, from its file or by steps from the nearest earlier state.

        The next steps overwrite them.
        """
        schedule, target = self.stepper.schedule, self.stepper.schedule.find_step(sample)
        files, start = self._open_folder(), self.stepper.start
        if files is not None and self.keep and (found := files.read_sample(sample, start)) is not None:
            show(target)
            return found
        known = self._kept if self._now is None else [self._now, *self._kept]
        nearest = max((each for each in known if each.step <= target), key=lambda each: each.step)
        state = nearest if nearest is self._now else nearest.copy()
        self._now = None  # an interrupt must not leave a state halfway through a step
        while state.step < target:
            self.stepper.advance(state)
            show(state.step)
            if state.step % schedule.length == 0 and state.step < schedule.steps:
                self._kept = [self.stepper.start, state.copy()]
            if files is not None and files.due():
                files.write_state(state)
        self.stepper.check(state)
        self._now = state
        if files is not None and self.keep:
            files.write_sample(sample, state.parameters)
        return state.parameters

    def _open_folder(self) -> ChainCheckpoint | None:
        """Return the folder of the chain, which is opened at its first use."""
        path, every = self._place
        if path is not None and self._files is None:
            self._files = ChainCheckpoint(path, f"{type(self).__name__} chain", self._facts(), every)
            self._kept = [self.stepper.start, *self._files.read_states(self.stepper.start)]
        return self._files

    def _facts(self) -> dict[str, Any]:
        """Return what must be unchanged for a chain to resume."""
        stepper = self.stepper
        return {
            "method": type(self).__name__,
            "schedule": repr(stepper.schedule),
            "friction": getattr(self, "friction", None),
            "seed": self.seed,
            "temperature": stepper.temperature,
            "prior_scale": stepper.prior_scale,
            "prior_mean": fingerprint(stepper.prior_mean),
            "parameters": fingerprint(stepper.start.parameters),
            "data": describe_data(stepper.minibatches),
            "keep": self.keep,
        }

    def fingerprint(self) -> str:
        return fingerprint(self._samples if self.stepper is None else self._facts())

    # --- applying --------------------------------------------------------------------------------

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        if members is None and not self.keep:
            raise ValueError(
                "keep=False draws members on demand, and would draw them again for each batch. "
                "Score with order='member', or keep them."
            )
        yield from super().predict(batch, members=members, position=position)

    @property
    def _predicts_in_chunks(self) -> bool:
        return self.keep

    def save(self, path: str | os.PathLike[str]) -> None:
        if not self.keep:
            raise ValueError("Expected samples to save. Got keep=False, which keeps none.")
        super().save(path)
