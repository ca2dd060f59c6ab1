"""`MultiSWAG`: several independent SWAGs, each about a mode of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from demur.posteriors import networks
from demur.posteriors.ensemble_training import Member, fit_members
from demur.posteriors.fingerprint import describe_code, fingerprint
from demur.posteriors.posterior import Posterior, select_members
from demur.posteriors.swag import SWAG
from demur.posteriors.tensor_files import read_tensors, write_tensors


class MultiSWAG(Posterior):
    r"""Members of several independent SWAGs, with equal weights.

    Wilson and Izmailov (2020), "Bayesian deep learning and a probabilistic perspective of generalization": a
    mixture of J Gaussians, each from a training run of its own,

    .. math:: q(\theta) = \tfrac1J \sum_j \mathcal N(\theta;\, \bar\theta_j,\, \Sigma_j).

    Member m is draw m // J of SWAG m % J, so that the first members already come from all SWAGs, and standard
    errors of `demur.decompose` with ``groups=J`` are those over independent training runs.

    Parameters
    ----------
    swags
        The SWAGs, with equal numbers of samples.

    Examples
    --------
    >>> import torch
    >>> x, y = torch.randn(200, 4), torch.randint(3, (200,))
    >>> models = [torch.nn.Linear(4, 3) for _ in range(3)]
    >>> swags = [demur.posteriors.SWAG.fit(each, (x, y), samples=10, epochs=20) for each in models]
    >>> posterior = demur.posteriors.MultiSWAG(swags)
    >>> posterior
    MultiSWAG(30 samples of 3 SWAGs)
    >>> demur.score(posterior, [x[:5]], progress=False).members
    30
    """

    def __init__(self, swags: Sequence[SWAG]) -> None:
        self.swags = list(swags)
        if not self.swags:
            raise ValueError("swags must have at least one SWAG. Got none.")
        for each in self.swags:
            if not isinstance(each, SWAG):
                raise TypeError(f"swags must be SWAGs. Got {type(each).__name__} among them.")
        counts = [each.members or 0 for each in self.swags]
        if len(set(counts)) > 1:
            raise ValueError(f"swags must have equal numbers of samples, for equal weights. Got {counts}.")
        self.members = sum(counts)
        for each in self.swags:
            each.numbers_kept = SWAG.numbers_kept // len(self.swags)

    def __repr__(self) -> str:
        return f"MultiSWAG({self.members} samples of {len(self.swags)} SWAGs)"

    @classmethod
    def fit(
        cls,
        factory: Callable[[], Any],
        train: Callable[[Any, Member], Any],
        data: Any,
        swags: int = 10,
        *,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        processes: int | None = None,
        threads: int | None = 1,
        progress: bool = True,
        **options: Any,
    ) -> Self:
        """Train networks independently, as ``DeepEnsemble.fit`` does, and run ``SWAG.fit`` from each.

        Parameters
        ----------
        factory, train, seed, folder, processes, threads, progress
            As for ``DeepEnsemble.fit``. Training of each member ends with its ``SWAG.fit``; after an
            interruption, the same call trains only the missing ones.
        data
            The training data for ``SWAG.fit``; for training in other processes, something that pickles.
        swags
            The number of SWAGs.
        options
            As for ``SWAG.fit``, without ``seed``, ``checkpoint`` and ``every``. ``samples``, ``scale`` and
            ``refresh`` may change without another training.

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
        >>> demur.posteriors.MultiSWAG.fit(
        ...     lambda: torch.nn.Linear(4, 3), train, (x, y), 3, samples=10, epochs=20, processes=0)
        MultiSWAG(30 samples of 3 SWAGs)
        """
        if wrong := {"seed", "checkpoint", "every"} & options.keys():
            raise TypeError(f"options must not have {min(wrong)!r}: folder and seed are those of all SWAGs.")
        rank = options.get("rank", 20)
        runs = fit_members(
            _MakeHolder(factory, rank), _TrainHolder(train, data, options), swags, seed=seed, folder=folder,
            processes=processes, threads=threads, progress=progress,
        )  # fmt: skip
        kept = ("samples", "rank", "scale", "refresh", "batch_size", "forward")
        own = {name: options[name] for name in kept if name in options}
        found = []
        for k, holder in enumerate(runs):
            swag = SWAG(holder.model, data=data, seed=networks.derive_seed(seed, k), **own)
            swag.moments.restore(int(holder.count), dict(holder.named_buffers(recurse=False)))
            found.append(swag)
        return cls(found)

    def predict(self, batch: Any, *, members: range | None = None, position: int = 0) -> Iterator[Any]:
        count = len(self.swags)
        for member in select_members(members, self.members or 0):
            draw = member // count
            yield from self.swags[member % count].predict(batch, members=range(draw, draw + 1))

    def fingerprint(self) -> str:
        return fingerprint([each.fingerprint() for each in self.swags])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the moments of all SWAGs, and the batch-norm statistics of all members."""
        packed = [each.pack() for each in self.swags]
        tensors = {f"{k}.{name}": each for k, (own, _) in enumerate(packed) for name, each in own.items()}
        facts = {"method": "MultiSWAG", "settings": json.dumps([each for _, each in packed])}
        write_tensors(path, tensors, facts)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        models: Sequence[Any],
        *,
        data: Any = None,
        forward: networks.Forward | None = None,
    ) -> Self:
        """Read what ``save`` wrote, for as many models of the same architecture as there are SWAGs."""
        tensors, facts = read_tensors(path, "MultiSWAG")
        settings = json.loads(facts["settings"])
        if len(settings) != len(models):
            raise ValueError(f"{os.fspath(path)!r} holds {len(settings)} SWAGs. Got {len(models)} models.")
        found = []
        for k, (model, own) in enumerate(zip(models, settings, strict=True)):
            part = {n.partition(".")[2]: t for n, t in tensors.items() if n.startswith(f"{k}.")}
            found.append(SWAG.unpack(part, own, model, data=data, forward=forward))
        return cls(found)


@dataclass
class _MakeHolder:
    """Makes a network that also holds the moments of a SWAG, so that one file holds both."""

    factory: Callable[[], Any]
    rank: int

    @property
    def func(self) -> Any:
        """The function that other processes must be able to import, under the name that a partial has."""
        return self.factory

    def __call__(self) -> Any:
        import torch

        model = self.factory()
        networks.check_network("What factory returns", model)
        holder = torch.nn.Module()
        holder.add_module("model", model)
        moments = SWAG(model, rank=self.rank).moments
        for name, value in moments.tensors().items():
            holder.register_buffer(name, value)
        holder.register_buffer("deviations", moments.deviations)
        holder.register_buffer("count", torch.tensor(0))
        return holder

    def fingerprint(self) -> str:
        return fingerprint(describe_code(self.factory), self.rank)


@dataclass
class _TrainHolder:
    """Trains a network with the user's function, and then its SWAG."""

    train: Callable[[Any, Member], Any]
    data: Any
    options: dict[str, Any]

    @property
    def func(self) -> Any:
        """As above."""
        return self.train

    def __call__(self, holder: Any, member: Member) -> None:
        found = self.train(holder.model, member)
        found = networks.unwrap_compiled(holder.model if found is None else found)
        networks.check_network("What train returns", found)
        swag = SWAG.fit(found, self.data, seed=member.seed, **{**self.options, "progress": False})
        holder.model = swag.model
        holder.count.fill_(swag.moments.count)
        for name, value in swag.moments.tensors().items():
            getattr(holder, name)[: len(value)] = value

    def fingerprint(self) -> str:
        own = {
            name: describe_code(value) if callable(value) else value
            for name, value in self.options.items()
            if name not in ("samples", "scale", "refresh")
        }
        return fingerprint(describe_code(self.train), self.data, own)
