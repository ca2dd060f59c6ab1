"""Deep ensembles: networks that were trained apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from demur.posteriors import networks
from demur.posteriors.ensemble_training import Member, fit_members
from demur.posteriors.posterior import Posterior, select_members
from demur.posteriors.tensor_files import load_state, pack_weights, read_tensors, write_tensors


class DeepEnsemble(Posterior):
    r"""Networks trained apart, each one member.

    Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable predictive uncertainty estimation
    using deep ensembles", whose average is :math:`p(y | x) = M^{-1} \sum_m p(y | x, \theta_m)` (section 2.4),
    with the weights where they are given. ``fit`` trains them. Architectures may differ: give each its own
    ``prepare`` (the DE (all) of Schweighofer et al., 2023, is ten of them, with input sizes of their own).

    Parameters
    ----------
    models
        Networks, on any devices. In place of a network also a function without arguments that returns one:
        it is called when the member's turn comes and its network is then let go, for ensembles that do not
        fit in memory together. With those, score with ``order="member"``.
    weights
        Shape (members,), positive; None: all the same.
    prepare
        From the inputs of a batch to those of a network: one function for all, or one for each.
    forward
        From a network and its inputs to logits, where ``network(inputs)`` does not return them, or to
        ``demur.Gaussian(mean, variance)`` for networks that predict numbers.

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
        """Train members apart, several at a time, with a training function of your own.

        Each member is kept as soon as it is done. The same call after a kill goes on with the members that
        miss, and gives what a run without a kill gives. So does a call for more members.

        Parameters
        ----------
        factory
            Without arguments, returns a network that is not trained. The generators of Python, NumPy and
            PyTorch have the member's seed.
        train
            ``train(model, member)`` trains a network, in place, or returns it. ``member.index`` and
            ``member.seed`` are for what needs them.
        members
            How many; the paper's ImageNet tables have ten.
        seed
            Fixes all members, if ``train`` does.
        folder
            Where members are kept, a safetensors file each; None: nowhere, unless a training fails. A folder
            of other settings (seed, threads, code of the two functions) is refused.
        processes
            How many members are trained at a time, each in a process of its own; None: as many as there are
            cores; 0 or 1: one after the other in this process, which takes any function.
        threads
            Threads of PyTorch for each member; None: as it chooses. The last digits may depend on it.
        progress
            Show how far it has come, on a terminal.
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
        for k in select_members(members, len(self.models)):
            model, prepare = self._model(k), self.prepare[k]
            with networks.suspend_training([model]), networks.preserve_random_state():
                found = networks.call_model(model, batch if prepare is None else prepare(batch), self.forward)
            weight = None if self.weights is None else self.weights[k : k + 1]
            yield networks.stack_members([found]), weight

    def _model(self, k: int) -> Any:
        import torch

        model = self.models[k]
        if not isinstance(model, torch.nn.Module):
            model = model()
            networks.check_network(f"What models[{k}] returns", model)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, and the parameters and buffers of all networks, to a safetensors file."""
        tensors = {
            f"{k}.{name}": tensor
            for k in range(len(self.models))
            for name, tensor in self._model(k).state_dict().items()
        }
        tensors |= pack_weights(self.weights)
        write_tensors(path, tensors, {"method": "DeepEnsemble", "members": str(self.members)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], models: Sequence[Any], **options: Any) -> Self:
        """Read what ``save`` wrote into networks of the same architectures; ``options`` as for the class."""
        tensors, facts = read_tensors(path, "DeepEnsemble")
        if int(facts["members"]) != len(models):
            raise ValueError(
                f"{os.fspath(path)!r} holds {facts['members']} members. Got {len(models)} models."
            )
        for k, model in enumerate(models):
            own = {n.partition(".")[2]: t for n, t in tensors.items() if n.startswith(f"{k}.")}
            load_state(f"models[{k}]", model, own)
        return cls(models, **{"weights": tensors.get("weights"), **options})
