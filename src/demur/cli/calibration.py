"""`demur evaluate calibration`: whether predicted probabilities are what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.figures import choose_form, json_figures, read_clusters, say_intervals
from demur.cli.method_files import split_method_name
from demur.cli.options import (
    Axis,
    Clusters,
    Confidence,
    Csv,
    Json,
    Latex,
    Logits,
    LogProbs,
    Markdown,
    Probs,
    Resamples,
    Seed,
)
from demur.cli.printing import bad_input_exits, print_figures, print_object
from demur.cli.scored_files import choose_kind
from demur.progress import progress_bar


def calibration(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]FILE", show_default=False, help="Predictions. Several files are several methods."
        ),
    ],
    labels: Annotated[
        str, typer.Option(metavar="FILE", help="True classes, as numbers from 0 on.", show_default=False)
    ],
    bins: Annotated[int, typer.Option(help="Number of bins, each with equally many inputs.")] = 15,
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    confidence: Confidence = 0.95,
    resamples: Resamples = 2000,
    seed: Seed = 0,
    clusters: Clusters = None,
    json: Json = False,
    latex: Latex = False,
    csv: Csv = False,
    markdown: Markdown = False,
) -> None:
    """Measure the calibration of the average of the members: log loss (nats), Brier score, ECE.

    demur evaluate calibration predictions.npy --logits --labels labels.npy
    """
    with bad_input_exits():
        from demur.report.tables import table_of_figures
        from demur.scoring.score_files import average_predictions
        from demur.stores import number_labels, open_predictions, read_labels
        from demur.tasks import calibration

        form = choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
        kind = choose_kind(logits=logits, probs=probs, log_probs=log_probs)
        truth = read_labels(labels)["label"]
        together = None if clusters is None else read_clusters(clusters, labels)
        results = {}
        for written in files:
            name, path = split_method_name(written)
            name = name or Path(path).stem
            if name in results:
                raise ValueError(f"expected a different name for each file, as NAME={path}, got {name} twice")
            with (
                open_predictions([path], axis=axis) as predictions,
                progress_bar(predictions.inputs, "inputs") as progress,
            ):
                average = average_predictions(predictions, kind, progress=progress)
            own = number_labels(truth, predictions.names, path)
            options = {"confidence": confidence, "resamples": resamples, "seed": seed}
            results[name] = calibration(average, own, bins=bins, clusters=together, **options)
    figures = ("nll", "brier", "ece")
    if form == "json":
        found = {name: json_figures(result, figures) for name, result in results.items()}
        print_object(next(iter(found.values())) | ({"methods": found} if len(found) > 1 else {}))
    else:
        title = f"Calibration of {len(truth)} predictions, {say_intervals(confidence, clusters)}"
        print_figures(table_of_figures(results, figures), form, title)
