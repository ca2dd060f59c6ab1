"""`demur reproduce language`: language models on texts of another kind, and recorded answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, Seed, require_packages, run_command


def language(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder that paths in the configuration are relative to.")
    ],
    out: Out,
    config: Annotated[
        str, typer.Option(metavar="NAME", help="kit, kit-trained, or a .toml file of your own.")
    ] = "kit",
    seed: Seed = 0,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Compare K, I and M of language models with likelihoods, on texts and on recorded answers.

    Which texts are not of the training kind, which specialist of a mixture knows a text, which answers are
    wrong, what a deferral can promise, and what lists of the likeliest tokens certify. Writes tables (.csv),
    figures (.pdf, .png) and section.md. Takes about a quarter of an hour on one core; kit-trained, which
    trains networks first, about half an hour. Needs the extras report and sequences.

    demur reproduce language --data DIR --out runs/language
    """
    with bad_input_exits():
        require_packages("matplotlib", "torch", "transformers")
        from demur.reproduce.studies.language import describe_study, read_config

        command = "demur reproduce language" + ("" if config == "kit" else f" --config {config}")
        command += " --data DIR --out DIR" + (f" --seed {seed}" if seed else "")
        study = describe_study(read_config(config, seed=seed), data, out, command=command)
        run_command(study, dry_run=dry_run, docs=docs)
