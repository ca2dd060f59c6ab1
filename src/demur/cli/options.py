"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Logits = Annotated[bool, typer.Option("--logits", help="The numbers are logits.")]
Probs = Annotated[bool, typer.Option("--probs", help="The numbers are probabilities.")]
LogProbs = Annotated[bool, typer.Option("--log-probs", help="The numbers are log-probabilities.")]
Axis = Annotated[int, typer.Option(help="Where files with three axes have their members. Classes are last.")]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        show_default=False,
        help="True classes: .csv, .npy, .npz, .parquet or .json; FILE:NAME for one column of several. "
        "Default: the column label of the scores.",
    ),
]
Prediction = Annotated[
    str, typer.Option(metavar="COLUMN", help="Predicted classes: right where they are the label.")
]
Confidence = Annotated[float, typer.Option(help="Of intervals and promises.")]
Resamples = Annotated[int, typer.Option(help="Bootstrap resamples.")]
Seed = Annotated[int, typer.Option(min=0, help="Of resamples and splits.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing --out file.")]
Json = Annotated[bool, typer.Option("--json", help='Print one JSON object. Infinity is "inf".')]
Latex = Annotated[bool, typer.Option("--latex", help="Print the table in LaTeX, for booktabs.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a line for each figure.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table in Markdown.")]
