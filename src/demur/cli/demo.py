"""`demur demo`: the whole flow on real images that ship with scikit-learn."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import bad_input_exits, new_table, print_figures, print_table

if TYPE_CHECKING:
    from demur.experiments.demo import Demo

WORDS = (
    "Epistemic: how much members disagree, by I (current: each against their average) or K (new: each "
    "against each other). Total: aleatoric plus I or K."
)


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write everything.")],
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a directory that has files in it.")
    ] = False,
) -> None:
    """Train small networks on the digits 0 to 7, draw models in four ways, and see what the scores find.

    Known digits are scored, 8 and 9, which no network saw, and digits attacked by projected gradient descent.
    Takes one to three minutes and needs the extras named report and torch.
    """
    with bad_input_exits():
        require_extras()
        from demur.experiments.demo import run
        from demur.stores import make_directory

        make_directory(out, force=force)
        found = run(out, seed=seed, command=f"demur demo --out {out.name} --seed {seed}", say=print)
    report(out, found)


def require_extras() -> None:
    """Raise a `ValueError` unless everything is there that the demo trains and draws with."""
    for name in ("matplotlib", "PIL", "posteriors", "sklearn", "torch"):
        if importlib.util.find_spec(name) is None:
            raise ValueError(
                f"expected {name}, which the demo trains or draws with, found none: "
                "pip install 'demur[report,torch]'"
            )


def report(out: Path, found: Demo) -> None:
    """Print what came out, and where everything is."""
    from demur.experiments.demo import METHODS, SETS

    table = new_table("method", "accuracy\non known", "accuracy\non attacked", "members", texts=1)
    for name, by_set in found.scores.items():
        accuracies = [f"{by_set[which].correct.mean():.3f}" for which in ("id", "adversarial")]
        table.add_row(name, *accuracies, METHODS[name], end_section=name == list(found.scores)[-1])
    counts = ", ".join(f"{len(labels)} {SETS[which]}" for which, (_, labels) in found.sets.items())
    print_table(f"Four ways to draw models; {counts}", table)
    print(f"\n{WORDS}")
    print_figures(found.detection, "text", "Inputs that are not what the networks know: AUROC")
    print_figures(
        found.errors, "text", "Wrong predictions: AUROC, and the area under accuracy over the share kept"
    )
    print(f"\nReport   {out / 'report.html'}   open it in a browser")
    print(f"Tables   {out / 'tables.md'}, {out / 'tables.tex'}")
    print(f"Figures  {out / 'figures'}")
    print(f"Scores   {out}/METHOD/{', '.join(f'{which}.csv' for which in SETS)}")
    program = "demur" if shutil.which("demur") else sys.argv[0]
    known, unknown, *_ = (f"{out}/mc-dropout/{which}.csv" for which in SETS)
    print(f"Again    {program} evaluate ood --id {known} --ood {unknown}")
