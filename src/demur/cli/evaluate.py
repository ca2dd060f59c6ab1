"""`demur evaluate`: what scores in files are good for, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli import defer
from demur.cli.options import (
    Axis,
    Confidence,
    Csv,
    Json,
    Labels,
    Latex,
    Logits,
    LogProbs,
    Markdown,
    Prediction,
    Probs,
    Resamples,
    Seed,
)
from demur.cli.printing import bad_input_exits, print_figures, print_object
from demur.cli.score import choose_kind
from demur.cli.sources import Reader, named, paired
from demur.progress import progress_bar

if TYPE_CHECKING:
    from demur.report.tables import Table
    from demur.tasks import Contest

app = typer.Typer(help="Measure what scores are good for: to find unknown inputs and errors, and to defer.")
app.add_typer(defer.app, name="defer")

_TITLES = {
    "detection": "Out-of-distribution inputs against in-distribution ones",
    "misclassification": "Wrong predictions against right ones",
    "selective": "Accuracy over the share of inputs kept",
}
_SHOWN = {"detection": ("auroc", "aupr", "fpr95"), "selective": ("auc", "aurc", "excess")}
_SHOWN["misclassification"] = _SHOWN["detection"]

_Score = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        metavar="COLUMN",
        show_default=False,
        help="A score, or K, I or M for the epistemic ones; give it again for more. Default: total, "
        "aleatoric and epistemic, measured as average and as pairwise, of those in the files.",
    ),
]
_Figure = Annotated[
    list[str] | None,
    typer.Option(
        "--figure",
        metavar="NAME",
        show_default=False,
        help="A figure to show; give it again for more. Default: the first one for several scores, else all.",
    ),
]
_Interval = Annotated[
    str, typer.Option(metavar="NAME", help="auto, bootstrap or asymptotic, where there is a choice.")
]
_Splits = Annotated[
    int | None,
    typer.Option(
        metavar="N", show_default=False, help="Mean and spread over N disjoint splits, in place of intervals."
    ),
]


@app.command()
def ood(
    known: Annotated[
        list[str],
        typer.Option(
            "--id",
            metavar="[NAME=]FILE",
            show_default=False,
            help="In-distribution inputs: scores, as demur score writes them; or predictions, with --logits, "
            "--probs or --log-probs, a quoted glob where members have files of their own. Again, with names, "
            "for more methods.",
        ),
    ],
    unknown: Annotated[
        list[str],
        typer.Option(
            "--ood",
            metavar="[NAME=]FILE",
            show_default=False,
            help="Out-of-distribution or attacked inputs. One --id goes with each --ood; several go with "
            "those of the same name.",
        ),
    ],
    score: _Score = None,
    figure: _Figure = None,
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    confidence: Confidence = 0.95,
    interval: _Interval = "auto",
    resamples: Resamples = 2000,
    splits: _Splits = None,
    seed: Seed = 0,
    json: Json = False,
    latex: Latex = False,
    csv: Csv = False,
    markdown: Markdown = False,
) -> None:
    """Tell out-of-distribution inputs from in-distribution ones: AUROC, average precision, FPR95.

    demur evaluate ood --id id.csv --ood textures.csv

    demur evaluate ood --id MCD=mcd/id.csv --ood MCD=mcd/ood.csv --id DE=de/id.csv --ood DE=de/ood.csv --latex
    """
    with bad_input_exits():
        form = _choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
        reader = Reader(score, logits=logits, probs=probs, log_probs=log_probs, axis=axis)
        pairs = paired(reader.read_all(known), reader.read_all(unknown))
        names = reader.scores([source for pair in pairs.values() for source in pair])
        scores = {
            method: {name: (first.score(name), second.score(name)) for name in names}
            for method, (first, second) in pairs.items()
        }
        answer = _evaluated(
            "detection", scores, None, figure, form, reader.head,
            confidence=confidence, interval=interval, resamples=resamples, splits=splits, seed=seed,
        )  # fmt: skip
    answer()


def _add_command(task: str, text: str) -> None:
    """Add a command for scores of inputs whose truth is known."""

    def command(
        files: Annotated[
            list[str],
            typer.Argument(
                metavar="[NAME=]FILE",
                show_default=False,
                help="Scores, as demur score writes them; or predictions, with --logits, --probs or "
                "--log-probs, a quoted glob where members have files of their own. Several are methods.",
            ),
        ],
        labels: Labels = None,
        prediction: Prediction = "prediction",
        score: _Score = None,
        figure: _Figure = None,
        logits: Logits = False,
        probs: Probs = False,
        log_probs: LogProbs = False,
        axis: Axis = 0,
        confidence: Confidence = 0.95,
        interval: _Interval = "auto",
        resamples: Resamples = 2000,
        splits: _Splits = None,
        seed: Seed = 0,
        json: Json = False,
        latex: Latex = False,
        csv: Csv = False,
        markdown: Markdown = False,
    ) -> None:
        with bad_input_exits():
            from demur.stores import correct_of, read_labels

            form = _choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
            reader = Reader(score, logits=logits, probs=probs, log_probs=log_probs, axis=axis)
            sources = reader.read_all(files)
            truth = None if labels is None else read_labels(labels)
            correct = {s.name: correct_of(s.columns, truth, s.path, prediction=prediction) for s in sources}
            names = reader.scores(sources)
            scores = {source.name: {name: source.score(name) for name in names} for source in sources}
            answer = _evaluated(
                task, scores, correct, figure, form, reader.head,
                confidence=confidence, interval=interval, resamples=resamples, splits=splits, seed=seed,
            )  # fmt: skip
        answer()

    app.command(name=task, help=f"{text}\n\ndemur evaluate {task} scores.csv --labels labels.npy")(command)


_add_command("misclassification", "Tell wrong predictions from right ones: AUROC, average precision, FPR95.")
_add_command(
    "selective", "Measure accuracy over the share of inputs kept: its area, that under the risk, excess."
)


@app.command()
def calibration(
    files: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]FILE", show_default=False, help="Predictions; several are methods."),
    ],
    labels: Annotated[
        str, typer.Option(metavar="FILE", help="True classes, as numbers from 0.", show_default=False)
    ],
    bins: Annotated[int, typer.Option(help="Bins of equally many inputs.")] = 15,
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    confidence: Confidence = 0.95,
    resamples: Resamples = 2000,
    seed: Seed = 0,
    json: Json = False,
    latex: Latex = False,
    csv: Csv = False,
    markdown: Markdown = False,
) -> None:
    """Check probabilities of the average of the members: log loss (nats), Brier score, calibration error.

    demur evaluate calibration predictions.npy --logits --labels labels.npy
    """
    with bad_input_exits():
        from demur.report.tables import table_of_figures
        from demur.scoring.score_files import average_predictions
        from demur.stores import open_predictions, read_labels
        from demur.tasks import calibration

        form = _choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
        kind = choose_kind(logits=logits, probs=probs, log_probs=log_probs)
        truth = read_labels(labels)["label"]
        results = {}
        for written in files:
            name, path = named(written)
            name = name or Path(path).stem
            if name in results:
                raise ValueError(f"expected another name for each file, as NAME={path}, got {name} twice")
            with (
                open_predictions([path], axis=axis) as predictions,
                progress_bar(predictions.inputs, "inputs") as progress,
            ):
                average = average_predictions(predictions, kind, progress=progress)
            options = {"confidence": confidence, "resamples": resamples, "seed": seed}
            results[name] = calibration(average, truth, bins=bins, **options)
    figures = ("nll", "brier", "ece")
    if form == "json":
        found = {name: _json_figures(result, figures) for name, result in results.items()}
        print_object(next(iter(found.values())) | ({"methods": found} if len(found) > 1 else {}))
    else:
        title = f"Calibration of {len(truth)} predictions, with {100 * confidence:g} % intervals"
        print_figures(table_of_figures(results, figures), form, title)


def _choose_form(**forms: bool) -> str:
    """Return the one form that is asked for, or "text"."""
    asked = [name for name, wanted in forms.items() if wanted]
    if len(asked) > 1:
        raise ValueError(f"expected at most one form, got --{' and --'.join(asked)}: choose one")
    return asked[0] if asked else "text"


def _evaluated(
    task: str,
    scores: Mapping[str, Mapping[str, Any]],
    correct: Mapping[str, Any] | None,
    figures: list[str] | None,
    form: str,
    head: str,
    **options: Any,
) -> Callable[[], None]:
    """Evaluate the scores of all methods; returns what prints what came out."""
    from demur.report.tables import kinds_of, table_of_figures, table_of_scores
    from demur.tasks import contest

    names = list(next(iter(scores.values())))
    one = len(names) == 1
    shown = figures or list(_SHOWN[task][: None if one else 1])
    for figure in shown:
        if figure not in _SHOWN[task]:
            raise ValueError(f"--figure: expected one of {', '.join(_SHOWN[task])}, got {figure}")
    found = contest(scores, task, correct=correct, figures=shown, groups=kinds_of(names), **options)
    if form == "json":
        return partial(print_object, _json_of(found, _SHOWN[task], head))
    if one:
        table = table_of_figures({m: named[head] for m, named in found.results.items()}, shown, head)
    else:
        table = table_of_scores(found)
    return partial(print_figures, table, form, _title_of(task, table, options))


def _title_of(task: str, table: Table, options: Mapping[str, Any]) -> str:
    """Return what a table shows, in words."""
    from demur.report.tables import FIGURE_NAMES

    what = {row.section for row in table.rows}
    (section,) = what if len(what) == 1 else ("",)
    by = FIGURE_NAMES.get(section, section)
    spread = f"mean ± spread over {options['splits']} splits" if options["splits"] else None
    interval = f"with {100 * options['confidence']:g} % intervals"
    return f"{_TITLES[task]}{f': {by}' if by else ''}, {spread or interval}"


def _json_figures(result: Any, figures: tuple[str, ...]) -> dict[str, Any]:
    """Return figures as JSON can hold them."""
    from demur.stores import json_number

    return {
        figure: {key: json_number(value) for key, value in getattr(result, figure).to_dict().items()}
        for figure in figures
    }


def _json_of(found: Contest, figures: tuple[str, ...], head: str) -> dict[str, Any]:
    """Return one object: the figures of the first method and score, then those of all of them."""
    first, named = next(iter(found.results.items()))
    whole: dict[str, Any] = _json_figures(named[head], figures) | {"score": head, "method": first}
    if len(named) * len(found.results) > 1:
        whole["methods"] = {
            method: {name: _json_figures(result, figures) for name, result in scores.items()}
            for method, scores in found.results.items()
        }
        whole["comparisons"] = [
            {
                "figure": figure,
                "method": method,
                "scores": [a, b],
                "difference": c.difference.to_dict(),
                "p_value": c.p_value,
                "adjusted": c.adjusted,
            }
            for (figure, method, a, b), c in found.comparisons.items()
        ]
    return whole
