"""`demur reproduce table1` and `table2`: the paper's tables, from images or stored features to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.run import Docs, DryRun, Out, Seed, require_packages, run_command

_Data = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder that paths in the configuration are relative to.")
]
_Config = Annotated[
    str,
    typer.Option("--config", metavar="NAME", help="A configuration that comes with demur, or a .toml file."),
]
_Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models", metavar="NAME",
        help="A network of torchvision or timm, or module:function (which runs that code); repeat it for "
        "more. The last layer of the first one is sampled.",
    ),
]  # fmt: skip


def table1(
    data: _Data, out: Out, config: _Config = "imagenet", models: _Models = None, seed: Seed = 0,
    dry_run: DryRun = False, docs: Docs = None,
) -> None:  # fmt: skip
    """Compare how well the measures detect out-of-distribution and adversarial inputs.

    Four posteriors, five scores, three splits, with paired tests. The tables share all stages except the
    last, so that the second command reuses the work of the first.

    demur reproduce table1 --data imagenet --out runs/imagenet
    """
    _run_tables("table1", data, out, config, models, seed, dry_run, docs)


def table2(
    data: _Data, out: Out, config: _Config = "imagenet", models: _Models = None, seed: Seed = 0,
    dry_run: DryRun = False, docs: Docs = None,
) -> None:  # fmt: skip
    """Compare how well the measures detect wrong predictions, and their selective accuracy.

    From the same stages as table1.

    demur reproduce table2 --data imagenet --out runs/imagenet
    """
    _run_tables("table2", data, out, config, models, seed, dry_run, docs)


def _run_tables(
    table: str, data: Path, out: Path, config: str, models: list[str] | None, seed: int, dry_run: bool,
    docs: Path | None,
) -> None:  # fmt: skip
    """Describe the study of a table, and run it."""
    with bad_input_exits():
        require_packages("matplotlib", "torch")
        from demur.reproduce.studies.paper_tables import TablesPipeline, read_config

        more = "".join(f" --models {each}" for each in models or [])
        pipeline = TablesPipeline(
            read_config(config, seed=seed, models=models), data, out,
            command=f"demur reproduce {table} --config {config}{more} --data DIR --out DIR --seed {seed}",
        )  # fmt: skip
        # The section of the results page has both tables.
        tables = ("table1", "table2") if docs else (table,)
        run_command(pipeline.describe(tables, shown=f"{table}.md"), dry_run=dry_run, docs=docs)
