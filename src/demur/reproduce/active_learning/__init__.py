"""Active learning: which score should say what is labelled next, on MNIST and Fashion-MNIST.

Every seed has a pool of its own, of which a few images are labelled at first. In each round an acquisition
asks for more labels, by what the members say of the pool, and new members are fitted to all that is
labelled. All acquisitions of a seed start from the same images, the same members and the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from demur.reproduce.active_learning import images, rounds, section, summary
from demur.reproduce.active_learning.comparisons import Curve
from demur.reproduce.active_learning.networks import Posterior
from demur.reproduce.results import add_section
from demur.reproduce.stages import Stage, Stages, copied, in_order

RECIPE = 1
"""Changes with anything in the code that changes what a stage makes."""


@dataclass(frozen=True)
class Settings:
    """What a run does.

    Parameters
    ----------
    pool, test
        How many images may be labelled, and on how many the members are tested.
    start, batch, rounds
        How many are labelled at first, how many more in each round, and how many rounds.
    seeds, seed
        How often all is done, each time with another pool and other members; and the first seed.
    posteriors
        Ways to make members.
    configurations
        Of BatchBALD.
    options
        What the command line takes besides pool, rounds and seeds, to have these settings.
    """

    pool: int = 2000
    test: int = 2000
    start: int = 20
    batch: int = 10
    rounds: int = 10
    seeds: int = 3
    seed: int = 0
    posteriors: tuple[Posterior, ...] = (
        Posterior("deep-ensemble", "deep ensemble", networks=5, samples=0, steps=60),
        Posterior("mc-dropout", "MC dropout", networks=1, samples=30, steps=120),
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

    def quick(self) -> Settings:
        """Return a version that runs in seconds and tells nothing: for tests."""
        small = tuple(
            replace(each, networks=min(each.networks, 2), samples=min(each.samples, 4), steps=3)
            for each in self.posteriors
        )
        return replace(
            self, pool=120, test=150, rounds=2, seeds=2, batch=5, posteriors=small, configurations=50,
            options=" --quick",
        )  # fmt: skip

    @property
    def labels(self) -> list[int]:
        """How many labels there are at first and after each round."""
        return [self.start + number * self.batch for number in range(self.rounds + 1)]


@dataclass(frozen=True)
class Study:
    """A run: its settings, its data and its stages."""

    settings: Settings
    data: Path
    stages: Stages

    def checked(self) -> Study:
        """Raise a `ValueError` unless all data are there and large enough; return the study."""
        for name in images.SETS:
            folder, wanted = self.data / name, self.settings
            images.check(images.load(folder), folder, wanted.pool, wanted.test, wanted.start)
        return self

    def curves(self) -> dict[Curve, Stage]:
        """Return the stage of each curve."""
        return {
            Curve(name, posterior.name, acquisition, seed): self.curve(name, posterior, acquisition, seed)
            for seed in range(self.settings.seed, self.settings.seed + self.settings.seeds)
            for name in images.SETS
            for posterior in self.settings.posteriors
            for acquisition in rounds.ACQUISITIONS
        }

    def table(self) -> Stage:
        """Return the last stage: tables and figures of all curves."""
        curves = self.curves()

        def make(folder: Path) -> None:
            summary.write(
                folder, {each: self.stages.made(stage) for each, stage in curves.items()}, self.settings
            )

        facts = {"recipe": summary.RECIPE}
        return Stage("tables", make, facts, list(curves.values()), seconds=15, megabytes=2)

    def split(self, name: str, seed: int) -> images.Split:
        """Return the images of a seed."""
        wanted = self.settings
        return images.split(
            images.load(self.data / name),
            pool=wanted.pool,
            test=wanted.test,
            start=wanted.start,
            seed=_own_seed(name, seed),
        )

    def first(self, name: str, posterior: Posterior, seed: int) -> Stage:
        """Return the stage that all acquisitions of a seed share."""
        wanted = self.settings

        def make(folder: Path) -> None:
            rounds.first_round(folder, self.split(name, seed), posterior, _own_seed(name, seed))

        facts = {
            "recipe": RECIPE, "images": images.digest(self.data / name), "posterior": asdict(posterior),
            "pool": wanted.pool, "test": wanted.test, "start": wanted.start, "seed": seed,
        }  # fmt: skip
        size = posterior.members * wanted.pool * images.CLASSES * 4 / 1e6
        return Stage(
            f"start/{name}/{posterior.name}/{seed}",
            make,
            facts,
            seconds=self.seconds(posterior),
            megabytes=size,
        )

    def curve(self, name: str, posterior: Posterior, acquisition: str, seed: int) -> Stage:
        """Return the stage of one curve."""
        wanted, begin = self.settings, self.first(name, posterior, seed)
        own = {"rounds": wanted.rounds, "batch": wanted.batch}
        if acquisition == "BatchBALD":
            own["configurations"] = wanted.configurations

        def make(folder: Path) -> None:
            rounds.curve(
                folder, self.stages.made(begin), self.split(name, seed), posterior, acquisition,
                seed=_own_seed(name, seed),
                rounds=wanted.rounds, batch=wanted.batch, configurations=wanted.configurations,
            )  # fmt: skip

        each = self.seconds(posterior) + (2.0 if acquisition == "BatchBALD" else 0.0)
        return Stage(
            f"curve/{name}/{posterior.name}/{acquisition.replace(' ', '-')}/{seed}", make,
            {"recipe": RECIPE, **own}, [begin], seconds=each * wanted.rounds, megabytes=0.03,
        )  # fmt: skip

    def seconds(self, posterior: Posterior) -> float:
        """Estimate what a round takes: steps of 32 images, and predictions, on one core."""
        wanted = self.settings
        fits = posterior.networks * posterior.steps * 6e-3
        # Dropout samples go through the last layers alone.
        predictions = posterior.networks * 1e-4 + posterior.samples * 1e-5
        return fits + predictions * (wanted.pool + wanted.test) + 0.1


def _own_seed(name: str, seed: int) -> int:
    """Return a seed that differs between data sets, so that their results are independent."""
    return rounds.seed_of(seed, *name.encode())


def run(study: Study, say: Callable[[str], object] = lambda line: None) -> list[Path]:
    """Do all stages that are not done; return tables, figures and text, which are in the run's folder."""
    with study.stages.alone():
        table = study.table()
        whole = in_order([table])
        for number, stage in enumerate(whole, 1):
            if study.stages.state(stage) != "done":
                to_do = (each for each in whole if study.stages.state(each) != "done")
                left = sum(each.seconds or 0 for each in to_do) / 60
                say(f"{number} of {len(whole)}, some {left:.0f} minutes left: {stage.name}")
            study.stages.made(stage)
        made = study.stages.made(table)
        for path in made.iterdir():
            copied(path, study.stages.folder / path.name)
        return sorted(study.stages.folder / path.name for path in made.iterdir())


def document(study: Study, page: Path) -> None:
    """Write the study's section of the results page from a run that is done."""
    made = study.stages.made(study.table())
    pictures = {f"{name}.png": made / f"{name}.png" for name in summary.FIGURES}
    add_section(page, section.NAME, (made / summary.TEXT).read_text("utf-8"), pictures)
