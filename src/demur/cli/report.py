"""`demur report`: one page on what the scores of a run are good for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.options import Clusters, Confidence, Task
from demur.cli.printing import bad_input_exits, complain, count_things, say
from demur.progress import progress_bar

_BEGINNING_BYTES = 1 << 16
"""Bytes of a page within which its generator's mark is."""


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="The folder of a run, with score files id.csv, ood-NAME.csv, adversarial-NAME.csv (or "
            ".parquet, .npz, .json), or with one such folder per method. A column label in id.csv, as demur "
            "score --labels writes it, adds accuracy, mistakes and thresholds to the page. A column deployed "
            "holds the predictions of the deployed model, where they differ from those of the average.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where to write the page. Default: DIR/report.html.", show_default=False
        ),
    ] = None,
    accuracy: Annotated[
        list[float] | None,
        typer.Option(
            metavar="SHARE",
            help="An accuracy to guarantee for the inputs that are kept, such as 0.99. Repeat it for "
            "several. Default: 0.9, 0.95, 0.98, 0.99, 0.995, 0.999.",
            show_default=False,
        ),
    ] = None,
    confidence: Confidence = 0.95,
    clusters: Clusters = None,
    task: Task = None,
    top: Annotated[
        int, typer.Option(min=1, max=200, help="Number of most uncertain inputs to list for each score.")
    ] = 20,
) -> None:
    """Write an HTML page about a run: a verdict, figures, thresholds, and the most uncertain inputs.

    The page is one file that works offline. It replaces an earlier page of demur report, never another file.

    demur report runs/today
    """
    with bad_input_exits():
        from demur.report import page
        from demur.report.contents import TARGETS, gather_contents
        from demur.report.run_folder import read_run

        target = check_target(out or folder / "report.html", folder)
        run = read_run(folder, task=task, clusters=clusters)
        sets = [scored for method in run.methods for scored in method.sets.values()]
        for path, left_out in {scored.path: scored.left_out for scored in sets}.items():
            if left_out:
                complain(f"{path}: left out {count_things(left_out, 'input')} without a prediction")
        with progress_bar(len(run.sets), "sets") as progress:
            found = gather_contents(
                run,
                confidence=confidence,
                targets=sorted(set(accuracy)) if accuracy else TARGETS,
                progress=progress,
            )
        page.write_page(found, target, top=top)
    say(target)


def check_target(path: Path, folder: Path) -> Path:
    """Return where the page goes; raise a ValueError if it could not be written there."""
    from demur.report import page

    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: expected a page that ends in .html, got {path.suffix or 'no suffix'!r}")
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write to, got a directory: add a file name")
    if path.exists() and page.GENERATOR_MARK not in _read_beginning(path):
        raise ValueError(
            f"{path}: expected a page that demur report wrote, got another file, which is not replaced: "
            "remove it, or choose another name with --out"
        )
    if path.parent != folder and not path.parent.is_dir():
        raise ValueError(f"{path}: expected a directory to write to, found none: create {path.parent} first")
    return path


def _read_beginning(path: Path) -> bytes:
    """Return the first bytes of a file, where a page has its mark; a pipe or a device is a ValueError."""
    from demur.stores import open_binary

    with open_binary(path) as file:
        return file.read(_BEGINNING_BYTES)
