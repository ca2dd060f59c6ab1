"""`DeepEnsemble`: independently trained networks."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.ensemble_training import Member, fit_members
from demur.posteriors.posterior import Posterior, select_members
from demur.posteriors.tensor_files import load_state, pack_weights, read_tensors, write_tensors
from demur.predictions import Mixture, SecondOrder


class DeepEnsemble(Posterior):
    r"""Independently trained networks, each a member.

    Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable predictive uncertainty estimation
    using deep ensembles", whose average is :math:`p(y | x) = M^{-1} \sum_m p(y | x, \theta_m)` (section 2.4),
    weighted where weights are given. ``fit`` trains them. Architectures may differ: each may have its own
    ``prepare`` (the DE (all) of Schweighofer et al., 2023, has ten architectures with different input sizes).

    Parameters
    ----------
    models
        Networks, on any devices. For ensembles that do not fit in memory together, give functions without
        arguments that each return a network: it is loaded for the member's turn and released afterwards. Then
        score with ``order="member"``.
    weights
        Shape (members,), positive; None: equal weights.
    prepare
        A function that turns the inputs of a batch into those of a network: one for all, or one for each.
    forward
        A function of a network and its inputs that returns logits, where ``network(inputs)`` does not, or
        ``demur.Gaussian(mean, variance)`` for networks that predict numbers. Evidential networks may return a
        ``demur.Dirichlet``; the posterior is then the mixture of those of all networks.

    Examples
    --------
    >>> import torch
    >>> models = [torch.nn.Linear(4, 3) for _ in range(5)]
    >>> scores = demur.score(demur.posteriors.DeepEnsemble(models), [torch.zeros(2, 4)], progress=False)
    >>> scores["pairwise"].epistemic.shape, scores.members
    ((2,), 5)
    """

    def __init__(
        self,
        models: Sequence[Any],
        *,
        weights: Any = None,
        prepare: Callable[[Any], Any] | Sequence[Callable[[Any], Any] | None] | None = None,
        forward: networks.Forward | None = None,
    ) -> None:
        self.models = list(models)
        if not self.models:
            raise ValueError("models must have at least one network. Got none.")
        for model in self.models:
            if not callable(model):
                raise TypeError(
                    "models must be networks, or functions that return one. "
                    f"Got {type(model).__name__} among them."
                )
        self.members = len(self.models)
        self.weights = None if weights is None else np.asarray(weights, float)
        if self.weights is not None and (
            self.weights.shape != (self.members,) or not (self.weights > 0).all()
        ):
            raise ValueError(f"weights must be {self.members} positive numbers. Got {weights!r}.")
        if prepare is None or callable(prepare):
            self.prepare = [prepare] * self.members
        else:
            self.prepare = list(prepare)
        if len(self.prepare) != self.members:
            raise ValueError(
                f"prepare must be one function, or one for each of {self.members} models. "
                f"Got {len(self.prepare)}."
            )
        self.forward = forward

    @classmethod
    def fit(
        cls,
        factory: Callable[[], Any],
        train: Callable[[Any, Member], Any],
        members: int = 10,
        *,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        processes: int | None = None,
        threads: int | None = 1,
        progress: bool = True,
        **options: Any,
    ) -> Self:
        """Train members independently, several at a time, with your own training function.

        Each member is written to ``folder`` once it is done. After an interruption, the same call trains only
        the missing members, with the same result as an uninterrupted run. So does a call for more members.

        Parameters
        ----------
        factory
            A function without arguments that returns an untrained network. The generators of Python, NumPy
            and PyTorch are seeded for the member.
        train
            ``train(model, member)`` trains a network in place, or returns it. ``member.index`` and
            ``member.seed`` are there if you need them.
        members
            The number of members; the paper's ImageNet tables have ten.
        seed
            The seed of all members. Results repeat if ``train`` is deterministic.
        folder
            A folder with one safetensors file per member; None: a temporary one, which is kept until the
            process ends if training fails. A folder with other settings (seed, threads, code of the two
            functions) is refused.
        processes
            How many members are trained at a time, each in its own process; None: as many as there are cores;
            0 or 1: one after the other in this process, which accepts any function.
        threads
            PyTorch's threads per member; None: its default. The last digits of results may depend on it.
        progress
            Show a progress bar, on a terminal.
        options
            As for the class.

        Examples
        --------
        >>> import torch
        >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
        >>> def train(model, member):
        ...     optimizer = torch.optim.Adam(model.parameters())
        ...     for _ in range(20):
        ...         optimizer.zero_grad()
        ...         torch.nn.functional.cross_entropy(model(x), y).backward()
        ...         _ = optimizer.step()
        >>> demur.posteriors.DeepEnsemble.fit(lambda: torch.nn.Linear(4, 3), train, 5, processes=0)
        DeepEnsemble(5 models)
        """
        models = fit_members(
            factory, train, members, seed=seed, folder=folder, processes=processes, threads=threads,
            progress=progress,
        )  # fmt: skip
        return cls(models, **options)

    def __repr__(self) -> str:
        return f"DeepEnsemble({self.members} models)"

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        distributions = []
        wanted = select_members(members, len(self.models))
        for k in wanted:
            model, prepare = self._load_model(k), self.prepare[k]
            with networks.suspend_training([model]), networks.preserve_random_state():
                found = networks.call_model(model, batch if prepare is None else prepare(batch), self.forward)
            if isinstance(found, SecondOrder):
                distributions.append(found)
                continue
            weight = None if self.weights is None else self.weights[k : k + 1]
            yield networks.stack_members([found]), weight
        if distributions:
            weights = None if self.weights is None else self.weights[wanted.start : wanted.stop]
            yield distributions[0] if len(distributions) == 1 else Mixture(distributions, weights)

    def keep_loaded(self, members: range | None) -> DeepEnsemble:
        wanted = select_members(members, len(self.models))
        found = copy.copy(self)
        found.models = [self._load_model(k) if k in wanted else each for k, each in enumerate(self.models)]
        return found

    def _load_model(self, k: int) -> Any:
        """Return the network of a member, calling the function that loads it."""
        import torch

        model = self.models[k]
        if not isinstance(model, torch.nn.Module):
            model = model()
            networks.check_network(f"What models[{k}] returns", model)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file: weights, and the parameters and buffers of all networks."""
        tensors = {
            f"{k}.{name}": tensor
            for k in range(len(self.models))
            for name, tensor in self._load_model(k).state_dict().items()
        }
        tensors |= pack_weights(self.weights)
        write_tensors(path, tensors, {"method": "DeepEnsemble", "members": str(self.members)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], models: Sequence[Any], **options: Any) -> Self:
        """Read a file from ``save`` into networks of the same architectures; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "DeepEnsemble")
        if int(facts["members"]) != len(models):
            raise ValueError(
                f"{os.fspath(path)!r} holds {facts['members']} members. Got {len(models)} models."
            )
        for k, model in enumerate(models):
            own = {n.partition(".")[2]: t for n, t in tensors.items() if n.startswith(f"{k}.")}
            load_state(f"models[{k}]", model, own)
        return cls(models, **{"weights": tensors.get("weights"), **options})
