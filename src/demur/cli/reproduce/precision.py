"""`demur reproduce precision`: what rounding does to K and I where members nearly agree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.plan import Docs, DryRun, Out, Seed, carry_out, require


def precision(
    data: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="An .npz with features val and dtd, classes val_label, and a last layer fc_weight and "
            "fc_bias; or a folder that has imagenet_features/efficientnet_lite0_features.npz.",
        ),
    ],
    out: Out,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few inputs, distances and draws.")] = False,
    dry_run: DryRun = False,
    docs: Docs = None,
) -> None:
    """Rank textures against ImageNet images by I and K, exactly and in four types of numbers.

    Ten last layers that differ by 1e-4 of their weights up to all of them, and fitted ones: an ensemble, MC
    dropout and cSG-HMC. Writes tables (.csv), two figures (.pdf, .png) and section.md. Takes about 20 minutes
    on two cores and needs the extras named report and torch.
    """
    with bad_input_exits():
        require("matplotlib", "torch")
        from demur.reproduce.precision import add_to_page, study

        planned = study(data, out, seed=seed, quick=quick, say=lambda line: print(line, flush=True))
        carry_out(planned, add_to_page, dry_run=dry_run, docs=docs)
