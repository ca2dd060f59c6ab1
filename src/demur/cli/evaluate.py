"""`demur evaluate`: how well scores detect out-of-distribution inputs and errors, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli import defer
from demur.cli.calibration import calibration
from demur.cli.disentanglement import disentanglement
from demur.cli.figures import choose_form, json_figures, pick_clusters, say_intervals
from demur.cli.limits import Exact, Limited, show_limits, wants_limits
from demur.cli.method_files import MethodFiles, Reader, name_methods, pair_methods
from demur.cli.options import (
    Axis,
    Clusters,
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

if TYPE_CHECKING:
    from demur.report.table_forms import Table
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
_RANKING = ("auroc", "aupr", "fpr95")
_FIGURES_SHOWN = {
    "detection": _RANKING,
    "misclassification": _RANKING,
    "selective": ("auc", "aurc", "excess", "augrc", "prr"),
}

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
        help="A figure to show: auroc, aupr or fpr95; with selective auc, aurc, excess, augrc or prr. Repeat "
        "it for several. Default: all for one score, the first for several.",
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
_Strata = Annotated[
    str | None,
    typer.Option(
        "--strata",
        metavar="COLUMN",
        show_default=False,
        help="Column of the kind of each input, such as background or object. A note says where the AUROC of "
        "all inputs differs from the AUROC within kinds.",
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
    clusters: Clusters = None,
    strata: _Strata = None,
    limits: Limited = False,
    exact: Exact = False,
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
        form = choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
        predictions = logits or probs or log_probs
        if not predictions and wants_limits([*known, *unknown], limits=limits, exact=exact):
            show_limits(
                "detection", {"--id": known, "--ood": unknown}, exact=exact, form=form,
                others={"--score": score, "--figure": figure, "--task": task, "--splits": splits,
                        "--clusters": clusters, "--strata": strata},
                confidence=confidence, resamples=resamples, seed=seed,
            )  # fmt: skip
            return
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
                method: tuple(pick_clusters(column, each) for each in pair) for method, pair in pairs.items()
            }

        answer = _evaluate(
            "detection", scores, None, figure, form, reader.head, _describe([*sum(pairs.values(), ())]),
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
        clusters: Clusters = None,
        strata: _Strata = None,
        limits: Limited = False,
        exact: Exact = False,
        json: Json = False,
        latex: Latex = False,
        csv: Csv = False,
        markdown: Markdown = False,
    ) -> None:
        with bad_input_exits():
            form = choose_form(json=json, latex=latex, csv=csv, markdown=markdown)
            predictions = logits or probs or log_probs
            if not predictions and wants_limits(files, limits=limits, exact=exact):
                given = {"scores": files, "--labels": [labels or ""], "--prediction": [prediction]}
                show_limits(
                    task, given, exact=exact, form=form,
                    others={"--score": score, "--figure": figure, "--task": one_task, "--splits": splits,
                            "--clusters": clusters, "--strata": strata, "--tolerance": tolerance},
                    confidence=confidence, resamples=resamples, seed=seed,
                )  # fmt: skip
                return
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
                    method: pick_clusters(column, source, labels) for method, (source, _) in judged.items()
                }

            answer = _evaluate(
                task, scores, correct, figure, form, reader.head, _describe(sources),
                clusters=pick(clusters), strata=pick(strata),
                confidence=confidence, interval=interval, resamples=resamples, splits=splits, seed=seed,
            )  # fmt: skip
        answer()

    app.command(name=task, help=f"{text}\n\ndemur evaluate {task} scores.csv --labels labels.npy")(command)


_add_command("misclassification", "Detect wrong predictions: AUROC, average precision, FPR95.")
_add_command(
    "selective",
    "Measure accuracy against coverage: areas under the accuracy and risk curves, excess risk, AUGRC, PRR.",
)
app.command()(calibration)


def _evaluate(
    task: str,
    scores: Mapping[str, Mapping[str, Any]],
    correct: Mapping[str, Any] | None,
    figures: list[str] | None,
    form: str,
    head: str,
    what: Mapping[str, str],
    **options: Any,
) -> Callable[[], None]:
    """Evaluate the scores of all methods; return a function that prints the result.

    `what` is what `_describe` says of the files.
    """
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
        table = table_of_scores(found, unit=what["unit"])
    return partial(print_figures, replace(table, of=what["rows"]), form, _write_title(task, table, options))


def _describe(sources: Sequence[MethodFiles]) -> dict[str, str]:
    """Return the unit of all scores, if they have one, and what the rows of a table are."""
    units = {str(each.columns["unit"][0]) if "unit" in each.columns else "" for each in sources}
    by_task = any("task" in each.columns for each in sources)
    unit = units.pop() if len(units) == 1 else ""
    return {"unit": unit, "rows": "Task" if by_task else "Method"}


def _write_title(task: str, table: Table, options: Mapping[str, Any]) -> str:
    """Return the title of a table."""
    from demur.report.table_forms import FIGURE_NAMES

    what = {row.section for row in table.rows}
    (section,) = what if len(what) == 1 else ("",)
    by = FIGURE_NAMES.get(section, section)
    spread = f"mean ± spread over {options['splits']} splits" if options["splits"] else None
    interval = say_intervals(options["confidence"], options["clusters"])
    return f"{_TITLES[task]}{f': {by}' if by else ''}, {spread or interval}"


def _make_json(found: Contest, figures: tuple[str, ...], head: str) -> dict[str, Any]:
    """Return the figures of the first method and score, then those of all, as one JSON object."""
    first, named = next(iter(found.results.items()))
    whole: dict[str, Any] = json_figures(named[head], figures) | {"score": head, "method": first}
    if len(named) * len(found.results) > 1:
        whole["methods"] = {
            method: {name: json_figures(result, figures) for name, result in scores.items()}
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
