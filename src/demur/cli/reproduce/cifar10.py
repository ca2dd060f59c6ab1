"""`demur reproduce cifar10`: ensembles, SWAG and cSG-HMC against others' full-batch HMC."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, Seed, require_packages, run_command


def cifar10(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="CIFAR-10 with one image per row: data_batch_1.png to data_batch_5.png, test_batch.png, "
            "train_lables.json and test_lables.json.",
        ),
    ],
    reference: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="An .npz with cifar10: the reference's class probabilities of the test images, in order.",
        ),
    ],
    out: Out,
    members: Annotated[int | None, typer.Option(min=2, help="Networks of the deep ensemble.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data for each of them.")] = None,
    swag_epochs: Annotated[
        int | None,
        typer.Option(min=0, help="Passes in which SWAG collects, from the first network on; 0: without it."),
    ] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="Cycles of cSG-HMC.")] = None,
    cycle_epochs: Annotated[int | None, typer.Option(min=1, help="Passes in each cycle.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Networks of the ensemble that are trained at a time.")
    ] = 1,
    seed: Seed = 0,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Compare posteriors with the published full-batch HMC of Izmailov et al. (2021), with their network.

    A deep ensemble, SWAG and cSG-HMC of their ResNet-20, by agreement and total variation. Writes
    figures.csv, table.txt and section.md. Takes about 30 minutes on one core, and needs the extras report
    and torch.
    """
    with bad_input_exits():
        require_packages("PIL", "torch")
        from demur.reproduce.studies.cifar10 import choose_schedules, describe_study

        given = {
            "members": members, "epochs": epochs, "swag-epochs": swag_epochs, "cycles": cycles,
            "cycle-epochs": cycle_epochs,
        }  # fmt: skip
        chosen = {name: value for name, value in given.items() if value is not None}
        command = "demur reproduce cifar10 --data DIR --reference FILE"
        command += "".join(f" --{name} {value}" for name, value in chosen.items())
        command += f" --seed {seed}" if seed else ""
        schedules = choose_schedules(**{name.replace("-", "_"): value for name, value in chosen.items()})
        study = describe_study(
            data,
            reference,
            out,
            schedules=schedules,
            seed=seed,
            processes=processes,
            command=f"{command} --out DIR",
        )
        run_command(study, dry_run=dry_run, docs=docs)
