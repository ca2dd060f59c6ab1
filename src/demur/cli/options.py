"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Logits = Annotated[bool, typer.Option("--logits", help="The files hold logits.")]
Probs = Annotated[bool, typer.Option("--probs", help="The files hold probabilities.")]
LogProbs = Annotated[bool, typer.Option("--log-probs", help="The files hold log-probabilities.")]


def _parse_axis(text: Any) -> int | None:
    """Return an axis as a number; None of "none"."""
    return None if text == "none" else int(text)


Axis = Annotated[
    int | None,
    typer.Option(
        parser=_parse_axis,
        metavar="N|none",
        help="Axis of the members in files with three or more axes, counted from 0; none: each file is one "
        "member.",
    ),
]
ClassAxis = Annotated[
    int,
    typer.Option(
        help="Axis of the classes: 2 for images as PyTorch has them, (members, inputs, classes, height, "
        "width). Default: the last one."
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        show_default=False,
        help="Column of a table that names the inputs, written as id. Default: id, ids, index or input.",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        show_default=False,
        help="A numeric column of a table that is not a prediction: it is copied to the scores, as text "
        "columns are. Repeat it for several.",
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="NAME",
        show_default=False,
        help="One task of scores that have several (demur score --binary). Default: each by itself.",
    ),
]
Clusters = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        metavar="COLUMN",
        show_default=False,
        help="Column that says which inputs belong together, such as the image of a pixel or the patient of "
        "a visit: intervals and tests are then over draws of whole clusters.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        show_default=False,
        help="For predicted numbers: how far from its label one may be and still count as right.",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        show_default=False,
        help="True classes: .csv, .npy, .npz, .parquet or .json; FILE:NAME for one column of several. "
        "Default: the column label of the score file.",
    ),
]
Prediction = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="Column of the predicted classes, which are compared with the labels."
    ),
]
Confidence = Annotated[float, typer.Option(help="Confidence level of intervals and guarantees.")]
Resamples = Annotated[int, typer.Option(help="Number of bootstrap resamples.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the resamples and splits.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing --out file.")]
Json = Annotated[bool, typer.Option("--json", help='Print one JSON object. Infinity is "inf".')]
Latex = Annotated[bool, typer.Option("--latex", help="Print the table in LaTeX (needs booktabs).")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the table as CSV, one line per figure.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")]
