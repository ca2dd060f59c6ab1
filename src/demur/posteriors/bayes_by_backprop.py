"""`BayesByBackprop`: variational inference with a Gaussian that is independent for each parameter."""

from __future__ import annotations

import math
import os
from typing import Any, Self, Unpack

from demur.posteriors import networks
from demur.posteriors.chains.gradients import BatchLikelihood
from demur.posteriors.chains.log_posterior import DensityOptions, check_prior_scale
from demur.posteriors.chains.minibatches import describe_data, make_minibatches
from demur.posteriors.chains.stepper import check_prior_mean, copy_parameters
from demur.posteriors.fingerprint import describe_code, fingerprint
from demur.posteriors.parameter_samples import ParameterSamples, find_sampled
from demur.posteriors.parameter_vectors import join_parameters, split_vector
from demur.posteriors.posterior import check_count, check_seed
from demur.posteriors.resumable_training import Descent, TrainingFile, pack_optimizer, restore_optimizer
from demur.posteriors.tensor_files import read_tensors, write_tensors
from demur.posteriors.variational.mean_field import MeanField
from demur.posteriors.variational.objective import VariationalObjective, Weighting, find_share
from demur.posteriors.variational.priors import GaussianPrior, ScaleMixturePrior, check_mixture


class BayesByBackprop(ParameterSamples):
    r"""Draws from the Gaussian, independent for each parameter, that is closest to the posterior.

    Blundell, Cornebise, Kavukcuoglu and Wierstra (2015), "Weight uncertainty in neural networks", Eq. 1 to 9.
    Means and scales :math:`\sigma = \log(1 + e^\rho)` of all parameters with ``requires_grad`` minimise

    .. math:: \mathrm{KL}\bigl(q(w),\, p(w)\bigr) - \mathrm E_q \log p(y \mid x, w)

    by stochastic gradients. Linear and convolutional layers draw their outputs, independently for each input,
    instead of their weights (Kingma, Salimans and Welling, 2015: local reparameterisation), which gives
    gradients of less variance. All other parameters are drawn once per batch. The posterior is that of
    `MarkovChain`, which describes the options: dropout is off, and batch norm uses its running statistics.
    The parameters of batch norm are drawn like all others.

    Parameters
    ----------
    model
        The network. Means start at its parameters; it is not changed.
    data
        The training data: a pair (inputs, targets) of arrays, a ``Dataset``, or a ``DataLoader``, whose
        batches are then used.
    samples
        The number of members.
    epochs, steps
        Passes over the data, or, if given, the number of steps. (The paper trains for 600 passes on MNIST.)
    batch_size
        Inputs per step, unless the data is a loader.
    rate
        Step size of Adam at the start; it falls to 0 along a cosine, so that the noise of the gradients
        averages out. (The paper has plain SGD.)
    draws
        Draws per step, over which the loss is averaged.
    local
        False: draw the weights of all layers, once per batch.
    start_scale
        Standard deviation of all parameters at the start.
    kl_weight
        Factor of the KL divergence; 1: the evidence lower bound. Below 1, the data count for more than they
        should, and the Gaussian is narrower.
    weighting
        How a pass spreads the KL divergence over its batches: ``"uniform"``, or ``"geometric"``, the paper's
        Eq. 9.
    mixture
        Share and scale of the wide part, and scale of the narrow part, of the paper's prior (Eq. 7), as
        ``(0.5, 1.0, math.exp(-6))``, in place of the Gaussian with ``prior_scale``. Its cross-entropy is
        estimated by one draw per step.
    checkpoint, every
        A file, and seconds between writes. After an interruption, the same call resumes and draws the same
        samples.
    **options
        ``log_likelihood``, ``prior_scale=0.2``, ``prior_mean=None``, ``temperature=1.0``, ``seed=0``,
        ``forward``: see `MarkovChain`.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
    >>> posterior = demur.posteriors.BayesByBackprop(torch.nn.Linear(4, 3), (x, y), samples=20, epochs=50)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    20
    >>> posterior.scale["weight"].shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        *,
        samples: int = 100,
        epochs: float = 600,
        steps: int | None = None,
        batch_size: int = 128,
        rate: float = 1e-3,
        draws: int = 1,
        local: bool = True,
        start_scale: float = 0.05,
        kl_weight: float = 1.0,
        weighting: Weighting = "uniform",
        mixture: tuple[float, float, float] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 30.0,
        **options: Unpack[DensityOptions],
    ) -> None:
        import torch

        check_count("samples", samples)
        check_count("draws", draws)
        for name, value in (("rate", rate), ("start_scale", start_scale)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite. Got {value!r}.")
        if not 0 <= kl_weight < math.inf:
            raise ValueError(f"kl_weight must be 0 or more, and finite. Got {kl_weight!r}.")
        if weighting not in ("uniform", "geometric"):
            raise ValueError(f"weighting must be 'uniform' or 'geometric'. Got {weighting!r}.")
        if mixture is not None and "prior_scale" in options:
            raise ValueError("mixture takes the place of prior_scale. Got both.")
        networks.check_network("model", model)
        model = networks.unwrap_compiled(model)  # whose layers can be called
        self._set_up(model, options.get("forward"), samples)
        self.seed, self.rate, self.start_scale = check_seed(options.get("seed", 0)), rate, float(start_scale)
        self.weighting: Weighting = weighting
        self._minibatches = make_minibatches(data, batch_size, self.seed)
        if steps is None:
            if not epochs > 0:
                raise ValueError(f"epochs must be positive. Got {epochs!r}.")
            steps = round(epochs * self._minibatches.batches_per_pass)
        self.steps = check_count("steps", steps)
        start = copy_parameters(model)
        self._shapes, self._start = {n: v.shape for n, v in start.items()}, join_parameters(start)
        means = check_prior_mean(options.get("prior_mean"), start)
        centre = torch.zeros_like(self._start)
        if means is not None:
            centre = join_parameters({name: means[name] for name in start})
        given = options.get("prior_scale", 0.2), options.get("temperature", 1.0)
        scale, temperature = check_prior_scale(*given)
        if mixture is None:
            prior = GaussianPrior(centre, scale)
        else:
            prior = ScaleMixturePrior(centre, *check_mixture(mixture))
        likelihood = options.get("log_likelihood")
        self.objective = VariationalObjective(
            model, BatchLikelihood(model, likelihood, options.get("forward")), self._shapes, prior,
            size=self._minibatches.size, temperature=temperature, kl_weight=kl_weight, draws=draws,
            local=local,
        )  # fmt: skip
        self._facts = {
            "steps": steps, "rate": rate, "draws": draws, "local": local, "start_scale": start_scale,
            "kl_weight": kl_weight, "weighting": weighting, "mixture": mixture, "prior_scale": scale,
            "temperature": temperature, "seed": self.seed, "parameters": fingerprint(self._start),
            "prior_mean": fingerprint(centre), "likelihood": fingerprint(describe_code(likelihood)),
            "data": describe_data(self._minibatches),
        }  # fmt: skip
        self._files = checkpoint, every

    def _set_up(self, model: Any, forward: networks.Forward | None, members: int) -> None:
        super()._set_up(model, forward, members)
        self.q: MeanField | None = None

    @property
    def mean(self) -> dict[str, Any]:
        """The means of all parameters by name; trains where needed."""
        self._hold_samples()
        assert self.q is not None
        return split_vector(self.q.mean.detach(), self._shapes)

    @property
    def scale(self) -> dict[str, Any]:
        """The standard deviations of all parameters by name; trains where needed."""
        self._hold_samples()
        assert self.q is not None
        return split_vector(self.q.scale.detach(), self._shapes)

    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        import torch

        with torch.inference_mode(False):
            if self.q is None:
                self.q = self._train(progress)
            drawn = [self.q.draw(networks.derive_seed(self.seed, 4, k)) for k in range(self.members or 0)]
            return split_vector(torch.stack(drawn), self._shapes)

    def _train(self, progress: bool) -> MeanField:
        """Return the trained Gaussian."""
        import torch

        q = MeanField(self._start, self.start_scale)
        optimizer = torch.optim.Adam([q.mean, q.rho], lr=self.rate)

        def compute_loss(batch: tuple[Any, Any], step: int) -> Any:
            share = find_share(self.weighting, step, self._minibatches.batches_per_pass)
            return self.objective.compute(q, batch, share)

        def find_rate(step: int) -> float:
            return self.rate * (1 + math.cos(math.pi * step / self.steps)) / 2

        def pack() -> dict[str, Any]:
            return {"mean": q.mean, "rho": q.rho} | pack_optimizer(optimizer)

        def restore(tensors: dict[str, Any]) -> None:
            with torch.no_grad():
                q.mean.copy_(tensors["mean"])
                q.rho.copy_(tensors["rho"])
            restore_optimizer(optimizer, tensors)

        place = networks.locate_model(self.model)
        descent = Descent(optimizer, self._minibatches, place, self.steps, compute_loss, find_rate, self.seed)
        path, every = self._files
        file = TrainingFile(path, "BayesByBackprop", self._facts, every)
        with (
            networks.suspend_training([self.model]), networks.preserve_random_state(), torch.enable_grad()
        ):  # fmt: skip
            # Always from the first batch, wherever a run resumes.
            first, targets = (networks.move_inputs(each, *place) for each in self._minibatches.at(0))
            self.objective.find_layers(q, (first, targets))
            file.run(self.steps, descent.take_step, pack, restore, progress=progress)
        return q

    def fingerprint(self) -> str:
        return fingerprint(self.members, self.seed, self._facts or self._samples)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write means and scales to a safetensors file."""
        self._hold_samples()
        assert self.q is not None
        parts = {"mean": self.q.mean.detach(), "rho": self.q.rho.detach()}
        tensors = {
            f"{part} {name}": value
            for part, vector in parts.items()
            for name, value in split_vector(vector, self._shapes).items()
        }
        facts = {"method": "BayesByBackprop", "samples": str(self.members), "seed": str(self.seed)}
        write_tensors(path, tensors, facts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], model: Any, *, forward: networks.Forward | None = None
    ) -> Self:
        """Read what ``save`` wrote, for a model of the same architecture; needs no data."""
        tensors, facts = read_tensors(path, "BayesByBackprop")
        mean, rho = (
            {n.removeprefix(part): t for n, t in tensors.items() if n.startswith(part)}
            for part in ("mean ", "rho ")
        )
        own = find_sampled(model, {name: value.shape for name, value in mean.items()})
        # Files have an order of their own, and draws depend on that of the vector.
        shapes = {name: value.shape for name, value in own.items() if name in mean}
        self = cls.__new__(cls)
        self._set_up(model, forward, int(facts["samples"]))
        self.seed, self._shapes, self._facts = int(facts["seed"]), shapes, {}
        place = own[next(iter(mean))]
        vectors = (join_parameters({n: part[n] for n in shapes}).to(place) for part in (mean, rho))
        self.q = MeanField.restore(*vectors)
        self._hold_samples()
        return self
