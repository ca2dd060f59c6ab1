"""`demur reproduce regression`: which score ranks the errors of predicted numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.plan import Docs, DryRun, Out, Seed, carry_out, require


def regression(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="A folder with an .npz for each data set: X (rows, features), y (rows,), test_index "
            "(splits, test rows); or one that has it under the name uci.",
        ),
    ],
    out: Out,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Two sets, three splits, a few steps.")] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Rank errors on UCI sets by K, by I and by variances, for a deep ensemble and MC dropout.

    Writes tables (.csv), a figure of sparsification curves (.pdf, .png) and section.md. Takes about 15
    minutes on two cores and needs the extras named report and torch.
    """
    with bad_input_exits():
        require("matplotlib", "torch")
        from demur.reproduce.regression import add_to_page, study

        planned = study(data, out, seed=seed, quick=quick, say=lambda line: print(line, flush=True))
        carry_out(planned, add_to_page, dry_run=dry_run, docs=docs)
