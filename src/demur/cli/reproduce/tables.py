"""`demur reproduce table1` and `table2`: the paper's tables, from images or stored features to a report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.cli.reproduce.plan import Docs, DryRun, Out, Seed, print_plan, require

if TYPE_CHECKING:
    from demur.reproduce.study import Study

_Data = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder that the paths of the settings start from.")
]
_Settings = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="NAME",
        help="Settings that come with demur, or a .toml file. Code that it names as module:function is run.",
    ),
]
_Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models", metavar="NAME",
        help="A network of torchvision or timm, or module:function, which is imported and run; give it again "
        "for more. The first one's last layer is sampled.",
    ),
]  # fmt: skip


def table1(
    data: _Data, out: Out, config: _Settings = "imagenet", models: _Models = None, seed: Seed = 0,
    dry_run: DryRun = False, docs: Docs = None,
) -> None:  # fmt: skip
    """Out-of-distribution and adversarial inputs: which measure tells them from known ones.

    Four posteriors, five scores, three splits, with paired tests. Both tables share all stages: the second
    command finds the work of the first done.

    demur reproduce table1 --data imagenet --out runs/imagenet
    """
    _run("table1", data, out, config, models, seed, dry_run, docs)


def table2(
    data: _Data, out: Out, config: _Settings = "imagenet", models: _Models = None, seed: Seed = 0,
    dry_run: DryRun = False, docs: Docs = None,
) -> None:  # fmt: skip
    """Wrong predictions, and accuracy of what is kept: which measure finds them.

    As table1, from the same stages.

    demur reproduce table2 --data imagenet --out runs/imagenet
    """
    _run("table2", data, out, config, models, seed, dry_run, docs)


def _run(
    table: str, data: Path, out: Path, config: str, models: list[str] | None, seed: int, dry_run: bool,
    docs: Path | None,
) -> None:  # fmt: skip
    """Plan, do and print."""
    with bad_input_exits():
        require("matplotlib", "torch")
        from demur.reproduce.results import add_section
        from demur.reproduce.study import Study, read_config, section

        chosen = read_config(config, seed=seed, models=models)
        more = "".join(f" --models {each}" for each in models or [])
        command = f"demur reproduce {table} --config {config}{more} --data DIR --out DIR --seed {seed}"
        study = Study(chosen, data, out, command=command, say=_said())
        study.check()
        wanted = ("table1", "table2") if docs else (table,)
        print_plan(study.stages, [*map(study.stage, wanted), study.report()])
        if dry_run:
            return
        study.run(wanted)
        if docs is not None:
            add_section(docs, f"tables-{chosen.name}", section(out))
    _show(study, table)


def _said():
    """Return what prints a line with the minutes since the start."""
    begun = time.monotonic()
    return lambda line: print(f"{(time.monotonic() - begun) / 60:6.1f} min  {line}", flush=True)


def _show(study: Study, table: str) -> None:
    """Print the table and where everything is."""
    from demur.reproduce.study.scoring import read_shares

    print("\n" + (study.out / f"{table}.md").read_text("utf-8"))
    shares = read_shares(study.out / "timings.jsonl")
    if shares:
        print("Time to score that was spent outside networks and products of matrices")
    for name, share in shares.items():
        print(f"  {name:<16} {share}")
    print(f"\nReport   {study.out / 'report.html'}")
    print(f"Tables   {study.out}/{table}.md, .tex, -figures.csv, -comparisons.csv, -cells.csv")
