"""`demur reproduce precision`: what rounding does to K and I where members nearly agree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, Seed, require_packages, run_command


def precision(
    data: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="An .npz with features val and dtd, classes val_label, and a last layer fc_weight and "
            "fc_bias; or a folder with imagenet_features/efficientnet_lite0_features.npz.",
        ),
    ],
    out: Out,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few inputs, distances and draws.")] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Rank textures against ImageNet images by I and K, exactly and in four dtypes.

    Ten last layers that differ by 1e-4 of their weights up to all of them, and fitted ones: an ensemble, MC
    dropout and cSG-HMC. Writes tables (.csv), two figures (.pdf, .png) and section.md. Takes about 20 minutes
    on two cores and needs the extras report and torch.
    """
    with bad_input_exits():
        require_packages("matplotlib", "torch")
        from demur.reproduce.studies.precision import describe_study

        run_command(describe_study(data, out, seed=seed, quick=quick), dry_run=dry_run, docs=docs)
