"""`demur reproduce active-learning`: which score should choose what is labelled next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, require_packages, run_command


def active_learning(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Contains mnist and fashion_mnist, as gzipped IDX files.")
    ],
    out: Out,
    pool: Annotated[int, typer.Option(help="Images that may be labelled.")] = 2000,
    rounds: Annotated[int, typer.Option(help="Rounds of ten labels each.")] = 10,
    seeds: Annotated[int, typer.Option(help="Repetitions, each with another pool.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny version, to see that it runs; it shows nothing.")
    ] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Label MNIST and Fashion-MNIST by eight acquisitions, and compare how fast networks learn.

    Writes curves.csv, areas.csv, comparisons.csv and two figures (.pdf, .png). Takes about 45 minutes on one
    core and needs the extras report and torch.
    """
    with bad_input_exits():
        require_packages("matplotlib", "torch")
        from demur.reproduce.studies.active_learning import Settings, describe_study

        settings = Settings(pool=pool, rounds=rounds, seeds=seeds, seed=seed)
        study = describe_study(settings.shrink() if quick else settings, data, out)
        run_command(study, dry_run=dry_run, docs=docs)
