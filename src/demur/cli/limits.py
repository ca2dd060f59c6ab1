"""`demur evaluate` of large files and maps of pixels: counted in fixed memory, figures between limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.figures import json_figures
from demur.cli.method_files import split_method_name
from demur.cli.printing import print_object, say

if TYPE_CHECKING:
    import numpy as np

    from demur.stores.mapped_arrays import StoredArray

LARGE = 50_000_000
"""Numbers in one .npy file from which it is counted in bins without being asked."""

_AT_ONCE = 1 << 22

Limited = Annotated[
    bool,
    typer.Option(
        "--limits",
        help="Count the scores of .npy files in bins, in fixed memory, and give certain limits of the "
        "figures. Files may be maps of pixels, one image after the other on the first axis: intervals are "
        f"then over draws of images. More than {LARGE // 10**6} million numbers are counted without this.",
    ),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="With limits: read the files again, and give exact figures.")
]


def wants_limits(paths: list[str], *, limits: bool, exact: bool) -> bool:
    """Return whether files are to be counted: where it is asked for, or one is a long row of numbers."""
    if limits or exact:
        return True
    for path in (split_method_name(each)[1] for each in paths):
        if path.lower().endswith(".npy") and Path(path).is_file():
            shape = _open(path).shape
            if len(shape) == 1 and shape[0] > LARGE:
                return True
    return False


def show_limits(
    task: str,
    files: dict[str, list[str]],
    *,
    exact: bool,
    form: str,
    others: dict[str, object],
    **options: Any,
) -> None:
    """Count files and print the figures.

    Parameters
    ----------
    task
        "detection", "misclassification" or "selective".
    files
        By option, the files given: of detection --id and --ood, else the scores, --labels and --prediction.
    others
        Options that do not go with limits, by name, where they are given.
    """
    given = [name for name, value in others.items() if value]
    if given or form not in ("text", "json"):
        wrong = given[0] if given else f"--{form}"
        raise ValueError(f"expected limits as text or --json, with none of the other options, got {wrong}")
    for name, paths in files.items():
        if len(paths) != 1 or not paths[0].lower().endswith(".npy"):
            came = ", ".join(paths) or "none"
            raise ValueError(f"{name}: expected one .npy file, whose scores are counted, got {came}")
    places = {name: split_method_name(paths[0])[1] for name, paths in files.items()}
    named = {name: _open(path) for name, path in places.items()}
    shapes = {name: each.shape for name, each in named.items()}
    if task == "detection" and len({len(shape) > 1 for shape in shapes.values()}) > 1:
        raise ValueError(f"expected two files of maps, or two of one number per input, got {shapes}")
    if task != "detection" and len(set(shapes.values())) > 1:
        came = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"expected files of the same shape, one number per pixel or input, got {came}")

    def read() -> Iterator[tuple[Any, Any, str | None, str]]:
        if task == "detection":
            for positive, name in enumerate(("--id", "--ood")):
                for place, label, where in _split(named[name]):
                    at = f"{places[name]}{where}"
                    yield named[name].map()[place], bool(positive), label and f"{name} {label}", at
            return
        scores, labels, predicted = named.values()
        for place, label, where in _split(scores):
            wrong = labels.map()[place] != predicted.map()[place]
            yield scores.map()[place], wrong, label, f"{next(iter(places.values()))}{where}"

    result = _count(read, task, sum(_size(each) for each in named.values()), exact=exact, options=options)
    if form == "json":
        print_object(json_figures(result, tuple(result.to_dict())))
    else:
        say(result)


def _count(read: Any, task: str, total: int, *, exact: bool, options: dict[str, Any]) -> Any:
    """Return the result of a task, with a bar on terminals."""
    from demur.progress import progress_bar
    from demur.tasks import ScoreCounts

    counts, done = ScoreCounts(), 0
    with progress_bar(total, "scores") as progress:
        for scores, positive, label, where in read():
            try:
                counts.update(scores, positive, clusters=label)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            done += scores.size
            progress(done)
    if exact:
        counts.refine(lambda: ((scores, positive) for scores, positive, *_ in read()))
    return getattr(counts, task)(**options)


def _open(path: str) -> StoredArray:
    """Return an array in a .npy file."""
    from demur.stores.array_files import open_array
    from demur.stores.spool import Spool

    with Spool() as spool:
        return open_array(Path(path), None, spool)


def _size(stored: StoredArray) -> int:
    import math

    return math.prod(stored.shape)


def _split(stored: StoredArray) -> Iterator[tuple[slice | np.integer | int, str | None, str]]:
    """Yield parts of an array: images with their numbers, or pieces of one long row; and where that is."""
    if len(stored.shape) > 1:
        yield from ((image, str(image), f", image {image}") for image in range(stored.shape[0]))
        return
    for first in range(0, _size(stored), _AT_ONCE):
        yield slice(first, first + _AT_ONCE), None, f", from input {first} on" if first else ""
