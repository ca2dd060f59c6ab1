"""`demur score`: uncertainty of each input, from files of predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from demur.cli.options import Axis, Force, Logits, LogProbs, Probs
from demur.cli.printing import bad_input_exits, complain, print_summary, print_top
from demur.progress import progress_bar

if TYPE_CHECKING:
    from demur.scoring.score_table import ScoreTable

Kind = Literal["logits", "probs", "log_probs"]


def score(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Predictions: .npy, .npz, .safetensors, .pt, .csv or .parquet. A file with three axes "
            "(members, inputs, classes) holds several members; one with two (one row per input, one column "
            "per class) is one member. Write file.npz:name to pick one array of several. A quoted glob such "
            "as 'run/*.npy' takes its files in natural order (9 before 10).",
        ),
    ],
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    axis: Axis = 0,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Weights of the members, one number per member in their order: .npy, .csv, .txt or .json; "
            "or a .npy of shape (members, inputs).",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="True classes, copied to the column label of the scores: .csv, .npy, .npz, .parquet or "
            ".json; FILE:NAME picks one column of several.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A measure: pairwise, average, reverse or bma. Repeat it for several. Default: the first "
            "three.",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[
        str, typer.Option(metavar="NAME", help="The proper scoring rule: log, brier, spherical or zero_one.")
    ] = "log",
    base: Annotated[
        float | None,
        typer.Option(
            help="Base of the logarithm: 2 gives bits. Default: e, which gives nats.", show_default=False
        ),
    ] = None,
    unbiased: Annotated[
        bool,
        typer.Option(
            "--unbiased",
            help="Correct the bias of a finite number of members, with a jackknife over the members (over "
            "64 groups of them if there are more).",
        ),
    ] = False,
    stderr: Annotated[
        bool,
        typer.Option(
            "--stderr",
            help="Add standard errors, from a jackknife over the members (over 64 groups of them if there "
            "are more).",
        ),
    ] = False,
    rounding: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTH|dtype",
            show_default=False,
            help="How far each probability may be off, since it was rounded: a half-width (5e-7 for six "
            "decimals), or dtype. Epistemic parts are then the least that fit: lower bounds, and finite. 0: "
            "the numbers are exact.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(metavar="K", help="List the K most uncertain inputs.", min=1, show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the scores to a .csv, .parquet, .npz or .json file. Columns are {measure}_{part}.",
        ),
    ] = None,
    force: Force = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='Print one JSON object with the summary and, without --out, the scores. Infinity is "inf".',
        ),
    ] = False,
) -> None:
    """Score each input: total, aleatoric and epistemic uncertainty.

    Say what the files hold: --logits, --probs or --log-probs. They may be larger than memory.

    demur score predictions.npy --logits --top 10

    demur score 'run/member_*.npy' --logits --out scores.csv
    """
    with bad_input_exits():
        from demur.core.rounding import describe as describe_infinite
        from demur.stores import mark_correct, read_labels, split_name

        kind = choose_kind(logits=logits, probs=probs, log_probs=log_probs)
        options: dict[str, Any] = {
            "rule": rule,
            "base": base,
            "unbiased": unbiased,
            "stderr": stderr,
            "rounding": _parse_rounding(rounding),
        }
        if measure:
            options["measures"] = measure
        truth = None if labels is None else read_labels(labels)
        if labels is not None:
            refuse_to_replace([Path(split_name(labels)[0])], out)
        scores = score_files(files, kind, axis=axis, weights=weights, out=out, force=force, options=options)
        if truth is not None:
            mark_correct(scores.columns, truth, files[0])  # as many, of the same kind and in the same order
            columns = {"input": scores.columns["input"], "label": truth["label"], **scores.columns}
            scores = replace(scores, columns=columns)
        facts = _describe(scores, kind, files, options)
        if top is not None:
            facts["top"] = _top_rows(scores, top)
        if out is not None:
            from demur.stores import write_columns

            write_columns(out, scores.columns, facts=facts, force=force)
    if scores.members == 1:
        complain(
            f"one member of {scores.inputs} inputs: a single member cannot disagree, so the epistemic parts "
            "are 0; give a file of shape (members, inputs, classes), or one file per member"
        )
    infinite = scores.count_infinite()
    if infinite and kind == "probs" and rounding is None:
        complain(
            f"{describe_infinite(infinite, scores.inputs)} Give logits; or --rounding dtype, or a half-width "
            "(5e-7 for six decimals), for the least value that fits; or take --measure average, which is "
            "always finite. --rounding 0 says that the numbers are exact."
        )
    if json:
        _print_json(scores, facts, out)
        return
    if out is None:
        print_summary(scores, facts["unit"])
    else:
        print(f"Wrote the scores of {scores.inputs} inputs to {out}")
    if top is not None:
        print_top(scores, top, facts["unit"])


def choose_kind(*, logits: bool, probs: bool, log_probs: bool) -> Kind:
    """Return what the files hold; it is never guessed from the range of the numbers."""
    given: list[Kind] = []
    if logits:
        given.append("logits")
    if probs:
        given.append("probs")
    if log_probs:
        given.append("log_probs")
    if len(given) != 1:
        came = " and ".join("--" + each.replace("_", "-") for each in given) or "none"
        raise ValueError(
            f"expected exactly one of --logits, --probs, --log-probs, got {came}: say what the files hold"
        )
    return given[0]


def _parse_rounding(text: str | None) -> float | str | None:
    """Return a half-width as a number; "dtype" stays."""
    try:
        return text if text is None or text == "dtype" else float(text)
    except ValueError:
        raise ValueError(
            f"--rounding: expected a half-width, as 5e-7 for six decimals, or dtype, got {text!r}"
        ) from None


def score_files(
    files: list[str],
    kind: Kind,
    *,
    axis: int = 0,
    weights: Path | None = None,
    out: Path | None = None,
    force: bool = False,
    options: dict[str, Any],
) -> ScoreTable:
    """Read files and score their inputs, with a progress bar on a terminal."""
    from demur.scoring.score_files import score_predictions
    from demur.stores import check_output, open_predictions, read_weights

    if out is not None:
        check_output(out, force=force)
    with open_predictions(files, axis=axis, directory=out.parent if out else None) as predictions:
        refuse_to_replace([source.path for source in predictions.sources], out)
        chosen = None
        if weights is not None:
            chosen = read_weights(weights, members=predictions.members, inputs=predictions.inputs)
            refuse_to_replace([weights], out)
        with progress_bar(predictions.inputs, "inputs") as progress:
            return score_predictions(
                predictions,
                kind,
                weights=chosen,
                weights_label=str(weights),
                progress=progress,
                **options,
            )


def refuse_to_replace(read: list[Path], out: Path | None) -> None:
    """Raise a `StoreError` where the output file is one that is read."""
    from demur.stores import StoreError

    if out is not None and out.exists() and any(path.samefile(out) for path in read):
        raise StoreError(
            f"{out}: expected a file that is not read from, got one of the inputs: choose another name"
        )


def _describe(scores: ScoreTable, kind: Kind, files: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return what the JSON object says about a run besides the scores."""
    from demur.scoring.score_table import name_unit

    return {
        "inputs": scores.inputs,
        "members": scores.members,
        "classes": scores.classes,
        "files": files,
        "kind": kind,
        "rule": options["rule"],
        "unit": name_unit(options["rule"], options["base"]),
        "unbiased": options["unbiased"],
        **({} if options["rounding"] is None else {"rounding": options["rounding"]}),
        "summary": scores.summary(),
    }


def _top_rows(scores: ScoreTable, count: int) -> list[dict[str, Any]]:
    """Return all columns of the most uncertain inputs, as JSON can hold them."""
    from demur.stores import json_number

    return [
        {name: json_number(values[index]) for name, values in scores.columns.items()}
        for index in scores.top(count)
    ]


def _print_json(scores: ScoreTable, facts: dict[str, Any], out: Path | None) -> None:
    """Print one JSON object; the scores are in it unless they are in a file."""
    import json

    from demur.stores import json_columns

    rest = {"scores": json_columns(scores.columns)} if out is None else {"out": str(out)}
    print(json.dumps({**facts, **rest}, allow_nan=False))
