"""`SWAG`: a Gaussian about the average of the iterates of SGD."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
from typing import Any, Self

from demur.posteriors import networks
from demur.posteriors.chains.gradients import BatchLikelihood, Likelihood
from demur.posteriors.chains.minibatches import describe_data, make_minibatches
from demur.posteriors.chains.stepper import copy_parameters
from demur.posteriors.fingerprint import describe_code, fingerprint
from demur.posteriors.parameter_samples import ParameterSamples
from demur.posteriors.parameter_vectors import join_parameters, split_vector
from demur.posteriors.posterior import check_count, check_seed, select_members
from demur.posteriors.resumable_training import TrainingFile
from demur.posteriors.tensor_files import load_state, read_tensors, write_tensors
from demur.posteriors.weight_averaging.batch_norm import MemberStatistics, find_batch_norm
from demur.posteriors.weight_averaging.descent import DescentPlan, collect_iterates
from demur.posteriors.weight_averaging.moments import IterateMoments
from demur.posteriors.weight_averaging.packing import (
    join_moments,
    pack_tensors,
    sort_by_kind,
    stack_members,
)


class SWAG(ParameterSamples):
    r"""Draws from a Gaussian about the average of SGD's iterates, with their variances and last deviations.

    Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), "A simple baseline for Bayesian uncertainty in deep
    learning", Algorithm 1 and Eq. 1:

    .. math:: \tilde\theta = \bar\theta + \sqrt{c}\, \Sigma_{diag}^{1/2} z_1
              + \sqrt{\tfrac{c}{K - 1}}\, \hat D z_2, \qquad c = \tfrac12,

    with the mean :math:`\bar\theta` and the variances :math:`\Sigma_{diag}` of the iterates, and the last K
    deviations :math:`\hat D` from the mean so far. There is one :math:`z_2` for all layers: drawn layer by
    layer, the correlations between layers would be lost.

    Call ``collect`` after each epoch of your own training, or let ``fit`` train. Until K iterates are
    collected, K is their number. Parameters with ``requires_grad`` are drawn. The others, and buffers, are
    the model's, except that batch norm gets new statistics for each draw, from a pass over the training data.

    Parameters
    ----------
    model
        The network.
    data
        The training data for batch norm: a pair (inputs, targets) of arrays, a ``Dataset`` or a
        ``DataLoader``. A part of it is enough. Networks without batch norm need none.
    samples
        The number of members.
    rank
        K, the number of deviations; 0: only the diagonal, with ``scale=1`` in the paper (section 3.2).
    scale
        c, the factor of the covariance.
    refresh
        False: batch norm keeps the model's own statistics, which belong to other parameters.
    batch_size
        Inputs per batch of ``data``, unless it is a loader.
    seed
        The seed of all draws. A member's draw does not depend on the number of members.
    forward
        A function of the network and its inputs that returns logits, or ``demur.Gaussian(mean, variance)``,
        where ``model(inputs)`` does not return logits.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> swag = demur.posteriors.SWAG(model, samples=20)
    >>> for epoch in range(25):
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(x), y).backward()
    ...     _ = optimizer.step()
    ...     if epoch >= 5:
    ...         swag.collect(model)
    >>> swag
    SWAG(20 samples from 20 iterates)
    >>> demur.score(swag, [x[:5]], progress=False).members
    20
    """

    numbers_kept = 1 << 28
    """Parameters of all members together, at most, that are kept between batches: 1 GiB in float32."""

    def __init__(
        self,
        model: Any,
        *,
        data: Any = None,
        samples: int = 30,
        rank: int = 20,
        scale: float = 0.5,
        refresh: bool = True,
        batch_size: int = 128,
        seed: int = 0,
        forward: networks.Forward | None = None,
    ) -> None:
        check_count("samples", samples)
        seed = check_seed(seed)
        if not isinstance(rank, int) or rank < 0 or rank == 1:
            raise ValueError(
                f"rank must be at least 2, since deviations are divided by rank - 1, or 0. Got {rank!r}."
            )
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be positive and finite. Got {scale!r}.")
        networks.check_network("model", model)
        model = networks.unwrap_compiled(model)
        self._set_up(model, forward, samples)
        self.scale, self.seed, self.refresh = float(scale), seed, refresh
        self._minibatches = None if data is None else make_minibatches(data, batch_size, seed)
        start = copy_parameters(model)
        self._shapes = {name: value.shape for name, value in start.items()}
        self.moments = IterateMoments(join_parameters(start), rank)
        self._statistics = MemberStatistics(model, self._call, self._minibatches)
        self._ready: set[int] = set()

    def __repr__(self) -> str:
        return f"SWAG({self.members} samples from {self.moments.count} iterates)"

    # As in `DeepEnsemble` and `LastLayer`, it makes a posterior; members are drawn when they are asked for.
    @classmethod
    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        model: Any,
        data: Any,
        *,
        samples: int = 30,
        rank: int = 20,
        scale: float = 0.5,
        epochs: int = 140,
        burn_in: int = 0,
        rate: float = 0.01,
        start_rate: float | None = None,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        collections: int = 1,
        batch_size: int = 128,
        log_likelihood: Likelihood | None = None,
        refresh: bool = True,
        seed: int = 0,
        forward: networks.Forward | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 30.0,
        progress: bool = True,
    ) -> Self:
        """Run SGD with a constant learning rate from a trained model, and collect its iterates.

        The model is copied and stays as it is. Defaults are those of the paper for VGG-16 on CIFAR. Its start
        is not collected, as in the authors' code; Algorithm 1 counts it as well.

        Parameters
        ----------
        model
            A trained network. It is trained in training mode, with dropout and batch norm.
        data
            The training data, as for `MarkovChain`.
        samples, rank, scale, refresh, seed, forward
            As for the class.
        epochs
            Passes over the data in which iterates are collected.
        burn_in
            Passes before that, in which the learning rate goes from ``start_rate`` to ``rate`` along a
            cosine, as in ``torch.optim.swa_utils.SWALR``; without a ``start_rate`` it is constant.
        rate
            The learning rate, high enough for iterates to move about: for networks with batch norm, the
            paper has 0.05.
        start_rate
            The learning rate at which training ended.
        momentum, weight_decay
            Of SGD. A Gaussian prior of standard deviation s is a weight decay of 1 / (s**2 N).
        collections
            Iterates per pass that are collected.
        batch_size
            Inputs per step, unless the data is a loader.
        log_likelihood
            A function of the model's output for a batch and of the targets that returns the log-likelihood of
            each input. None: the targets are classes, and the model returns logits.
        checkpoint, every
            A file, and seconds between writes. After an interruption, the same call resumes and gives the
            same posterior.
        progress
            Show a progress bar, on a terminal.

        Examples
        --------
        >>> import torch
        >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
        >>> demur.posteriors.SWAG.fit(torch.nn.Linear(4, 3), (x, y), samples=10, epochs=20)
        SWAG(10 samples from 20 iterates)
        """
        networks.check_network("model", model)
        plan = DescentPlan(epochs, burn_in, rate, start_rate, momentum, weight_decay, collections)
        trained = copy.deepcopy(networks.unwrap_compiled(model))
        self = cls(
            trained, data=data, samples=samples, rank=rank, scale=scale, refresh=refresh,
            batch_size=batch_size, seed=seed, forward=forward,
        )  # fmt: skip
        assert self._minibatches is not None
        settings = {
            **dataclasses.asdict(plan), "rank": rank, "seed": self.seed, "model": fingerprint(model),
            "data": describe_data(self._minibatches),
            "likelihood": fingerprint(describe_code(log_likelihood)),
        }  # fmt: skip
        collect_iterates(
            trained, self.moments, self._minibatches, BatchLikelihood(trained, log_likelihood, forward), plan,
            self.collect, seed=self.seed, file=TrainingFile(checkpoint, "SWAG", settings, every),
            progress=progress,
        )  # fmt: skip
        return self

    def collect(self, model: Any = None) -> None:
        """Add the parameters of a network as they are now; None: of the one that SWAG was made with.

        Members that were drawn before are drawn anew.
        """
        model = self.model if model is None else model
        networks.check_network("model", model)
        given = {
            n: v.detach() for n, v in networks.unwrap_compiled(model).named_parameters() if n in self._shapes
        }
        if {name: value.shape for name, value in given.items()} != self._shapes:
            raise ValueError("model must have the parameters that SWAG was made for. Got other ones.")
        vector = join_parameters({name: given[name] for name in self._shapes})
        if not vector.isfinite().all():
            raise FloatingPointError("Expected finite parameters. Got others. Lower the learning rate.")
        self.moments.collect(vector)
        self._samples, self._ready = None, set()
        self._statistics.clear()

    @property
    def mean(self) -> dict[str, Any]:
        """The average of the iterates by name: the SWA solution of Izmailov et al. (2018)."""
        self._check_collected()
        return split_vector(self.moments.mean.clone(), self._shapes)

    # --- drawing ---------------------------------------------------------------------------------

    def parameters(self, members: range | None = None) -> dict[str, Any]:
        """Return the parameters of samples, and their batch-norm statistics, with samples on axis 0."""
        wanted = select_members(members, self.members or 0)
        if not self._predicts_in_chunks:
            return stack_members([self._draw_member(k) for k in wanted])
        for k in wanted:
            if k not in self._ready:
                drawn = self._draw_member(k)
                if self._samples is None:
                    self._samples = {n: v.new_empty((self.members, *v.shape)) for n, v in drawn.items()}
                for name, value in drawn.items():
                    self._samples[name][k] = value
                self._ready.add(k)
        return super().parameters(wanted)

    def _hold_samples(self, progress: bool = True) -> None:
        """Do nothing: ``parameters`` draws each member when it is first asked for."""

    def _draw_samples(self, progress: bool) -> dict[str, Any]:
        return self.parameters()

    @property
    def _predicts_in_chunks(self) -> bool:
        return (self.members or 0) * len(self.moments.mean) <= self.numbers_kept

    def _draw_member(self, k: int) -> dict[str, Any]:
        """Return the parameters of a member, and its batch-norm statistics, which are always kept."""
        found = self._draw_parameters(k)
        return found | self._statistics.find(k, found) if self.refresh else found

    def _draw_parameters(self, k: int) -> dict[str, Any]:
        """Return the parameters of a member."""
        self._check_collected()
        vector = self.moments.draw(self.scale, networks.derive_seed(self.seed, 4, k))
        own = dict(self.model.named_parameters())
        return {name: value.to(own[name]) for name, value in split_vector(vector, self._shapes).items()}

    def _check_collected(self) -> None:
        """Raise unless there are iterates enough."""
        if self.moments.count < 2:
            raise ValueError(
                f"Expected at least 2 iterates. Got {self.moments.count}. Call collect after each epoch."
            )

    def _list_rest(self) -> dict[str, Any]:
        """Return what the members share: parameters that are not drawn, and buffers."""
        return {n: v for n, v in self.model.state_dict().items() if n not in self._shapes}

    def fingerprint(self) -> str:
        minibatches = self._minibatches
        inputs = None if minibatches is None else describe_data(minibatches)
        own = self.members, self.scale, self.seed, self.refresh
        return fingerprint(own, self.moments.tensors(), inputs, self._list_rest())

    # --- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments of the iterates, and the batch-norm statistics of all members."""
        tensors, facts = self.pack()
        write_tensors(path, tensors, {"method": "SWAG", "settings": json.dumps(facts)})

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Any,
        *,
        data: Any = None,
        forward: networks.Forward | None = None,
    ) -> Self:
        """Read what ``save`` wrote, for a model of the same architecture, which gets the average parameters.

        The members are the same. To collect more iterates where there is batch norm, give ``data``.
        """
        tensors, facts = read_tensors(path, "SWAG")
        return cls.unpack(tensors, json.loads(facts["settings"]), model, data=data, forward=forward)

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return tensors and settings for a file."""
        self._check_collected()
        statistics = [
            self._statistics.find(k, self._draw_parameters(k))
            for k in range(self.members or 0)
            if self.refresh and find_batch_norm(self.model)
        ]
        tensors = pack_tensors(self._list_rest(), self.moments.tensors(), self._shapes, statistics)
        facts = {
            "samples": self.members, "rank": self.moments.rank, "scale": self.scale, "seed": self.seed,
            "refresh": self.refresh, "count": self.moments.count,
        }  # fmt: skip
        return tensors, facts

    @classmethod
    def unpack(
        cls, tensors: dict[str, Any], facts: dict[str, Any], model: Any, *, data: Any, forward: Any
    ) -> Self:
        """Return what ``pack`` packed."""
        parts = sort_by_kind(tensors)
        load_state("model", model, parts["rest"] | parts["mean"])
        self = cls(model, data=data, forward=forward, **{n: v for n, v in facts.items() if n != "count"})
        if parts["mean"].keys() != self._shapes.keys():
            raise ValueError("model must have requires_grad on the parameters that were drawn. Got others.")
        self.moments.restore(facts["count"], join_moments(parts, list(self._shapes)))
        if parts["statistics"]:
            place = networks.locate_model(model)[0]
            for k in range(self.members or 0):
                own = {name: value[k].to(place) for name, value in parts["statistics"].items()}
                self._statistics.restore(k, own)
        return self
