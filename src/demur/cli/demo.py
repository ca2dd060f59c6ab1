"""`demur demo`: the whole workflow on real images that come with scikit-learn."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.printing import bad_input_exits, new_table, print_figures, print_table, say
from demur.cli.reproduce.run import require_packages

if TYPE_CHECKING:
    from demur.reproduce.studies.digits_demo import DemoResults

_EXPLANATION = (
    "Aleatoric: how unsure members are by themselves, on average. Epistemic: how far they disagree, by I "
    "(mutual information: each against their average) or K (pairwise KL: each against each other). Total: "
    "aleatoric plus I or K.\nAUROC: how often an input to be found scores higher than one of the others; .5 "
    "is a coin toss. In brackets: 95 % intervals.\n"
    "Marks compare I with K, and the totals, so aleatoric has none. The verdict below compares all measures."
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
    At the end, a policy is watched while digits turn.
    Takes one to three minutes and needs the extras report and torch.
    """
    with bad_input_exits():
        require_packages("matplotlib", "PIL", "sklearn", "torch", purpose="the demo")
        from demur.reproduce.studies.digits_demo import run_demo
        from demur.stores import make_directory

        make_directory(out, force=force)
        command = f"{_name_program()} demo --out {out.name} --seed {seed} --force"
        found = run_demo(out, seed=seed, command=command, say=functools.partial(print, flush=True))
    _print_results(out, found)


def _name_program() -> str:
    """Return how to call demur again: by name if the shell finds it, otherwise as it was called."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m demur.cli"
    return "demur" if shutil.which("demur") or called.name != "demur" else str(called)


def _print_results(out: Path, found: DemoResults) -> None:
    """Print the results, and where everything is."""
    from demur.reproduce.studies.digits_demo import METHODS, SETS

    table = new_table(
        "method", "accuracy on\nknown digits", "accuracy on\nattacked digits", "members", texts=1
    )
    for name, by_set in found.scores.items():
        accuracies = [f"{by_set[which].correct.mean():.3f}" for which in ("id", "adversarial-pgd")]
        table.add_row(name, *accuracies, METHODS[name], end_section=name == list(found.scores)[-1])
    counts = ", ".join(f"{len(labels)} {SETS[which]}" for which, (_, labels) in found.sets.items())
    print_table(f"Four ways to draw models; {counts}", table)
    say(f"\n{_EXPLANATION}")
    print_figures(found.detection, "text", "Finding unseen and attacked digits among known ones")
    print_figures(found.errors, "text", "Finding mistakes among known digits, and accuracy of what is kept")
    say("\nVerdict")
    for sentence in found.verdict:
        say(sentence)
    say("\nIn service, while the digits turn")
    say(found.watched.describe())
    say(f"\nReport   {out / 'report.html'}   open it in a browser")
    say(f"Monitor  {out / 'monitor.html'}   evidence, risk and drift, week by week")
    say(f"Tables   {out / 'tables.md'}, {out / 'tables.tex'}")
    say(f"Figures  {out / 'figures'}")
    say(f"Scores   {out}/METHOD/{', '.join(f'{which}.csv' for which in SETS)}")
    known, unknown, *_ = (f"{out}/{found.best}/{which}.csv" for which in SETS)
    say(f"Again    {_name_program()} evaluate ood --id {known} --ood {unknown}")
