"""The methods of the study, and their schedules: how each is fitted, with the network of the reference."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demur.posteriors import SWAG, CyclicalSGHMC, DeepEnsemble, networks
from demur.posteriors.chains.gradients import BatchLikelihood
from demur.posteriors.chains.minibatches import make_minibatches
from demur.posteriors.ensemble_training import Member
from demur.posteriors.fingerprint import fingerprint
from demur.posteriors.resumable_training import Descent, TrainingFile, pack_optimizer, restore_optimizer
from demur.reproduce.networks.resnet20_frn import PRIOR_SCALE, resnet20_frn
from demur.reproduce.studies.cifar10.inputs import Inputs

_MOMENTUM = 0.9
_SECONDS_BETWEEN_WRITES = 60.0

Data = tuple[Any, Any]
"""Training images (inputs, 3, 32, 32) from 0 to 1, and classes (inputs,), as tensors."""


@dataclass(frozen=True)
class EnsembleSchedule:
    """How the members of the deep ensemble are trained: SGD with Nesterov momentum, in one cycle.

    Attributes
    ----------
    members, epochs, batch
        Networks, passes over the data for each, and inputs per step.
    rate, warm_up
        The learning rate rises linearly to its largest value in this part of the steps, then falls to 0 along
        a cosine.
    """

    members: int = 3
    epochs: int = 2
    batch: int = 64
    rate: float = 0.1
    warm_up: float = 0.2

    def find_rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, from 0, of so many."""
        done, rising = (step + 0.5) / steps, self.warm_up
        if done < rising:
            return self.rate * done / rising
        return self.rate * (1 + math.cos(math.pi * (done - rising) / (1 - rising))) / 2

    @property
    def passes(self) -> float:
        """Passes over the data, with gradients."""
        return self.members * self.epochs


@dataclass(frozen=True)
class SwagSchedule:
    """How SWAG collects, from the first member of the ensemble on; see `SWAG.fit`."""

    samples: int = 5
    rank: int = 20
    epochs: int = 1
    rate: float = 0.02
    collections: int = 20
    batch: int = 64

    @property
    def passes(self) -> float:
        """Passes over the data, with gradients, without the training of the member."""
        return self.epochs


@dataclass(frozen=True)
class ChainSchedule:
    """How cSG-HMC runs, from an untrained network on; see `CyclicalSGHMC`.

    Attributes
    ----------
    epochs
        Passes over the data in each cycle.
    """

    samples: int = 6
    cycles: int = 2
    epochs: int = 1
    step_size: float = 0.1
    friction: float = 0.1
    exploration: float = 0.8
    batch: int = 64

    @property
    def passes(self) -> float:
        """Passes over the data, with gradients."""
        return self.cycles * self.epochs


@dataclass(frozen=True)
class Schedules:
    """The schedules of all methods; None: without SWAG."""

    ensemble: EnsembleSchedule = EnsembleSchedule()
    swag: SwagSchedule | None = SwagSchedule()
    chain: ChainSchedule = ChainSchedule()

    @property
    def passes(self) -> float:
        """Passes over the data of all fits, with gradients."""
        each = (self.ensemble, self.swag, self.chain)
        return sum(schedule.passes for schedule in each if schedule is not None)

    def count_passes(self, method: str) -> float:
        """Return the passes that a method took, with those of the network that it starts from."""
        one = float(self.ensemble.epochs)
        swag = 0.0 if self.swag is None else one + self.swag.passes
        found = {
            "one-network": one, "ensemble": self.ensemble.passes, "swag": swag, "csg-hmc": self.chain.passes
        }  # fmt: skip
        return found[method]


def choose_schedules(
    members: int = EnsembleSchedule.members,
    epochs: int = EnsembleSchedule.epochs,
    swag_epochs: int = SwagSchedule.epochs,
    cycles: int = ChainSchedule.cycles,
    cycle_epochs: int = ChainSchedule.epochs,
) -> Schedules:
    """Return the schedules with so many networks, passes and cycles, and three samples per cycle.

    With 0 passes for it, SWAG is left out.
    """
    return Schedules(
        EnsembleSchedule(members=members, epochs=epochs),
        SwagSchedule(epochs=swag_epochs) if swag_epochs else None,
        ChainSchedule(samples=3 * cycles, cycles=cycles, epochs=cycle_epochs),
    )


@dataclass(frozen=True)
class _MemberTraining:
    """Trains a member; an interrupted training resumes to the same bytes from its file in ``folder``."""

    inputs: Inputs
    schedule: EnsembleSchedule
    folder: Path

    def fingerprint(self) -> str:
        """Return what a folder of members recognises the training by."""
        return fingerprint(dataclasses.asdict(self.schedule) | {"members": None}, self.inputs.mark)

    def __call__(self, model: Any, member: Member) -> None:
        import torch

        schedule, likelihood = self.schedule, BatchLikelihood(model, None, None)
        batches = make_minibatches(self.inputs.training, schedule.batch, member.seed)
        steps = schedule.epochs * batches.batches_per_pass
        optimizer = torch.optim.SGD(
            model.parameters(), lr=schedule.rate, momentum=_MOMENTUM, nesterov=True,
            weight_decay=_compute_weight_decay(batches.size),
        )  # fmt: skip
        descent = Descent(
            optimizer, batches, networks.locate_model(model), steps,
            lambda batch, step: -likelihood.average({}, batch),
            functools.partial(schedule.find_rate, steps=steps), member.seed,
        )  # fmt: skip
        settings = {"member": member.index, "seed": member.seed, "training": self.fingerprint()}
        path = self.folder / f"training-{member.index:04d}.safetensors"

        def pack() -> dict[str, Any]:
            own = {f"model {name}": value for name, value in model.state_dict().items()}
            return own | pack_optimizer(optimizer)

        def restore(tensors: dict[str, Any]) -> None:
            model.load_state_dict({n[6:]: v for n, v in tensors.items() if n.startswith("model ")})
            restore_optimizer(optimizer, tensors)

        TrainingFile(path, "DeepEnsemble.fit", settings, _SECONDS_BETWEEN_WRITES).run(
            steps, descent.take_step, pack, restore, progress=False
        )


def fit_ensemble(
    inputs: Inputs, schedule: EnsembleSchedule, seed: int, folder: Path, processes: int
) -> DeepEnsemble:
    """Train the ensemble in a folder, so many members at a time."""
    training = _MemberTraining(inputs, schedule, folder)
    return DeepEnsemble.fit(
        resnet20_frn, training, schedule.members, seed=seed, folder=folder / "members", processes=processes,
        progress=False,
    )  # fmt: skip


def fit_swag(trained: Any, data: Data, schedule: SwagSchedule, seed: int, folder: Path) -> SWAG:
    """Collect SGD's iterates from a trained network on."""
    return SWAG.fit(
        trained, data, samples=schedule.samples, rank=schedule.rank, epochs=schedule.epochs,
        rate=schedule.rate, momentum=_MOMENTUM, weight_decay=_compute_weight_decay(len(data[1])),
        collections=schedule.collections, batch_size=schedule.batch, seed=seed,
        checkpoint=folder / "training.safetensors", every=_SECONDS_BETWEEN_WRITES, progress=False,
    )  # fmt: skip


def fit_chain(data: Data, schedule: ChainSchedule, seed: int, folder: Path) -> CyclicalSGHMC:
    """Draw samples by cSG-HMC."""
    import torch

    with networks.preserve_random_state():
        torch.manual_seed(networks.derive_seed(seed, 5))
        model = resnet20_frn()
    chain = CyclicalSGHMC(
        model, data, samples=schedule.samples, cycles=schedule.cycles, epochs=schedule.passes,
        step_size=schedule.step_size, friction=schedule.friction, exploration=schedule.exploration,
        batch_size=schedule.batch, prior_scale=PRIOR_SCALE, seed=seed, checkpoint=folder / "chain",
        every=_SECONDS_BETWEEN_WRITES,
    )  # fmt: skip
    return chain.fit(progress=False)


def _compute_weight_decay(inputs: int) -> float:
    """Return the prior, as a penalty of the average loss over so many inputs."""
    return 1 / (PRIOR_SCALE**2 * inputs)
