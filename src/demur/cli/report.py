"""`demur report`: one page on what the scores of a run are good for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.printing import bad_input_exits
from demur.progress import progress_bar


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="The folder of a run: id.csv, ood-NAME.csv, adversarial-NAME.csv (or .parquet, .npz, .json) "
            "in it, or in a folder for each method. A column label in id.csv, as demur score --labels writes "
            "it, brings accuracy, mistakes and thresholds. A column deployed is what the deployed model "
            "predicts by itself; the page is about prediction, that of the average.",
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
            help="An accuracy to promise for what is kept, as 0.99; give it again for more. "
            "Default: 0.9, 0.95, 0.98, 0.99, 0.995, 0.999.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of intervals and promises.")] = 0.95,
    top: Annotated[int, typer.Option(min=1, max=200, help="How many inputs are listed by each score.")] = 20,
) -> None:
    """Write a page on a run: a verdict, figures, thresholds, and the most uncertain inputs.

    The page is one file that works without a network. A page that demur report wrote is replaced, once the
    new one is complete; any other file is left alone.

    demur report runs/today
    """
    with bad_input_exits():
        from demur.report import page
        from demur.report.contents import TARGETS, gather_contents
        from demur.report.run_folder import read_run

        target = _check_target(out or folder / "report.html", folder)
        run = read_run(folder)
        with progress_bar(len(run.sets), "sets") as progress:
            found = gather_contents(
                run,
                confidence=confidence,
                targets=sorted(set(accuracy)) if accuracy else TARGETS,
                progress=progress,
            )
        page.write_page(found, target, top=top)
    print(f"{target}")


def _check_target(path: Path, folder: Path) -> Path:
    """Return where the page goes, checked before the work."""
    from demur.report import page

    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: expected a page that ends in .html, got {path.suffix or 'no suffix'!r}")
    if path.is_dir():
        raise ValueError(f"{path}: expected a file to write to, got a directory: add a file name")
    if path.exists() and page.GENERATOR_MARK not in path.read_bytes():
        raise ValueError(
            f"{path}: expected a page that demur report wrote, to replace it, got another file: "
            "remove it, or choose another by --out"
        )
    if path.parent != folder and not path.parent.is_dir():
        raise ValueError(f"{path}: expected a directory to write to, found none: create {path.parent} first")
    return path
