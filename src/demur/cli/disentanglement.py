"""`demur evaluate disentanglement`: whether the aleatoric and the epistemic part are two things."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.method_files import MethodFiles, Reader, name_methods
from demur.cli.options import Confidence, Json, Resamples, Seed, Task
from demur.cli.printing import bad_input_exits, print_object, say

if TYPE_CHECKING:
    import numpy as np

    from demur.tasks import Disentanglement, Estimate, Trend

_Levels = list[str] | None


def disentanglement(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]FILE",
            show_default=False,
            help="Scores that demur score wrote. Several files are several methods.",
        ),
    ],
    measure: Annotated[
        str, typer.Option(metavar="NAME", help="The measure whose parts they are.")
    ] = "pairwise",
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|FILE",
            show_default=False,
            help="What the aleatoric part should follow, such as the entropy of the labels that people gave: "
            "a column of the scores, or a file with a number per input.",
        ),
    ] = None,
    size: Annotated[
        _Levels,
        typer.Option(
            metavar="N=FILE",
            show_default=False,
            help="Scores of the same inputs after training on N inputs. Repeat it: the epistemic part must "
            "fall.",
        ),
    ] = None,
    noise: Annotated[
        _Levels,
        typer.Option(
            metavar="SHARE=FILE",
            show_default=False,
            help="Scores of the same inputs after training with this share of wrong labels. Repeat it: the "
            "epistemic part must not rise.",
        ),
    ] = None,
    task: Task = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            show_default=False,
            help="Column that says which inputs belong together: intervals are over draws of whole clusters.",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    interval: Annotated[
        str, typer.Option(metavar="NAME", help="How intervals are computed: auto, bootstrap or asymptotic.")
    ] = "auto",
    resamples: Resamples = 1000,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare aleatoric and epistemic parts: rank correlations, and trends over training runs.

    demur evaluate disentanglement scores.csv --reference human_entropy

    demur evaluate disentanglement scores.csv --size 1000=small.csv --size 20000=large.csv
    """
    with bad_input_exits():
        from demur.tasks import disentanglement

        columns = [f"{measure}_aleatoric", f"{measure}_epistemic"]
        reader = Reader(columns, logits=False, probs=False, log_probs=False, axis=0, task=task)
        sources = name_methods(reader.read_all(files))
        if len(sources) > 1 and (size or noise):
            raise ValueError("--size and --noise go with one file of scores, got several: give one")
        found = {
            name: disentanglement(
                *(source.score(column) for column in columns),
                reference=None if reference is None else _read_reference(reference, source),
                sizes=_read_levels("--size", size, reader, columns[1]),
                noise=_read_levels("--noise", noise, reader, columns[1]),
                clusters=None if clusters is None else source.column(clusters),
                confidence=confidence, interval=interval, resamples=resamples, seed=seed,
            )
            for name, source in sources.items()
        }  # fmt: skip
    if json:
        shown = {name: _describe(result) for name, result in found.items()}
        print_object(next(iter(shown.values())) | ({"methods": shown} if len(shown) > 1 else {}))
        return
    for name, result in found.items():
        say(f"{name}: {result!r}" if len(found) > 1 else repr(result))


def _read_reference(written: str, source: MethodFiles) -> np.ndarray:
    """Return a column of the scores, or the numbers of a file, for the rows that count."""
    from demur.stores import pick_numbers, read_labels

    if written in source.columns:
        return source.score(written)
    numbers = read_labels(written) if "." in written else {}
    if not numbers:
        return source.score(written)  # which says what columns there are
    values = pick_numbers(numbers, "label", written)
    if len(values) != len(source.rows):
        raise ValueError(
            f"{written}: expected {len(source.rows)} numbers, one per row of {source.path}, got {len(values)}"
        )
    return values[source.rows]


def _read_levels(
    option: str, written: _Levels, reader: Reader, column: str
) -> dict[float, list[np.ndarray]] | None:
    """Return scores by level; a level may have several files."""
    if not written:
        return None
    found: dict[float, list[np.ndarray]] = {}
    for each in written:
        level, equals, path = each.partition("=")
        try:
            number = float(level)
        except ValueError:
            number = None
        if number is None or not equals or not path:
            raise ValueError(f"{option}: expected a number and a file, as 1000=scores.csv, got {each}")
        found.setdefault(number, []).append(reader.read(path).score(column))
    if len(found) < 2:
        raise ValueError(f"{option}: expected files of at least two levels, got one: repeat the option")
    return found


def _describe(result: Disentanglement) -> dict[str, Any]:
    """Return figures as JSON can hold them."""
    from demur.stores import json_number

    def estimate(given: Estimate | None) -> dict[str, Any] | None:
        return None if given is None else {k: json_number(v) for k, v in given.to_dict().items()}

    def trend(given: Trend | None) -> dict[str, Any] | None:
        if given is None:
            return None
        means = [json_number(each) for each in given.means]
        return {
            "levels": list(given.levels),
            "means": means,
            "tau": estimate(given.tau),
            "ratio": estimate(given.ratio),
        }

    return {
        "parts": estimate(result.parts),
        "reference": estimate(result.reference),
        "epistemic_reference": estimate(result.epistemic_reference),
        "sizes": trend(result.sizes),
        "noise": trend(result.noise),
        "failures": result.failures,
        "inputs": result.number,
    }
