"""`demur store`: predictions in files, as one zarr store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.options import Axis, ClassAxis, Force, IdColumn, Keep
from demur.cli.printing import bad_input_exits, count_things, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from demur.stores import Predictions


def store(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Predictions, as demur score takes them: files, stores, URLs or quoted globs.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="STORE",
            show_default=False,
            help="The store to write, a folder or a URL that ends in .zarr, as s3://bucket/run.zarr.",
        ),
    ],
    axis: Axis = 0,
    class_axis: ClassAxis = -1,
    id_column: IdColumn = None,
    keep: Keep = None,
    block: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            show_default=False,
            help="Inputs in a chunk. Default: as many as make about 16 MB.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Gather predictions in one store, chunked over inputs, where demur score reads them in any size.

    Ids, labels and names of classes go along. An interrupted command resumes when it is run again.

    demur store 'run/member_*.npy' --out run.zarr
    """
    with bad_input_exits():
        import contextlib

        from demur.progress import progress_bar
        from demur.stores.prediction_stores import convert_predictions
        from demur.stores.urls import show_place

        with contextlib.ExitStack() as bar:

            def progress(predictions: Predictions) -> Callable[[int], object]:
                return bar.enter_context(progress_bar(predictions.batch[0], "inputs"))

            layout: dict[str, Any] = {"axis": axis, "class_axis": class_axis}
            layout |= {"id_column": id_column, "keep": keep or ()}
            found = convert_predictions(files, out, block=block, force=force, progress=progress, **layout)
        inputs, members = count_things(found.batch[0], "input"), count_things(found.members, "member")
        say(f"Wrote {inputs}, {members} to {show_place(out)}")
