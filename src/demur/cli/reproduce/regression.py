"""`demur reproduce regression`: which score ranks the errors of predicted numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, Seed, require_packages, run_command


def regression(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="A folder with an .npz for each data set: X (rows, features), y (rows,), test_index "
            "(splits, test rows); or one that contains it as uci.",
        ),
    ],
    out: Out,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Two data sets, three splits, a few steps.")] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Rank errors on UCI data sets by K, by I and by variances, for a deep ensemble and MC dropout.

    Writes tables (.csv), a figure of sparsification curves (.pdf, .png) and section.md. Takes about 15
    minutes on two cores and needs the extras report and torch.
    """
    with bad_input_exits():
        require_packages("matplotlib", "torch")
        from demur.reproduce.studies.regression import describe_study

        run_command(describe_study(data, out, seed=seed, quick=quick), dry_run=dry_run, docs=docs)
