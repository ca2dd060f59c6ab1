"""`demur reproduce inference`: which method's K can be believed, judged by long HMC."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, Seed, require_packages, run_command


def inference(
    out: Out,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Contains fashion_mnist and mnist, as gzipped IDX files, and uci, with .npz tables. Without "
            "it, the study runs on data that come with scikit-learn.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="kit, scikit-learn, quick, or a .toml file. Default: kit with --data, scikit-learn without.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions, each with other training inputs and fits.")
    ] = None,
    seed: Seed = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny version, to see that it runs; it shows nothing.")
    ] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Compare every posterior's predictions, K, I, M and total with those of long Hamiltonian Monte Carlo.

    Writes tables (.csv, .tex), a figure (.pdf, .png) and section.md. Takes about 40 minutes on one core and
    needs the extras report and torch.

    demur reproduce inference --out runs/inference
    """
    with bad_input_exits():
        require_packages("matplotlib", "sklearn", "torch")
        from demur.reproduce.studies.inference import describe_study, read_config

        if quick and config is not None:
            raise ValueError("expected --quick or --config, got both")
        name = config or ("quick" if quick else "scikit-learn" if data is None else "kit")
        command = "demur reproduce inference"
        command += " --quick" if quick else "" if config is None else f" --config {config}"
        command += "" if data is None else " --data DIR"
        command += "" if seeds is None else f" --seeds {seeds}"
        command += f" --seed {seed}" if seed else ""
        study = describe_study(
            read_config(name, seeds=seeds, seed=seed), data, out, command=f"{command} --out DIR"
        )
        run_command(study, dry_run=dry_run, docs=docs)
