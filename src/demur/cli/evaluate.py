"""`demur evaluate`: how well scores detect out-of-distribution inputs and errors, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli import defer
from demur.cli.disentanglement import disentanglement
from demur.cli.method_files import MethodScores, Reader, name_methods, pair_methods, split_method_name
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
    Task,
    Tolerance,
)
from demur.cli.printing import bad_input_exits, print_figures, print_object
from demur.cli.score import choose_kind
from demur.progress import progress_bar

if TYPE_CHECKING:
    from demur.report.tables import Table
    from demur.tasks import Contest

app = typer.Typer(
    help="Evaluate scores: detect out-of-distribution inputs and wrong predictions, and decide what to defer."
)
app.add_typer(defer.app, name="defer")
app.command()(disentanglement)

_TITLES = {
    "detection": "Out-of-distribution inputs against in-distribution ones",
    "misclassification": "Wrong predictions against right ones",
    "selective": "Accuracy over the share of inputs kept",
}
_FIGURES_SHOWN = {"detection": ("auroc", "aupr", "fpr95"), "selective": ("auc", "aurc", "excess")}
_FIGURES_SHOWN["misclassification"] = _FIGURES_SHOWN["detection"]

_Score = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        metavar="COLUMN",
        show_default=False,
        help="A column to evaluate; K, I and M are short for the epistemic ones. Repeat it for several. "
        "Default: the total, aleatoric and epistemic parts of average and pairwise, where the files have "
        "them.",
    ),
]
_Figure = Annotated[
    list[str] | None,
    typer.Option(
        "--figure",
        metavar="NAME",
        show_default=False,
        help="A figure to show: auroc, aupr or fpr95; with selective auc, aurc or excess. Repeat it for "
        "several. Default: all for one score, the first for several.",
    ),
]
_Interval = Annotated[
    str, typer.Option(metavar="NAME", help="How intervals are computed: auto, bootstrap or asymptotic.")
]
_Splits = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default=False,
        help="Show mean and standard deviation over N disjoint splits instead of intervals.",
    ),
]


_Clusters = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        metavar="COLUMN",
        show_default=False,
        help="Column that says which inputs belong together, such as the image of a pixel or the patient of "
        "a visit: intervals and tests are then over draws of whole clusters.",
    ),
]

_Strata = Annotated[
    str | None,
    typer.Option(
        "--strata",
        metavar="COLUMN",
        show_default=False,
        help="Column of kinds of inputs, such as background and object: says so where the AUROC of all "
        "inputs together is not that between inputs of one kind.",
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
            help="In-distribution inputs: scores that demur score wrote, a .npy with one number per input, "
            "or predictions with --logits, --probs or --log-probs (a quoted glob for one file per member). "
            "Repeat it, with names, for several methods.",
        ),
    ],
    unknown: Annotated[
        list[str],
        typer.Option(
            "--ood",
            metavar="[NAME=]FILE",
            show_default=False,
            help="Out-of-distribution or adversarial inputs. A single --id is compared with every --ood; "
            "several are matched by name.",
        ),
    ],
    score: _Score = None,
    figure: _Figure = None,
    task: Task = None,
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    confidence: Confidence = 0.95,
    interval: _Interval = "auto",
    resamples: Resamples = 2000,
    splits: _Splits = None,
    seed: Seed = 0,
    clusters: _Clusters = None,
    strata: _Strata = None,
    json: Json = False,
    latex: Latex = False,
    csv: Csv = False,
    markdown: Markdown = False,
) -> None:
    """Detect out-of-distribution inputs: AUROC, average precision, FPR95.

    demur evaluate ood --id id.csv --ood textures.csv

    demur evaluate ood --id MCD=mcd/id.csv --ood MCD=mcd/ood.csv --id DE=de/id.csv --ood DE=de/ood.csv --latex
    """
    with bad_input_exits():
        form = _choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
        reader = Reader(score, logits=logits, probs=probs, log_probs=log_probs, axis=axis, task=task)
        pairs = pair_methods(reader.read_all(known), reader.read_all(unknown))
        names = reader.scores([source for pair in pairs.values() for source in pair])
        scores = {
            method: {name: (first.score(name), second.score(name)) for name in names}
            for method, (first, second) in pairs.items()
        }

        def pick(column: str | None) -> dict[str, Any] | None:
            if column is None:
                return None
            return {
                method: tuple(_pick_clusters(column, each) for each in pair) for method, pair in pairs.items()
            }

        answer = _evaluate(
            "detection", scores, None, figure, form, reader.head,
            clusters=pick(clusters), strata=pick(strata),
            confidence=confidence, interval=interval, resamples=resamples, splits=splits, seed=seed,
        )  # fmt: skip
    answer()


def _add_command(task: str, text: str) -> None:
    """Add a command for scores of labelled inputs."""

    def command(
        files: Annotated[
            list[str],
            typer.Argument(
                metavar="[NAME=]FILE",
                show_default=False,
                help="Scores that demur score wrote, or predictions with --logits, --probs or --log-probs (a "
                "quoted glob for one file per member). Several files are several methods.",
            ),
        ],
        labels: Labels = None,
        prediction: Prediction = "prediction",
        tolerance: Tolerance = None,
        score: _Score = None,
        figure: _Figure = None,
        one_task: Task = None,
        logits: Logits = False,
        probs: Probs = False,
        log_probs: LogProbs = False,
        axis: Axis = 0,
        confidence: Confidence = 0.95,
        interval: _Interval = "auto",
        resamples: Resamples = 2000,
        splits: _Splits = None,
        seed: Seed = 0,
        clusters: _Clusters = None,
        strata: _Strata = None,
        json: Json = False,
        latex: Latex = False,
        csv: Csv = False,
        markdown: Markdown = False,
    ) -> None:
        with bad_input_exits():
            form = _choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
            reader = Reader(score, logits=logits, probs=probs, log_probs=log_probs, axis=axis, task=one_task)
            sources = reader.read_all(files)
            judged = {
                name: source.judge(labels, prediction, tolerance)
                for name, source in name_methods(sources).items()
            }
            correct = {method: right for method, (_, right) in judged.items()}
            names = reader.scores(sources)
            scores = {
                method: {name: source.score(name) for name in names} for method, (source, _) in judged.items()
            }

            def pick(column: str | None) -> dict[str, Any] | None:
                if column is None:
                    return None
                return {
                    method: _pick_clusters(column, source, labels) for method, (source, _) in judged.items()
                }

            answer = _evaluate(
                task, scores, correct, figure, form, reader.head,
                clusters=pick(clusters), strata=pick(strata),
                confidence=confidence, interval=interval, resamples=resamples, splits=splits, seed=seed,
            )  # fmt: skip
        answer()

    app.command(name=task, help=f"{text}\n\ndemur evaluate {task} scores.csv --labels labels.npy")(command)


_add_command("misclassification", "Detect wrong predictions: AUROC, average precision, FPR95.")
_add_command(
    "selective",
    "Measure accuracy against coverage: areas under the accuracy and the risk curve, excess risk.",
)


@app.command()
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
    clusters: _Clusters = None,
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

        form = _choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
        kind = choose_kind(logits=logits, probs=probs, log_probs=log_probs)
        truth = read_labels(labels)["label"]
        together = None if clusters is None else _read_clusters(clusters, labels)
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
        found = {name: _json_figures(result, figures) for name, result in results.items()}
        print_object(next(iter(found.values())) | ({"methods": found} if len(found) > 1 else {}))
    else:
        title = f"Calibration of {len(truth)} predictions, {_say_intervals(confidence, clusters)}"
        print_figures(table_of_figures(results, figures), form, title)


def _choose_form(**forms: bool) -> str:
    """Return the one form that is asked for, or "text"."""
    asked = [name for name, wanted in forms.items() if wanted]
    if len(asked) > 1:
        raise ValueError(f"expected at most one form, got --{' and --'.join(asked)}: choose one")
    return asked[0] if asked else "text"


def _pick_clusters(name: str, source: MethodScores, labels: str | None = None) -> Any:
    """Return the column of clusters, of the scores or of the file of labels, for the rows that count."""
    if name in source.columns or labels is None:
        return source.column(name)
    found = _read_clusters(name, labels)
    if len(found) != len(source.rows):
        raise ValueError(
            f"{labels}: expected {len(source.rows)} clusters, one per row of {source.path}, got {len(found)}"
        )
    return found[source.rows]


def _read_clusters(name: str, labels: str) -> Any:
    """Return a column of the file of labels."""
    from demur.stores import pick_column, read_columns, split_name

    path = split_name(labels)[0]
    columns = {} if path.lower().endswith(".npy") else read_columns(Path(path), nameless="label")
    return pick_column(columns, name, path)


def _say_intervals(confidence: float, clusters: Any) -> str:
    """Return what the intervals of a table are."""
    return f"with {100 * confidence:g} % intervals{' over draws of whole clusters' if clusters else ''}"


def _evaluate(
    task: str,
    scores: Mapping[str, Mapping[str, Any]],
    correct: Mapping[str, Any] | None,
    figures: list[str] | None,
    form: str,
    head: str,
    **options: Any,
) -> Callable[[], None]:
    """Evaluate the scores of all methods; return a function that prints the result."""
    from demur.report.tables import kinds_of, table_of_figures, table_of_scores
    from demur.tasks import contest

    names = list(next(iter(scores.values())))
    one = len(names) == 1
    shown = figures or list(_FIGURES_SHOWN[task][: None if one else 1])
    for figure in shown:
        if figure not in _FIGURES_SHOWN[task]:
            raise ValueError(f"--figure: expected one of {', '.join(_FIGURES_SHOWN[task])}, got {figure}")
    found = contest(scores, task, correct=correct, figures=shown, groups=kinds_of(names), **options)
    if form == "json":
        return partial(print_object, _make_json(found, _FIGURES_SHOWN[task], head))
    if one:
        table = table_of_figures({m: named[head] for m, named in found.results.items()}, shown, head)
    else:
        table = table_of_scores(found)
    return partial(print_figures, table, form, _write_title(task, table, options))


def _write_title(task: str, table: Table, options: Mapping[str, Any]) -> str:
    """Return the title of a table."""
    from demur.report.tables import FIGURE_NAMES

    what = {row.section for row in table.rows}
    (section,) = what if len(what) == 1 else ("",)
    by = FIGURE_NAMES.get(section, section)
    spread = f"mean ± spread over {options['splits']} splits" if options["splits"] else None
    interval = _say_intervals(options["confidence"], options["clusters"])
    return f"{_TITLES[task]}{f': {by}' if by else ''}, {spread or interval}"


def _json_figures(result: Any, figures: tuple[str, ...]) -> dict[str, Any]:
    """Return figures as JSON can hold them."""
    from demur.stores import json_number

    if getattr(result, "within", None) is not None:
        figures = (*figures, "within")
    found: dict[str, Any] = {
        figure: {key: json_number(value) for key, value in getattr(result, figure).to_dict().items()}
        for figure in figures
    }
    chance = getattr(result, "chance", None)
    return found if chance is None else found | {"chance": chance}


def _make_json(found: Contest, figures: tuple[str, ...], head: str) -> dict[str, Any]:
    """Return the figures of the first method and score, then those of all, as one JSON object."""
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
