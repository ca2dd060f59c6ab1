"""`demur evaluate defer`: fit a threshold with a guarantee, and apply it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.figures import pick_clusters
from demur.cli.method_files import DEFAULT_SCORE, MethodFiles, Reader, find_method
from demur.cli.options import (
    Axis,
    Clusters,
    Confidence,
    Force,
    Json,
    Labels,
    Logits,
    LogProbs,
    Prediction,
    Probs,
    Task,
    Tolerance,
)
from demur.cli.printing import bad_input_exits, complain, print_object, say
from demur.cli.scored_files import refuse_to_replace

if TYPE_CHECKING:
    import numpy as np

    from demur.deferral import Deferral, Report
    from demur.deferrals import Deferrals

app = typer.Typer(
    help="Decide which inputs to defer to a person: fit a threshold with a guarantee, and apply it."
)

_ScoreFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="Scores that demur score wrote, or predictions with --logits, --probs or --log-probs.",
    ),
]
_Groups = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", show_default=False, help="Column of group names; each group gets its own threshold."
    ),
]


@app.command()
def fit(
    scores: _ScoreFile,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Write the policy to a .json file.", show_default=False)
    ],
    labels: Labels = None,
    prediction: Prediction = "prediction",
    tolerance: Tolerance = None,
    task: Task = None,
    score: Annotated[
        str, typer.Option(metavar="COLUMN", help="The score to threshold: a column, or K, I, M or aleatoric.")
    ] = DEFAULT_SCORE,
    accuracy: Annotated[
        list[float] | None,
        typer.Option(
            show_default=False,
            help="Keep as many inputs as possible with this accuracy, guaranteed on new inputs. Goals "
            "may be given together and repeatedly: the file then holds a policy for each target.",
        ),
    ] = None,
    coverage: Annotated[
        list[float] | None,
        typer.Option(
            show_default=False,
            help="Keep this share of the inputs; guarantees a lower bound of their accuracy.",
        ),
    ] = None,
    risk: Annotated[
        list[float] | None,
        typer.Option(
            show_default=False,
            help="Keep inputs so that at most this share of all is kept and wrong, in expectation.",
        ),
    ] = None,
    cost: Annotated[
        list[float] | None,
        typer.Option(
            show_default=False,
            help="Minimise cost: that of a deferral, where an error costs 1. No guarantee.",
        ),
    ] = None,
    confidence: Confidence = 0.95,
    groups: _Groups = None,
    clusters: Clusters = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw of one input of each cluster.")] = 0,
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Fit a threshold on labelled inputs that the model was not trained on (a calibration set).

    Choose the goal: --accuracy, --coverage, --risk or --cost; or several, for policies to choose from.

    demur evaluate defer fit scores.csv --labels labels.npy --accuracy 0.99 --out policy.json
    """
    with bad_input_exits():
        from demur.deferrals import Deferrals
        from demur.stores import StoreError, check_output, explain_write_errors

        if out.suffix.lower() != ".json":
            raise StoreError(
                f"{out}: expected an output file that ends in .json, got {out.suffix or 'no suffix'!r}"
            )
        check_output(out, force=force)
        reader = Reader([score], logits=logits, probs=probs, log_probs=log_probs, axis=axis, task=task)
        source, score = reader.read(scores), reader.head
        _refuse_inputs(out, source.path, labels)
        source, correct = source.judge(labels, prediction, tolerance)
        names = _pick_groups(source, groups, task)
        goals = {"accuracy": accuracy, "coverage": coverage, "risk": risk, "cost": cost}
        fitted = Deferrals.fit(
            source.score(score), correct, confidence=confidence, groups=names, seed=seed,
            clusters=None if clusters is None else pick_clusters(clusters, source, labels),
            **{goal: targets for goal, targets in goals.items() if targets},
        )  # fmt: skip
        method = find_method(source.path) or None
        policies = Deferrals(
            {name: replace(each, score=score, method=method) for name, each in fitted.items()}
        )
        with explain_write_errors(out):
            _get_single(policies).save(out)
    # The fit has seen these inputs, so their shares estimate nothing about new ones: no intervals.
    kept = {name: ~deferred for name, deferred in policies.defer(source.score(score), names).items()}
    several = len(policies) > 1
    if json:
        found = {
            name: {"promise": policies[name].promise(), "kept": float(each.mean())}
            for name, each in kept.items()
        }
        print_object(({"policies": found} if several else next(iter(found.values()))) | {"out": str(out)})
        return
    say(_get_single(policies).promise())
    for name, each in kept.items():
        who = f"{name}: keeps" if several else "Keeps"
        say(f"{who} {each.sum()} of the {len(each)} inputs that it was fitted on.")
    say(f"Wrote the {f'{len(policies)} policies' if several else 'policy'} to {out}")


@app.command()
def apply(
    policy: Annotated[
        Path, typer.Argument(metavar="POLICY", show_default=False, help="The policy that fit wrote.")
    ],
    scores: _ScoreFile,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="Which of several policies in the file, as accuracy=0.95.",
        ),
    ] = None,
    labels: Labels = None,
    prediction: Prediction = "prediction",
    tolerance: Tolerance = None,
    task: Task = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", show_default=False, help="The score to threshold. Default: that of the policy."
        ),
    ] = None,
    groups: _Groups = None,
    clusters: Clusters = None,
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the decisions to a .csv, .parquet, .npz or .json file.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Keep or defer each input; with labels, also report the accuracy of what is kept.

    demur evaluate defer apply policy.json new.csv --out decisions.csv
    """
    with bad_input_exits():
        from demur.stores import check_output, write_columns

        if out is not None:
            check_output(out, force=force)
        rule = read_policy(policy, target)
        column = score or str(rule.score or DEFAULT_SCORE)
        reader = Reader([column], logits=logits, probs=probs, log_probs=log_probs, axis=axis, task=task)
        source, column = reader.read(scores), reader.head
        if out is not None:
            _refuse_inputs(out, source.path, labels, str(policy))
        judged, correct = source, None
        if labels is not None or "label" in source.columns:
            judged, correct = source.judge(labels, prediction, tolerance)
        together = None if clusters is None else pick_clusters(clusters, judged, labels)
        report = rule.report(judged.score(column), correct, _pick_groups(judged, groups, task), together)
        deferred = rule.defer(source.score(column), _pick_groups(source, groups, task))
        decisions = _list_decisions(source, column, deferred)
        if out is not None:
            write_columns(out, decisions, force=force)
    _warn_of_other_scores(rule, column, find_method(source.path))
    if json:
        print_object(_json_report(report) | ({} if out is None else {"out": str(out)}))
        return
    say(report)
    if out is not None:
        say(f"Wrote the decisions on {len(decisions['decision'])} inputs to {out}")


def _get_single(policies: Deferrals) -> Deferral | Deferrals:
    """Return the policy, where there is one only."""
    return next(iter(policies.values())) if len(policies) == 1 else policies


def read_policy(path: Path, target: str | None) -> Deferral:
    """Return the policy in a file, or that of a target."""
    from demur.deferrals import Deferrals
    from demur.stores import open_binary

    open_binary(path).close()  # raises a StoreError, and never waits for a pipe
    policies = Deferrals.load(path)
    if target is None and len(policies) > 1:
        raise ValueError(f"{path}: expected --target, one of {', '.join(policies)}. Got none.")
    if target is not None and target not in policies:
        raise ValueError(f"{path}: --target: expected one of {', '.join(policies)}. Got {target!r}.")
    return policies[next(iter(policies)) if target is None else target]


def _refuse_inputs(out: Path, *read: str | None) -> None:
    """Raise a `StoreError` where the output file is one of those that are read."""
    from demur.stores import find_files

    for written in read:
        if written is not None:
            refuse_to_replace([path for path, _ in find_files([written])], out)


def _warn_of_other_scores(rule: Deferral, score: str, method: str) -> None:
    """Warn on stderr where a policy was fitted on other scores than these, as far as both are known."""
    if rule.score and rule.score != score:
        complain(f"the policy was fitted on {rule.score}, these are {score}: its guarantee does not hold")
    elif rule.method and method and rule.method != method:
        complain(
            f"the policy was fitted on {rule.method}, these are of {method}: its guarantee does not hold for "
            "another method"
        )


def _pick_groups(source: MethodFiles, groups: str | None, task: str | None) -> np.ndarray | None:
    """Return the names of groups, if there are any: by default tasks, since some are harder than others."""
    if groups is None and task is None and "task" in source.columns:
        groups = "task"
    return None if groups is None else source.column(groups)


def _list_decisions(source: MethodFiles, score: str, deferred: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of the decisions; what has no prediction is left to a person."""
    import numpy as np

    decision = np.full(len(source.rows), "defer")
    decision[source.rows] = np.where(deferred, "defer", "keep")
    columns = source.columns
    texts = [name for name, values in columns.items() if values.dtype.kind == "U" and name != "unit"]
    kept = dict.fromkeys(("input", "id", "task", *texts, "prediction", score))
    found = {name: columns[name] for name in kept if name in columns} | {"decision": decision}
    return {name: values[source.wanted] for name, values in found.items()}


def _json_report(report: Report) -> dict[str, Any]:
    """Return what a policy did, as JSON can hold it."""
    found: dict[str, Any] = {
        "kept": report.kept,
        "inputs": report.number,
        "coverage": report.coverage.to_dict(),
        "text": str(report),
    }
    return found if report.accuracy is None else found | {"accuracy": report.accuracy.to_dict()}
