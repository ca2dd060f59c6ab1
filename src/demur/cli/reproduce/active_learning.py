"""`demur reproduce active-learning`: which score should say what is labelled next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.plan import Docs, DryRun, Out, print_plan


def active_learning(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Holds mnist and fashion_mnist, as gzipped IDX files.")
    ],
    out: Out,
    pool: Annotated[int, typer.Option(help="Images that may be labelled.")] = 2000,
    rounds: Annotated[int, typer.Option(help="Rounds of ten labels each.")] = 10,
    seeds: Annotated[int, typer.Option(help="How often all is done, each time with another pool.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny version, to see that it runs; it tells nothing.")
    ] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Label MNIST and Fashion-MNIST by eight acquisitions, and compare how fast networks learn.

    Writes curves.csv, areas.csv, comparisons.csv and two figures (.pdf, .png). Needs the extras named torch
    and report. Takes some 45 minutes of one core; killed at any point, the same command goes on.
    """
    with bad_input_exits():
        from demur.report.figures import require_matplotlib
        from demur.reproduce import active_learning as study
        from demur.reproduce.stages import Stages

        require_matplotlib("the figures")
        settings = study.Settings(pool=pool, rounds=rounds, seeds=seeds, seed=seed)
        chosen = study.Study(settings.quick() if quick else settings, data, Stages(out)).checked()
        print_plan(chosen.stages, [chosen.table()])
        if dry_run:
            return
        files = study.run(chosen, lambda line: print(line, file=sys.stderr, flush=True))
        if docs is not None:
            study.document(chosen, docs)
            files.append(docs)
    print()
    for path in files:
        print(path)
