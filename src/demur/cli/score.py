"""`demur score`: uncertainty of each input, from files of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.options import Axis, ClassAxis, Force, IdColumn, Keep, Logits, LogProbs, Probs
from demur.cli.printing import bad_input_exits, complain, count_things, print_summary, print_top, say
from demur.cli.scored_files import (
    Kind,
    choose_kind_of,
    choose_outcome,
    parse_reduce,
    parse_rounding,
    refuse_to_replace,
    score_files,
)

if TYPE_CHECKING:
    from demur.scoring.block_scores import BlockScores
    from demur.scoring.score_table import ScoreTable

_LAST_AXIS = {
    "classes": "classes", "binary": "tasks", "multilabel": "labels", "points": "tasks", "gaussian": "2"
}  # fmt: skip


def score(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Predictions: .npy, .npz, .safetensors, .pt, .csv, .parquet or .zarr, here or at a URL "
            "such as s3://bucket/run.zarr. A file with three axes "
            "(members, inputs, classes) holds several members; one with two (one row per input, one column "
            "per class) is one member. Write file.npz:name to pick one array of several. A quoted glob such "
            "as 'run/*.npy' takes its files in natural order (9 before 10). Columns of tables are matched "
            "by name; ids, labels and text among them are copied to the scores.",
        ),
    ],
    logits: Logits = False,
    probs: Probs = False,
    log_probs: LogProbs = False,
    binary: Annotated[
        bool,
        typer.Option(
            "--binary",
            help="Each number is for the answer yes: one column per task, one row of scores per input "
            "and task.",
        ),
    ] = False,
    multilabel: Annotated[
        bool,
        typer.Option(
            "--multilabel", help="Each number is for one label; an input's scores cover all its labels."
        ),
    ] = False,
    points: Annotated[
        bool,
        typer.Option(
            "--points", help="The files hold predicted numbers without a variance, one column per task."
        ),
    ] = False,
    gaussian: Annotated[
        bool,
        typer.Option(
            "--gaussian",
            help="The files hold predicted numbers by mean and variance: columns or arrays of these names, "
            "or a last axis of 2.",
        ),
    ] = False,
    axis: Axis = 0,
    class_axis: ClassAxis = -1,
    id_column: IdColumn = None,
    keep: Keep = None,
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
            ".json; FILE:NAME picks one column of several. With several tasks or labels, a column for each.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A measure: pairwise (K), average (I), reverse (M) or bma. Repeat it for several. Default: "
            "the first three.",
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
    logprobs: Annotated[
        str | None,
        typer.Option(
            metavar="openai|vllm",
            show_default=False,
            help="The files are answers of language models, JSON Lines with a record per prompt and member: "
            "id, member, and response as the service returned it, or its logprobs. Scores are limits per "
            "token.",
        ),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            min=2,
            show_default=False,
            help="With --logprobs: how many tokens there are. Without it, entropies have no upper limit.",
        ),
    ] = None,
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens",
            help="With --logprobs: also score each token. With --out DIR/NAME.csv they go to "
            "DIR/tokens-NAME.csv, where demur report finds them.",
        ),
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(metavar="K", help="List the K most uncertain inputs.", min=1, show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the scores to a .csv, .parquet, .npz or .json file or a .zarr store, here or at a "
            "URL. Columns are {measure}_{part}, then members and unit. .zarr and .parquet are written as the "
            "scores come: the same command resumes after an interruption.",
        ),
    ] = None,
    maps: Annotated[
        Path | None,
        typer.Option(
            metavar="STORE",
            show_default=False,
            help="For predictions of pixels: write maps of scores to this .zarr store, here or at a URL, and "
            "one row of scores per image. Without it: one row per pixel. The same command resumes.",
        ),
    ] = None,
    reduce: Annotated[
        str | None,
        typer.Option(
            metavar="mean|max|QUANTILE",
            show_default=False,
            help="With --maps: how the map of an image becomes its score, as 0.95 for a quantile. Default: "
            "mean.",
        ),
    ] = None,
    force: Force = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local|auto|ray://HOST:PORT",
            show_default=False,
            help="Score on Ray: on this machine, on the cluster it belongs to, or on another one. All "
            "machines must see the files by the same names. Default: in this process, without Ray.",
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='Print one JSON object with the summary and, without --out, the scores. Infinity is "inf".',
        ),
    ] = False,
) -> None:
    """Score each input: total, aleatoric and epistemic uncertainty.

    Say what the files hold: --logits, --probs or --log-probs; or --points or --gaussian. They may be larger
    than memory.

    demur score predictions.npy --logits --top 10

    demur score 'run/member_*.npy' --logits --out scores.csv

    demur score 'run/model_*.csv' --probs --binary --out scores.csv

    demur score images.npy --logits --class-axis 2 --maps maps.zarr --out scores.csv

    demur score answers.jsonl --logprobs openai --vocabulary 200019 --tokens --out run/id.csv
    """
    if logprobs is not None or tokens or vocabulary is not None or files[0].lower().endswith(".jsonl"):
        from demur.cli.score_answers import score_answer_files

        others = {
            "--logits": logits, "--probs": probs, "--log-probs": log_probs, "--binary": binary,
            "--multilabel": multilabel, "--points": points, "--gaussian": gaussian, "--axis": axis != 0,
            "--class-axis": class_axis != -1, "--weights": weights, "--labels": labels,
            "--rule": rule != "log", "--unbiased": unbiased, "--stderr": stderr, "--maps": maps,
            "--reduce": reduce, "--cluster": cluster,
        }  # fmt: skip
        score_answer_files(
            files, logprobs, others=[name for name, given in others.items() if given],
            vocabulary=vocabulary, tokens=tokens, id_field=id_column, keep=keep or [], measures=measure,
            base=base, rounding=rounding, top=top, out=out, force=force, as_json=json,
        )  # fmt: skip
        return
    with bad_input_exits():
        from demur.core.rounding import describe as describe_infinite
        from demur.scoring.block_scores import BlockScores
        from demur.stores import split_name
        from demur.stores.urls import show_place

        outcome = choose_outcome(binary=binary, multilabel=multilabel, points=points, gaussian=gaussian)
        kind = choose_kind_of(outcome, logits=logits, probs=probs, log_probs=log_probs)
        options: dict[str, Any] = {
            "rule": rule,
            "base": base,
            "unbiased": unbiased,
            "stderr": stderr,
            "rounding": parse_rounding(rounding),
        }
        if measure:
            options["measures"] = measure
        reduced = parse_reduce(reduce, maps)
        if labels is not None:
            for place in (out, maps):
                refuse_to_replace([Path(split_name(labels)[0])], place)
        layout: dict[str, Any] = {"axis": axis, "class_axis": class_axis, "outcome": outcome}
        layout |= {"id_column": id_column, "keep": keep or ()}
        facts: dict[str, Any] = {}
        shown = None

        def write(scores: ScoreTable | BlockScores) -> None:
            nonlocal shown
            written = isinstance(scores, BlockScores)
            facts.update(_describe(scores, kind, files, options, summary=json or not written))
            if maps is not None:
                facts.update({"maps": show_place(maps), "reduce": reduced})
            if top is not None:
                shown = scores.pick_top(top)
                facts["top"] = _top_rows(shown, top)
            if out is not None and not written:
                from demur.scoring.saved_scores import write_scores

                write_scores(out, scores.columns, facts, force=force)

        scores = score_files(
            files, kind, weights=weights, labels=labels, out=out, force=force, layout=layout, options=options,
            cluster=cluster, maps=maps, reduce=reduced, write=write,
        )  # fmt: skip
    if scores.count_failed():
        complain(
            f"no prediction for {scores.count_failed()} of {count_things(scores.inputs, 'row')} (NaN in all "
            "members): kept in the table, marked in the column status, and left out of the summary"
        )
    if not isinstance(scores, BlockScores) and "missing" in scores.columns:
        pixels = int(scores.columns["missing"].sum())
        complain(
            f"no prediction for {count_things(pixels, 'pixel')} (NaN in all members): NaN in the maps, left "
            "out of the images' scores, and counted in the column missing"
        )
    if scores.members == 1:
        complain(
            f"one member of {scores.sizes['input']} inputs: a single member cannot disagree, so the "
            "epistemic parts are 0; give a file of shape (members, inputs, "
            f"{_LAST_AXIS[outcome]}), or one file per member"
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
    if out is not None:
        say(f"Wrote the scores of {_describe_rows(scores)} to {show_place(out)}")
        if maps is not None:
            say(f"Wrote their maps to {show_place(maps)}")
    elif not isinstance(scores, BlockScores):
        print_summary(scores, facts["unit"])
    if top is not None and shown is not None:
        print_top(shown, top, facts["unit"])
    if options["rounding"] and (out is None or top is not None):
        say("Epistemic parts are lower bounds: the least that fit the rounded probabilities.")


def _describe(
    scores: ScoreTable | BlockScores,
    kind: Kind | None,
    files: list[str],
    options: dict[str, Any],
    *,
    summary: bool,
) -> dict[str, Any]:
    """Return what the JSON object says about a run besides the scores; the summary where it is wanted."""
    from demur.measures import name_unit

    rule = "energy" if scores.outcome == "points" else options["rule"]
    return {
        "inputs": scores.sizes["input"],
        "members": scores.members,
        "classes": scores.classes,
        "files": files,
        "kind": kind or scores.outcome,
        "outcome": scores.outcome,
        "rule": rule,
        "unit": name_unit(rule, options["base"]),
        "unbiased": options["unbiased"],
        **({} if options["rounding"] is None else {"rounding": options["rounding"]}),
        **({"summary": scores.summary()} if summary else {}),
    } | ({"failed": scores.count_failed()} if scores.count_failed() else {})


def _describe_rows(scores: ScoreTable | BlockScores) -> str:
    """Return how many inputs there are, and tasks or pixels of each."""
    inner = {thing: number for thing, number in scores.sizes.items() if thing in ("task", "prediction")}
    inputs = count_things(scores.sizes["input"], "input")
    return inputs + "".join(f", {count_things(number, thing)}" for thing, number in inner.items())


def _top_rows(scores: ScoreTable, count: int) -> list[dict[str, Any]]:
    """Return all columns of the most uncertain inputs, as JSON can hold them."""
    from demur.stores import json_number

    return [
        {name: json_number(values[index]) for name, values in scores.columns.items()}
        for index in scores.top(count)
    ]


def _print_json(scores: ScoreTable | BlockScores, facts: dict[str, Any], out: Path | None) -> None:
    """Print one JSON object; the scores are in it unless they are in a file."""
    import json

    from demur.scoring.block_scores import BlockScores
    from demur.stores import json_columns
    from demur.stores.urls import show_place

    if out is None:
        assert not isinstance(scores, BlockScores)  # these are in a file
        rest: dict[str, Any] = {"scores": json_columns(scores.columns)}
    else:
        rest = {"out": show_place(out)}
    print(json.dumps({**facts, **rest}, allow_nan=False))
