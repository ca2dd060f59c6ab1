"""The settings of the study, and its stages from the images to the results page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from demur.reproduce.data import mnist
from demur.reproduce.runner import Study
from demur.reproduce.stages import Stage, Stages
from demur.reproduce.studies.active_learning import pools, rounds, tables
from demur.reproduce.studies.active_learning.comparisons import Curve
from demur.reproduce.studies.active_learning.networks import MemberRecipe

_VERSION = 1
"""Changes with any change of the code that changes what a round makes."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Parameters
    ----------
    pool, test
        Number of images that may be labelled, and of test images.
    start, batch, rounds
        Number of images labelled at the start, of labels per round, and of rounds.
    seeds, seed
        Number of repetitions, each with another pool and other members; and the first seed.
    posteriors
        The ways to make members.
    configurations
        Number of combinations of labels that BatchBALD draws.
    options
        Other command-line options that lead to these settings.
    """

    pool: int = 2000
    test: int = 2000
    start: int = 20
    batch: int = 10
    rounds: int = 10
    seeds: int = 3
    seed: int = 0
    posteriors: tuple[MemberRecipe, ...] = (
        MemberRecipe("deep-ensemble", "deep ensemble", networks=5, samples=0, steps=60),
        MemberRecipe("mc-dropout", "MC dropout", networks=1, samples=30, steps=120),
    )
    configurations: int = 1000
    options: str = ""

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise ValueError(f"seeds must be at least 2, to tell differences from chance. Got {self.seeds}.")
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1. Got {self.rounds}.")
        needed = self.start + self.rounds * self.batch
        if self.pool < needed:
            raise ValueError(
                f"pool must have at least {needed} images, as many as {self.rounds} rounds label. "
                f"Got {self.pool}. Ask for fewer rounds or a larger pool."
            )

    def shrink(self) -> Settings:
        """Return a version that runs in seconds and shows nothing, for tests."""
        small = tuple(
            replace(each, networks=min(each.networks, 2), samples=min(each.samples, 4), steps=3)
            for each in self.posteriors
        )
        return replace(
            self, pool=120, test=150, rounds=2, seeds=2, batch=5, posteriors=small, configurations=50,
            options=" --quick",
        )  # fmt: skip

    @property
    def label_counts(self) -> list[int]:
        """The number of labels at the start and after each round."""
        return [self.start + number * self.batch for number in range(self.rounds + 1)]


def describe_study(settings: Settings, data: Path, out: Path) -> Study:
    """Check that the data are there and large enough; return the study."""
    for name in mnist.DATASETS:
        folder = data / name
        pools.check_size(mnist.read_images(folder), folder, settings.pool, settings.test, settings.start)
    stages = Stages(out)
    curves = _CurveStages(settings, data, stages).plan_all()

    def make(folder: Path) -> None:
        tables.write_results(
            folder, {each: stages.complete(stage) for each, stage in curves.items()}, settings
        )

    facts = {"recipe": tables.VERSION}
    last = Stage("tables", make, facts, list(curves.values()), seconds=15, megabytes=2)
    pictures = {f"{name}.png": f"{name}.png" for name in tables.FIGURES}
    return Study("active-learning", stages, [last], pictures=pictures)


@dataclass(frozen=True)
class _CurveStages:
    """The stages of the curves: settings, folder of the data, and stages of the run."""

    settings: Settings
    data: Path
    stages: Stages

    def plan_all(self) -> dict[Curve, Stage]:
        """Return the stage of each curve."""
        return {
            Curve(name, posterior.name, acquisition, seed): self._plan_curve(
                name, posterior, acquisition, seed
            )
            for seed in range(self.settings.seed, self.settings.seed + self.settings.seeds)
            for name in mnist.DATASETS
            for posterior in self.settings.posteriors
            for acquisition in rounds.ACQUISITIONS
        }

    def _draw_pool(self, name: str, seed: int) -> pools.InputPool:
        """Return the images of a seed."""
        wanted = self.settings
        return pools.draw_pool(
            mnist.read_images(self.data / name),
            pool=wanted.pool,
            test=wanted.test,
            start=wanted.start,
            seed=_derive_seed(name, seed),
        )

    def _plan_start(self, name: str, posterior: MemberRecipe, seed: int) -> Stage:
        """Return the stage that all acquisitions of a seed start from."""
        wanted = self.settings

        def make(folder: Path) -> None:
            rounds.run_first_round(folder, self._draw_pool(name, seed), posterior, _derive_seed(name, seed))

        facts = {
            "recipe": _VERSION, "images": mnist.compute_digest(self.data / name),
            "posterior": asdict(posterior), "pool": wanted.pool, "test": wanted.test,
            "start": wanted.start, "seed": seed,
        }  # fmt: skip
        size = posterior.members * wanted.pool * mnist.CLASSES * 4 / 1e6
        return Stage(
            f"start/{name}/{posterior.name}/{seed}",
            make,
            facts,
            seconds=self._estimate_seconds(posterior),
            megabytes=size,
        )

    def _plan_curve(self, name: str, posterior: MemberRecipe, acquisition: str, seed: int) -> Stage:
        """Return the stage of one curve."""
        wanted, begin = self.settings, self._plan_start(name, posterior, seed)
        own = {"rounds": wanted.rounds, "batch": wanted.batch}
        if acquisition == "BatchBALD":
            own["configurations"] = wanted.configurations

        def make(folder: Path) -> None:
            rounds.run_curve(
                folder, self.stages.complete(begin), self._draw_pool(name, seed), posterior, acquisition,
                seed=_derive_seed(name, seed),
                rounds=wanted.rounds, batch=wanted.batch, configurations=wanted.configurations,
            )  # fmt: skip

        each = self._estimate_seconds(posterior) + (2.0 if acquisition == "BatchBALD" else 0.0)
        return Stage(
            f"curve/{name}/{posterior.name}/{acquisition.replace(' ', '-')}/{seed}", make,
            {"recipe": _VERSION, **own}, [begin], seconds=each * wanted.rounds, megabytes=0.03,
        )  # fmt: skip

    def _estimate_seconds(self, posterior: MemberRecipe) -> float:
        """Return the estimated time of a round on one core: steps of 32 images, and predictions."""
        wanted = self.settings
        fits = posterior.networks * posterior.steps * 6e-3
        # Only the last layers run once per dropout sample.
        predictions = posterior.networks * 1e-4 + posterior.samples * 1e-5
        return fits + predictions * (wanted.pool + wanted.test) + 0.1


def _derive_seed(name: str, seed: int) -> int:
    """Return a seed that differs between data sets, so that their results are independent."""
    return rounds.combine_seeds(seed, *name.encode())
